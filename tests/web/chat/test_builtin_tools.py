"""Built-in tools in a chat of the web app: run, listed with the others, and recorded like them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.web.chat.chat_client import begin, run, wait_for_end

from toolyard.types.agent import Agent

if TYPE_CHECKING:
    from tests.web.conftest import Opening


@pytest.fixture
async def local_site(open_site: Opening, demo: dict[str, Any], tmp_path: Path) -> Any:
    root = tmp_path / "work"
    root.mkdir()
    (root / "notes.txt").write_text("first\nsecond\n")
    (tmp_path / "secret.txt").write_text("CANARY\n")
    return await open_site(
        {"demo": demo}, agents=[Agent("none", "None", tools=("demo_*",))], workspace_root=str(root)
    )


async def outcome(client: Any, name: str, **arguments: Any) -> Any:
    chat = await begin(client)
    turn = await run(client, chat, name, **arguments)
    return next(each.body for each in await wait_for_end(client, chat, turn - 1) if each.name == "result")


async def test_a_chat_reads_a_file_and_nothing_beside_it(local_site: Any) -> None:
    client = local_site.client()
    file_text = await outcome(client, "view_file", path="notes.txt")
    assert file_text["ok"] is True
    assert file_text["text"].endswith("\n1\tfirst\n2\tsecond")
    refusal = await outcome(client, "view_file", path="../secret.txt")
    assert refusal["ok"] is False
    assert refusal["text"] == "'../secret.txt' points outside the workspace"


async def test_they_stand_in_one_list_with_the_others(local_site: Any) -> None:
    client = local_site.client()
    chat = await begin(client)
    tools = (await client.get(f"/api/v1/chats/{chat}/tools")).json["items"]
    names = [each["name"] for each in tools]
    assert names == sorted(names)
    native = {each["name"]: each for each in tools if each["native"]}
    assert list(native) == ["find_files", "grep", "list_dir", "view_file", "web_fetch"]
    assert all(each["shown"] and not each["asks"] for each in native.values())
    chat = await begin(client, agent="none")
    tools = (await client.get(f"/api/v1/chats/{chat}/tools")).json["items"]
    [grep] = [each for each in tools if each["name"] == "grep"]
    assert (grep["shown"], grep["why"]) == (False, "no pattern of agent 'none' matches 'grep'")


async def test_a_call_is_written_down_like_any_other(local_site: Any) -> None:
    client = local_site.client()
    await outcome(client, "list_dir")
    async with asyncio.timeout(30):
        # Calls are written down a moment later, many at a time.
        while not (items := (await client.get("/api/v1/audit?action=tool.call")).json["items"]):
            await asyncio.sleep(0.02)
    assert [each["target"] for each in items] == ["@native/list_dir"]
