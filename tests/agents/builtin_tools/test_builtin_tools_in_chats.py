"""Built-in tools beside other tools: one list, one call path, only in chats."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import prefork
from tests.agents.builtin_tools.conftest import matcher_pids

from toolyard.config import load_config
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.errors import OutcomeUnknown, ToolRefused
from toolyard.types.account import LOCAL_PRINCIPAL, Principal, Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, CallRecord, RuleOutcome, Surface, ToolCall, Verdict
from toolyard.types.server import NATIVE_SERVER_ID, Bundle

if TYPE_CHECKING:
    from tests.agents.builtin_tools.conftest import WorkspaceFixture

ANN = Principal("ann")
ALL = ["find_files", "grep", "list_dir", "view_file", "web_fetch"]
FETCH_SERVER = Path(__file__).with_name("reserved_name_server.py")
ENTRY = {"command": sys.executable, "args": ["-I", "-S", str(FETCH_SERVER)]}


def in_chat(**options: Any) -> Caller:
    return Caller(chat="c1", **options)


@pytest.fixture
def records() -> list[CallRecord]:
    return []


@pytest.fixture
async def core(leaks: None, tree: WorkspaceFixture, records: list[CallRecord]) -> AsyncIterator[Core]:
    configuration = load_config(
        overrides={"mcpServers": {"web": ENTRY}}, env={}, cwd=tree.outside, data_dir=tree.data
    )
    settings = Settings(workspace_root=tree.root)
    core = build_core(
        configuration, settings, data_dir=tree.data, with_native_tools=True, record=records.append
    )
    yield core
    await core.close()


async def list_visible_tools(core: Core, caller: Caller) -> list[str]:
    return list(core.call_path.visible_tools(await core.tool_directory.refresh(caller.principal), caller))


# Visibility.


async def test_a_chat_has_them_in_one_list_with_the_others_by_name(core: Core) -> None:
    names = await list_visible_tools(core, in_chat())
    [hashed_name] = set(names) - set(ALL)
    assert hashed_name.startswith("web_fetch_")
    assert names == sorted([*ALL, hashed_name])


async def test_only_chats_have_the_builtin_tools(core: Core) -> None:
    caller = Caller()
    assert not set(ALL) & set(await list_visible_tools(core, caller))
    with pytest.raises(
        ToolRefused, match="'view_file' is hidden: built-in tools are available in chats only"
    ):
        await core.call_path.call(ToolCall("view_file", {"path": "README.md"}), caller)
    roster = await core.tool_directory.refresh(LOCAL_PRINCIPAL)
    assert "view_file" not in await core.meta_tools.search(roster, "view a file", caller, 10)
    assert "view_file" in await core.meta_tools.search(roster, "view a file", in_chat(), 10)
    body = (
        await core.meta_tools.call(
            ToolCall("tools_call", {"name": "grep", "arguments": {"pattern": "x"}}), caller
        )
    ).body
    assert body["ok"] is False


async def test_why_says_that_they_are_for_chats(core: Core) -> None:
    decision = core.call_path.explain("view_file", Caller())
    assert (decision.tool, decision.verdict) == ("@native/view_file", Verdict.HIDE)
    assert decision.decisive is not None
    assert decision.decisive.reason == "built-in tools are available in chats only"
    in_one = core.call_path.explain("@native/view_file", in_chat())
    assert in_one.verdict is Verdict.ALLOW
    assert {link.rule: link.outcome for link in in_one.chain}["native"] is RuleOutcome.PASS


async def test_no_list_status_or_door_speaks_of_their_server(core: Core) -> None:
    await core.call_path.call(ToolCall("list_dir"), in_chat())
    manager = core.manager
    assert list(manager.servers) == ["web"]
    assert list(manager.visible_servers(LOCAL_PRINCIPAL)) == ["web"]
    assert [status.server for status in manager.statuses()] == ["web"]
    assert [status.server for status in manager.statuses(LOCAL_PRINCIPAL)] == ["web"]
    assert [status.server for status in await manager.connect()] == ["web"]


async def test_nothing_of_them_is_stored(core: Core, tree: WorkspaceFixture) -> None:
    await list_visible_tools(core, in_chat())
    await core.call_path.call(ToolCall("list_dir"), in_chat())
    await core.close()
    names = [file.name for file in tree.data.rglob("*") if file.is_file() and b"@native" in file.read_bytes()]
    assert names == []


async def test_a_lock_does_not_concern_them(core: Core, tree: WorkspaceFixture) -> None:
    (tree.data / "mcp.lock").write_text('{"broken')
    names = await list_visible_tools(core, in_chat())
    assert [name for name in names if name in ALL] == ALL


async def test_without_a_workspace_root_only_pages_are_fetched(leaks: None, tmp_path: Path) -> None:
    core = build_core(
        load_config(overrides={}, env={}, cwd=tmp_path, data_dir=tmp_path),
        Settings(),
        data_dir=tmp_path,
        with_native_tools=True,
    )
    try:
        assert await list_visible_tools(core, in_chat()) == ["web_fetch"]
        with pytest.raises(ToolRefused):
            await core.call_path.call(ToolCall("view_file", {"path": "x"}), in_chat())
    finally:
        await core.close()


async def test_doors_without_a_chat_have_none(leaks: None, tmp_path: Path) -> None:
    core = build_core(
        load_config(overrides={}, env={}, cwd=tmp_path, data_dir=tmp_path), Settings(), data_dir=tmp_path
    )
    try:
        assert await list_visible_tools(core, in_chat()) == []
    finally:
        await core.close()


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (in_chat(agent=Agent("a", "A", tools=("view_*", "grep"))), ["grep", "view_file"]),
        (
            in_chat(agent=Agent("a", "A", tools=("*", "!web_*"))),
            ["find_files", "grep", "list_dir", "view_file"],
        ),
        (in_chat(agent=Agent("a", "A", tools=())), []),
        (in_chat(choice=frozenset({"@native/grep", "web/fetch"})), ["grep"]),
        (in_chat(bundles=(Bundle("b", "web", "direct"),)), ALL),
        (in_chat(scope=TokenScope(frozenset(Right), servers=("web",))), []),
        (in_chat(scope=TokenScope(frozenset(Right), tools=("grep",))), ["grep"]),
        (in_chat(agent=Agent("a", "A", mode="meta"), surface=Surface.MODEL_DIRECT), []),
        (in_chat(agent=Agent("a", "A", mode="meta"), surface=Surface.MODEL_META), ALL),
        (in_chat(principal=ANN), ALL),
    ],
)
async def test_every_rule_of_the_chain_counts_for_them(
    core: Core, caller: Caller, expected: list[str]
) -> None:
    assert [name for name in await list_visible_tools(core, caller) if name in ALL] == expected


# Calls.


async def test_a_call_goes_the_one_way_and_is_recorded(core: Core, records: list[CallRecord]) -> None:
    result = await core.call_path.call(
        ToolCall("view_file", {"path": "README.md", "offset": 2, "limit": "1"}), in_chat(principal=ANN)
    )
    assert result.text == "README.md, lines 2 to 2; continue with offset 3\n2\tfirst line"
    [record] = records
    assert (record.tool, record.name, record.principal, record.outcome) == (
        "@native/view_file",
        "view_file",
        "ann",
        "ok",
    )


async def test_all_callers_share_one_connection(core: Core) -> None:
    await asyncio.gather(
        *(core.call_path.call(ToolCall("list_dir"), in_chat(principal=Principal(f"p{n}"))) for n in range(20))
    )
    assert core.manager.connection(NATIVE_SERVER_ID).status().connects == 1
    assert core.manager.list_dedicated_connections("c1") == []


async def test_each_tool_answers(core: Core) -> None:
    async def call_tool(name: str, **arguments: Any) -> str:
        result = await core.call_path.call(ToolCall(name, arguments), in_chat())
        assert not result.is_error
        return result.text

    assert await call_tool("find_files", pattern="*.py") == "src/app.py\nsrc/sub/deep.py"
    assert await call_tool("grep", pattern="DEF", ignore_case="true", glob="*.py", limit=1.0) == (
        "src/app.py:3: def main():\n(only the first 1 matches are shown)"
    )
    assert (await call_tool("list_dir", path="src")).startswith("app.py  42 bytes\n")
    assert (await call_tool("list_dir")).startswith("README.md")


async def test_a_picture_reaches_the_caller_as_media(core: Core, tree: WorkspaceFixture) -> None:
    tree.write("pic.png", tree.png)
    result = await core.call_path.call(ToolCall("view_file", {"path": "pic.png"}), in_chat())
    [media] = result.media
    assert (media.kind, media.mime, base64.b64decode(media.data)) == ("image", "image/png", tree.png)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("view_file", {}, "'path' is missing"),
        ("view_file", {"path": 3}, "'path' must be a string"),
        ("view_file", {"path": "README.md", "offset": 0}, "'offset' must be 1 or more"),
        ("view_file", {"file": "x"}, "view_file has no argument 'file'; it has: path, offset, limit"),
        ("view_file", {"path": "../outside/secret.txt"}, "points outside the workspace"),
        ("view_file", {"path": "src"}, "is a folder, not a file; use list_dir"),
        ("grep", {"pattern": "("}, "the pattern is not valid"),
        ("grep", {"pattern": "x", "ignore_case": 3}, "'ignore_case' must be true or false"),
        ("find_files", {"pattern": ""}, "a glob must have 1"),
        ("list_dir", {"path": "README.md"}, "is a file, not a folder"),
        ("web_fetch", {"url": "http://127.0.0.1/"}, "has a private or denied address"),
        ("web_fetch", {"url": "file:///etc/passwd"}, "does not begin with http"),
    ],
)
async def test_a_failure_is_an_error_result_with_a_message(
    core: Core, records: list[CallRecord], name: str, arguments: dict[str, Any], words: str
) -> None:
    result = await core.call_path.call(ToolCall(name, arguments), in_chat())
    assert result.is_error
    assert words in result.text
    assert records[-1].outcome == "tool error"


async def test_a_result_never_needs_a_handle(leaks: None, tree: WorkspaceFixture) -> None:
    tree.write("long.txt", "".join(f"line {number}\n" for number in range(5000)))
    settings = Settings(workspace_root=tree.root, result_limit=2000)
    core = build_core(
        load_config(overrides={}, env={}, cwd=tree.outside, data_dir=tree.data),
        settings,
        data_dir=tree.data,
        with_native_tools=True,
    )
    try:
        for name, arguments in (
            ("view_file", {"path": "long.txt"}),
            ("grep", {"pattern": "line", "limit": 500}),
        ):
            result = await core.call_path.call(ToolCall(name, arguments), in_chat())
            assert (result.truncated, result.handle, result.is_error) == (False, None, False)
            assert 1000 < len(result.text) <= 2000
    finally:
        await core.close()


async def test_a_cancelled_call_ends_its_work_and_the_next_is_answered(
    core: Core,
    tree: WorkspaceFixture,
    matchers: Callable[[], int],
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    tree.write("bad.txt", "a" * 64 + "\n")
    task = asyncio.create_task(core.call_path.call(ToolCall("grep", {"pattern": "(?=(a+)+b)x"}), in_chat()))
    await wait_until(lambda: matchers() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: matchers() == 0)
    assert "README.md" in (await core.call_path.call(ToolCall("list_dir"), in_chat())).text


async def test_a_lost_worker_is_reported_and_the_next_call_is_answered(
    core: Core,
    tree: WorkspaceFixture,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    tree.write("bad.txt", "a" * 64 + "\n")
    task = asyncio.create_task(core.call_path.call(ToolCall("grep", {"pattern": "(?=(a+)+b)x"}), in_chat()))
    await wait_until(lambda: len(matcher_pids()) == 1)
    os.kill(matcher_pids()[0], signal.SIGKILL)
    result = await task
    assert result.is_error
    assert result.text == "the worker process failed, probably because it reached a resource limit"
    assert "bad.txt:1" in (await core.call_path.call(ToolCall("grep", {"pattern": "a"}), in_chat())).text


async def test_closing_in_the_middle_ends_everything(
    core: Core,
    tree: WorkspaceFixture,
    matchers: Callable[[], int],
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    tree.write("bad.txt", "a" * 64 + "\n")
    task = asyncio.create_task(core.call_path.call(ToolCall("grep", {"pattern": "(?=(a+)+b)x"}), in_chat()))
    await wait_until(lambda: matchers() == 1)
    await core.close()
    with pytest.raises(OutcomeUnknown):
        await task


# Reserved names.


async def test_a_servers_tool_that_wants_a_reserved_name_gets_the_hash(core: Core) -> None:
    roster = await core.tool_directory.refresh(LOCAL_PRINCIPAL)
    [renamed_tool] = roster.names.renamed_tools
    assert (
        str(renamed_tool)
        == f"web/fetch is exposed as '{renamed_tool.name}': 'web_fetch' is reserved for a built-in tool"
    )
    assert roster.tools["web_fetch"].id == "@native/web_fetch"
    result = await core.call_path.call(ToolCall(renamed_tool.name), in_chat())
    assert result.text == "from the server"


def test_check_says_that_the_name_is_ours(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"web": ENTRY}}))
    (tmp_path / "AGENTS.md").write_text("## Reader\n---\ntools: [view_file, grep]\n---\nRead.\n")

    def toolyard(*words: str) -> str:
        command = [sys.executable, "-m", "toolyard", *words, "--data-dir", str(tmp_path)]
        command_result = prefork.run(command, cwd=tmp_path, timeout=60)
        assert command_result.returncode == 0, command_result.stderr
        return command_result.stdout

    result = toolyard("tools", "--json")
    assert "view_file" not in result
    reported_result = toolyard("check")
    assert "'web_fetch' is reserved for a built-in tool" in reported_result
    assert "no tool named" not in reported_result
