"""What was listed once is known without a process: a server starts when it is called, and alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolyard import Callbacks, State, ToolRefused, Toolyard, Unreachable
from toolyard.types.call import Verdict

OpenYard = Callable[..., Toolyard]
Recorders = Callable[..., Any]
Until = Callable[..., Awaitable[None]]

SDK_SERVER = Path(__file__).parent.parent / "servers" / "sdk_server.py"

ANOTHER_PROCESS = """
import asyncio, json, sys, psutil
from toolyard import Toolyard

async def main():
    config, data_dir = json.loads(sys.argv[1]), sys.argv[2]
    async with Toolyard.open(config, data_dir=data_dir) as yard:
        names = [tool.name for tool in await yard.tools()]
        verdict = yard.why("one_touch").verdict
        print(json.dumps([names, verdict, len(psutil.Process().children(recursive=True))]))

asyncio.run(main())
"""


async def list_tool_names(yard: Toolyard, **options: Any) -> list[str]:
    return [tool.name for tool in await yard.tools(**options)]


async def test_after_a_first_listing_a_new_yard_lists_explains_and_finds_while_starting_nothing(
    open_yard: OpenYard, recorder: Recorders, children: Callable[[], list[str]]
) -> None:
    one, two = recorder("one"), recorder("two", "--modern")
    async with open_yard({"one": one, "two": two}) as yard:
        before = await yard.tools()
    async with open_yard({"one": one, "two": two}) as yard:
        assert yard.why("one_touch").verdict is Verdict.REFUSE
        assert yard.why("two/look").verdict is Verdict.ALLOW
        assert await yard.tools() == before
        assert await list_tool_names(yard, server="two") == [
            tool.name for tool in before if tool.server == "two"
        ]
        assert await yard.find("two_look") in before
        assert {status.state for status in yard.servers()} == {State.IDLE}
        assert children() == []
    assert (len(one.starts()), len(two.starts())) == (1, 1)


async def test_and_the_first_call_of_a_tool_starts_its_server_alone(
    open_yard: OpenYard, recorder: Recorders, children: Callable[[], list[str]]
) -> None:
    one, two = recorder("one"), recorder("two")
    async with open_yard({"one": one, "two": two}) as yard:
        await yard.tools()
    async with open_yard({"one": one, "two": two}) as yard:
        assert (await yard.call("two_echo", {"text": "x"})).text == "x"
        watchdog, server = sorted(children(), key=lambda words: "recording_server.py" in words)
        assert "watchdog.py" in watchdog
        assert str(two.path) in server
    assert (len(one.starts()), len(two.starts())) == (1, 2)
    assert len(two.messages("tools/list")) == 1


async def test_another_process_knows_them_too(
    open_yard: OpenYard, recorder: Recorders, data_dir: Path
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        before = await list_tool_names(yard)
    config = json.dumps({"mcpServers": {"one": one.entry}})
    program = [sys.executable, "-c", ANOTHER_PROCESS, config, str(data_dir)]
    result = await asyncio.to_thread(
        subprocess.run, program, capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(result.stdout) == [before, "refuse", 0]
    assert len(one.starts()) == 1


async def test_a_call_in_an_empty_yard_starts_the_server_that_the_name_points_to_and_no_other(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    servers = {name: recorder(name) for name in ("one", "two", "three")}
    async with open_yard(servers) as yard:
        assert (await yard.call("two_echo", {"text": "x"})).text == "x"
    assert {name: len(server.starts()) for name, server in servers.items()} == {
        "one": 0,
        "two": 1,
        "three": 0,
    }


async def test_a_changed_entry_is_another_server_and_is_listed_again(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        await yard.tools()
    async with open_yard({"one": {**one.entry, "env": {"MODE": "other"}}}) as yard:
        with pytest.raises(ToolRefused):
            yard.why("one_look")
        assert "one_look" in await list_tool_names(yard)
    assert len(one.starts()) == 2


async def test_a_damaged_cache_is_harmless(open_yard: OpenYard, recorder: Recorders, data_dir: Path) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        before = await list_tool_names(yard)
    (data_dir / "catalogue.db").write_bytes(b"no database at all" * 100)
    async with open_yard({"one": one}) as yard:
        assert await list_tool_names(yard) == before
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"


# How long a listing counts.


async def test_within_its_time_a_listing_is_not_asked_for_again(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": {**one.entry, "cache": {"ttl": 3600}}}) as yard:
        for _ in range(3):
            await yard.tools()
            await yard.call("one_echo")
    assert len(one.messages("tools/list")) == 1


async def test_past_its_time_a_connected_server_is_asked_again_and_another_is_not(
    open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    one = recorder()
    entry = {**one.entry, "cache": {"ttl": 0.05}}
    async with open_yard({"one": entry}) as yard:
        await yard.tools()
        await wait_until(lambda: yard.known().catalogues["one"].fetched_at + 0.06 < time.time())
        await yard.tools()
        assert len(one.messages("tools/list")) == 2
    async with open_yard({"one": entry}) as yard:
        await wait_until(lambda: yard.known().catalogues["one"].fetched_at + 0.06 < time.time())
        assert "one_echo" in await list_tool_names(yard)
    assert len(one.starts()) == 1


async def test_the_servers_own_hint_counts(open_yard: OpenYard, recorder: Recorders) -> None:
    one = recorder("one", "--modern", "--ttl", "0")
    async with open_yard({"one": one}) as yard:
        for round_number in (1, 2, 3):
            await yard.tools()
            assert len(one.messages("tools/list")) == round_number


async def test_a_server_with_uncacheable_listings_is_listed_each_time(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    entry = {**one.entry, "cache": {"ttl": 0}}
    async with open_yard({"one": entry}) as yard:
        await yard.tools()
        await yard.tools()
        assert len(one.messages("tools/list")) == 2
        await yard.call("one_echo")
        assert len(one.messages("tools/list")) == 3
    async with open_yard({"one": entry}) as yard:
        with pytest.raises(ToolRefused):
            yard.why("one_echo")


# A server that says that its list changed.


@pytest.mark.parametrize("listing", [True, False], ids=["listed", "called at once"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_list_that_changed_is_fetched_again(
    era: str, open_yard: OpenYard, wait_until: Until, listing: bool, request: pytest.FixtureRequest
) -> None:
    status_texts: list[str] = []
    callbacks = Callbacks(notification=lambda server, method, params: status_texts.append(method))
    python = sys.executable if era == "modern" else request.getfixturevalue("legacy_python")
    entry = {"command": python, "args": [str(SDK_SERVER), "stdio"]}
    async with open_yard({"s": entry}, callbacks=callbacks) as yard:
        assert "s_grown" not in await list_tool_names(yard)
        if era == "modern":
            await wait_until(lambda: "notifications/subscriptions/acknowledged" in status_texts)
        else:
            # This one gives no hint of its own, so that nothing else makes the listing old.
            assert yard.known().catalogues["s"].ttl == 60
        assert (await yard.call("s_grow")).text == "more"
        await wait_until(lambda: "notifications/tools/list_changed" in status_texts)
        if listing:
            assert "s_grown" in await list_tool_names(yard)
        assert (await yard.call("s_grown")).text == "grown"


# A server that is down.


@pytest.fixture
def program(tmp_path: Path, recorder: Recorders) -> tuple[Path, Any]:
    """A command of its own that can be taken away, and the server behind it."""
    one = recorder()
    path = tmp_path / "server"
    words = " ".join([one.entry["command"], *one.entry["args"]])
    path.write_text(f"#!/bin/sh\nexec {words}\n")
    path.chmod(0o755)
    return path, one


async def test_a_server_that_is_down_keeps_its_known_tools_and_a_call_says_why(
    open_yard: OpenYard, program: tuple[Path, Any]
) -> None:
    path, _ = program
    async with open_yard({"one": {"command": str(path)}}) as yard:
        before = await list_tool_names(yard)
    path.rename(path.with_name("away"))
    async with open_yard({"one": {"command": str(path)}}) as yard:
        assert await list_tool_names(yard) == before
        with pytest.raises(Unreachable) as exc_info:
            await yard.call("one_echo", {"text": "x"})
        assert (exc_info.value.server, exc_info.value.cause) == ("one", f"command not found: {path}")
        assert await list_tool_names(yard) == before
        assert await list_tool_names(yard, fresh=True) == before
        (status,) = yard.servers()
        assert (status.state, status.cause) == (State.FAILED, f"command not found: {path}")
        path.with_name("away").rename(path)
        assert (await yard.call("one_echo", {"text": "back"})).text == "back"


async def test_a_server_that_was_never_listed_and_is_down_has_no_tools_and_its_call_says_why(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": one, "gone": {"command": "/no/such/command"}}) as yard:
        assert {name.partition("_")[0] for name in await list_tool_names(yard)} == {"one"}
        with pytest.raises(Unreachable, match="command not found: /no/such/command"):
            await yard.call("gone_tool")
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"


async def test_a_server_without_tools_is_not_a_failure(
    open_yard: OpenYard, recorder: Recorders, tmp_path: Path
) -> None:
    (tmp_path / "none").write_text("[]")
    async with open_yard({"one": recorder("one", "--tools", str(tmp_path / "none"))}) as yard:
        assert await yard.tools() == []
        assert yard.servers()[0].state is State.READY
