"""A pydantic-ai agent with the tools of a yard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

from toolyard import Toolyard
from toolyard.adapters.pydantic_ai import YardToolset


async def run(url: str, toolset: YardToolset, script: str) -> tuple[str, list[ToolReturnPart]]:
    """Return the agent's final text and the results of its tools."""
    async with OpenAIProvider(base_url=f"{url}/v1", api_key="good") as provider:
        agent = Agent(OpenAIChatModel("fake-1", provider=provider), toolsets=[toolset])
        result = await agent.run(script)
        parts = [
            part for each in result.all_messages() if isinstance(each, ModelRequest) for part in each.parts
        ]
        return result.output, [part for part in parts if isinstance(part, ToolReturnPart)]


async def test_an_agent_calls_tools_in_parallel_and_reads_their_results(
    yard: Toolyard, chat_model: str
) -> None:
    script = (
        'call demo_weekday {"date": "2026-07-28"}\ncall demo_weekday {"date": "2026-07-29"}\nthen\nresults?'
    )
    replies, _ = await run(chat_model, YardToolset(yard), script)
    assert replies == "2026-07-28 is a Tuesday. | 2026-07-29 is a Wednesday."


async def test_the_toolset_shows_the_tools_of_its_agent(yard: Toolyard, chat_model: str) -> None:
    replies, _ = await run(chat_model, YardToolset(yard), "tools?")
    assert replies.split() == [tool.name for tool in await yard.tools()]
    assert "every_echo" in replies.split()
    replies, _ = await run(chat_model, YardToolset(yard, agent="narrow"), "tools?")
    assert replies == "demo_weekday"


async def test_a_failure_is_told_to_the_model_and_the_run_goes_on(yard: Toolyard, chat_model: str) -> None:
    script = 'call demo_weekday {"date": "never"}\nthen\nresults?'
    replies, (result,) = await run(chat_model, YardToolset(yard), script)
    assert "never" in replies
    assert result.outcome == "failed"


async def test_a_picture_reaches_the_model(yard: Toolyard, chat_model: str) -> None:
    replies, (result,) = await run(
        chat_model, YardToolset(yard), "call every_get-tiny-image {}\nthen\nimage?"
    )
    assert replies == "image: yes"
    (picture,) = (item for item in result.content_items() if isinstance(item, BinaryContent))
    assert picture.data.startswith(b"\x89PNG")


async def test_the_yard_is_not_closed_with_the_agent(yard: Toolyard, chat_model: str) -> None:
    for _ in range(2):
        await run(chat_model, YardToolset(yard, id="yard"), 'call demo_weekday {"date": "2026-07-28"}')
    assert (await yard.call("demo_weekday", {"date": "2026-07-28"})).text == "2026-07-28 is a Tuesday."


SPACED_SERVER = """
import json, sys
schema = {"type": "object", "properties": {"a b": {"type": "string"}, "c": {"type": "string"}}}
for line in sys.stdin:
    asked = json.loads(line)
    answers = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "spaced", "version": "1"}},
        "tools/list": {"tools": [{"name": "take", "inputSchema": schema}]},
    }
    if "id" in asked:
        known = answers.get(asked["method"])
        rest = {"result": known} if known else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **rest}), flush=True)
"""


@pytest.mark.parametrize(
    ("name", "argument_names"),
    [("gpt-9", ["a b", "c"]), ("claude-9", ["c"]), ("fallback:gpt-9,Claude-9", ["c"])],
)
async def test_a_parameter_is_left_out_only_where_its_name_is_refused(
    leaks: None, tmp_path: Path, name: str, argument_names: list[str]
) -> None:
    server = {"command": sys.executable, "args": ["-I", "-c", SPACED_SERVER]}
    async with Toolyard.open({"mcpServers": {"spaced": server}}, data_dir=tmp_path) as yard:
        model = TestModel(call_tools=[], model_name=name)
        await Agent(model, toolsets=[YardToolset(yard)]).run("go")
        last_model_request_parameters = model.last_model_request_parameters
        assert last_model_request_parameters is not None
        (tool,) = last_model_request_parameters.function_tools
        assert list(tool.parameters_json_schema["properties"]) == argument_names
