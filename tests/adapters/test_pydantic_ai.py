"""A pydantic-ai agent with the tools of a yard."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from toolyard import Toolyard
from toolyard.adapters.pydantic_ai import YardToolset


async def run(url: str, toolset: YardToolset, script: str) -> tuple[str, list[ToolReturnPart]]:
    """What the agent says in the end, and what its tools returned."""
    async with OpenAIProvider(base_url=f"{url}/v1", api_key="good") as provider:
        agent = Agent(OpenAIChatModel("fake-1", provider=provider), toolsets=[toolset])
        done = await agent.run(script)
        parts = [
            part for each in done.all_messages() if isinstance(each, ModelRequest) for part in each.parts
        ]
        return done.output, [part for part in parts if isinstance(part, ToolReturnPart)]


async def test_an_agent_calls_tools_in_parallel_and_reads_their_results(
    yard: Toolyard, chat_model: str
) -> None:
    script = (
        'call demo_weekday {"date": "2026-07-28"}\ncall demo_weekday {"date": "2026-07-29"}\nthen\nresults?'
    )
    said, _ = await run(chat_model, YardToolset(yard), script)
    assert said == "2026-07-28 is a Tuesday. | 2026-07-29 is a Wednesday."


async def test_it_sees_what_its_agent_of_the_yard_sees(yard: Toolyard, chat_model: str) -> None:
    said, _ = await run(chat_model, YardToolset(yard), "tools?")
    assert said.split() == [tool.name for tool in await yard.tools()]
    assert "every_echo" in said.split()
    said, _ = await run(chat_model, YardToolset(yard, agent="narrow"), "tools?")
    assert said == "demo_weekday"


async def test_a_failure_is_told_to_the_model_and_the_run_goes_on(yard: Toolyard, chat_model: str) -> None:
    script = 'call demo_weekday {"date": "never"}\nthen\nresults?'
    said, (result,) = await run(chat_model, YardToolset(yard), script)
    assert "never" in said
    assert result.outcome == "failed"


async def test_a_picture_reaches_the_model(yard: Toolyard, chat_model: str) -> None:
    said, (result,) = await run(chat_model, YardToolset(yard), "call every_get-tiny-image {}\nthen\nimage?")
    assert said == "image: yes"
    (picture,) = (item for item in result.content_items() if isinstance(item, BinaryContent))
    assert picture.data.startswith(b"\x89PNG")


async def test_the_yard_is_not_closed_with_the_agent(yard: Toolyard, chat_model: str) -> None:
    for _ in range(2):
        await run(chat_model, YardToolset(yard, id="yard"), 'call demo_weekday {"date": "2026-07-28"}')
    assert (await yard.call("demo_weekday", {"date": "2026-07-28"})).text == "2026-07-28 is a Tuesday."
