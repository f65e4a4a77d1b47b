"""Searches in the tool console."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from toolyard.agents.chat.chats import ToolView
from toolyard.types.tool import Definition
from toolyard.web.tool_search import ToolSearch


def tool(name: str, description: str) -> ToolView:
    definition = Definition("docs", name, description)
    return ToolView(name, definition, "docs")


async def test_searches_of_one_person_occupy_one_thread_also_if_they_are_cancelled() -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))
    words = [f"word{number}" for number in range(40_000)]
    tools = [tool(f"tool{at}", " ".join(words[at::40])) for at in range(40)]
    search = ToolSearch()
    searches = [asyncio.create_task(search.search("ann", tools, "word7", 10)) for _ in range(4)]
    await asyncio.sleep(0)
    searches[0].cancel()
    await asyncio.to_thread(int)
    assert not any(each.done() for each in searches[2:])
    results = await asyncio.gather(*searches, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert [each[0].name for each in results[1:] if isinstance(each, list)] == ["tool7"] * 3
