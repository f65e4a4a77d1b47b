"""Sentences of the source documents that whole journeys show best. ``tests/requirements.py`` names them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from aiohttp import web

from toolyard import SignInNeeded, State, ToolRefused, Toolyard, Unreachable, load_config
from toolyard.auth import Challenge
from toolyard.types.server import HttpSpec

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

ROOT = Path(__file__).parent.parent.parent
RECORDER = ROOT / "tests/library/recording_server.py"

Until = Callable[..., Awaitable[None]]


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No task, descriptor or process outlives its test; no variable or file of the machine counts."""
    for name in ("TOOLYARD_CONFIG_JSON", "TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOOLYARD_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def stdio(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """``stdio(name, *flags)``: the entry of a server that writes its journal to a file of that name."""

    def entry(name: str, *flags: str) -> dict[str, Any]:
        words = ["-I", "-S", str(RECORDER), str(tmp_path / name), *flags]
        return {"type": "stdio", "command": sys.executable, "args": words}

    return entry


def journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# Where the configuration comes from.


STRICT = {
    "servers": {
        "repo": {"trust": "trusted", "transport": {"type": "http", "url": "http://localhost:4010/mcp"}}
    },
    "bundles": {"repoRead": {"serverId": "repo", "mode": "direct", "allowTools": ["readFile", "search"]}},
}


def test_the_variable_may_hold_a_whole_configuration_in_the_very_schema_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my.json"
    file.write_text(json.dumps(STRICT))
    by_file = load_config(file)
    monkeypatch.setenv("TOOLYARD_CONFIG_JSON", json.dumps(STRICT))
    by_variable = load_config()
    assert by_variable.file is None
    for one, two in ((by_file.servers, by_variable.servers), (by_file.bundles, by_variable.bundles)):
        assert one.keys() == two.keys()
        for key in one:
            assert repr(one[key]).partition("provenance")[0] == repr(two[key]).partition("provenance")[0]
    assert by_variable.servers["repo"].transport == HttpSpec("http://localhost:4010/mcp")


async def test_a_variable_names_the_file_in_place_of_the_data_directorys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdio: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"first": stdio("first")}}))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"mcpServers": {"second": stdio("second")}}))
    async with Toolyard.open() as yard:
        assert {tool.server for tool in await yard.tools()} == {"first"}
    monkeypatch.setenv("MCP_CONFIG_PATH", str(other))
    async with Toolyard.open() as yard:
        assert {tool.server for tool in await yard.tools()} == {"second"}


async def test_the_variables_of_the_single_server_version_configure_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_CONTEXT7_URL", "http://127.0.0.1:9/mcp")
    monkeypatch.setenv("MCP_CONTEXT7_API_KEY", "k")
    async with Toolyard.open() as yard:
        assert yard.servers() == []
        assert await yard.tools() == []


def test_the_changelog_says_where_those_variables_went() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    line = next(line for line in text.splitlines() if "MCP_CONTEXT7_URL" in line)
    assert "MCP_CONTEXT7_API_KEY" in line
    assert "mcp.json" in line


# Many servers in one yard.


async def test_servers_of_every_transport_are_one_registry_of_named_clients_with_one_list_of_tools(
    stdio: Callable[..., dict[str, Any]], hostile_http: ListeningProgram
) -> None:
    web = f"{hostile_http.url}/good/{secrets.token_hex(6)}"
    servers = {
        "codecontext": stdio("journal"),
        "context7": {"type": "streamableHttp", "url": f"{web}?era=modern"},
        "older": {"type": "streamableHttp", "url": f"{web}-older?era=legacy"},
        "off": {**stdio("off"), "enabled": False},
    }
    async with Toolyard.open({"mcpServers": servers}) as yard:
        names = [tool.name for tool in await yard.tools()]
        assert names == sorted(names)
        assert {"codecontext_echo", "context7_echo", "older_echo"} <= set(names)
        for name in ("codecontext", "context7", "older"):
            assert (await yard.call(f"{name}_echo", {"text": name})).text == name
        statuses = {status.server: status for status in yard.servers()}
        states = {name: status.state for name, status in statuses.items()}
        assert states.pop("off") is State.DISABLED
        assert set(states.values()) == {State.READY}
        assert statuses["context7"].protocol_version == "2026-07-28"
        assert statuses["older"].protocol_version == "2025-06-18"
        assert statuses["codecontext"].tool_count == 12
        assert statuses["codecontext"].pid is not None


async def test_headers_of_the_entry_arrive_at_the_server_with_every_request(
    hostile_http: ListeningProgram,
) -> None:
    key = secrets.token_hex(6)
    entry = {
        "type": "streamableHttp",
        "url": f"{hostile_http.url}/good/{key}",
        "headers": {"X-API-Key": "k-1"},
    }
    async with Toolyard.open({"mcpServers": {"context7": entry}}) as yard:
        await yard.call("context7_echo")
    with urllib.request.urlopen(f"{hostile_http.url}/journal/{key}", timeout=30) as answer:
        seen_headers = [entry["headers"] for entry in json.load(answer) if "message" in entry]
    assert len(seen_headers) >= 3
    assert {headers["x-api-key"] for headers in seen_headers} == {"k-1"}


class ExpiringKeyProvider:
    """Gives a key that has run out, until the server complains."""

    def __init__(self) -> None:
        self.key = "old"
        self.challenges: list[int] = []

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def challenged(self, challenge: Challenge) -> bool:
        self.challenges.append(challenge.status)
        self.key = "right"
        return True


@contextlib.asynccontextmanager
async def wants_the_key(right: str) -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a small server behind a sign-in, and the methods that got through to it."""
    started_programs: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {right}":
            return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
        message = await request.json()
        started_programs.append(message["method"])
        result: dict[str, Any] = {"resultType": "complete"}
        if message["method"] == "server/discover":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {}}
        elif message["method"] == "tools/list":
            result |= {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        else:
            result |= {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp", started_programs
    finally:
        await runner.cleanup()


async def test_an_auth_provider_given_by_its_id_signs_every_request_and_is_told_of_a_refusal() -> None:
    provider = ExpiringKeyProvider()
    async with wants_the_key("right") as (url, key_server):
        transport = {"type": "http", "url": url, "authProviderId": "corp"}
        config = {"servers": {"repo": {"trust": "trusted", "transport": transport}}}
        async with Toolyard.open(config, auth_providers={"corp": provider}) as yard:
            assert (await yard.call("repo_echo", {"text": "signed in"})).text == "signed in"
        assert provider.challenges == [401]
        assert key_server == ["server/discover", "tools/list", "tools/call"]


async def test_a_provider_that_was_not_given_is_named_and_without_one_a_sign_in_is_asked_for() -> None:
    async with wants_the_key("right") as (url, key_server):
        transport = {"type": "http", "url": url, "authProviderId": "corp"}
        config = {"servers": {"repo": {"trust": "trusted", "transport": transport}}}
        async with Toolyard.open(config, auth_providers={"other": ExpiringKeyProvider()}) as yard:
            with pytest.raises(Unreachable, match="auth provider 'corp' is missing"):
                await yard.call("repo_echo")
        async with Toolyard.open({"mcpServers": {"repo": {"url": url}}}) as yard:
            with pytest.raises(SignInNeeded):
                await yard.call("repo_echo")
            assert [status.state for status in yard.servers()] == [State.NEEDS_AUTH]
        assert key_server == []


# The read-only guard.


async def test_no_key_of_the_configuration_lets_write_tools_in(stdio: Callable[..., dict[str, Any]]) -> None:
    config = {
        "mcpServers": {
            "one": {
                **stdio("one"),
                "allowWriteTools": True,
                "write_tools": "allow",
                "allowTools": ["touch", "look"],
            },
            "two": {**stdio("two"), "trust": "trusted"},
        },
        "allowWriteTools": True,
    }
    async with Toolyard.open(config) as yard:
        paths = {hint.path for hint in yard.configuration.hints}
        assert paths == {"mcpServers.one.allowWriteTools", "mcpServers.one.write_tools", "allowWriteTools"}
        names = [tool.name for tool in await yard.tools()]
        assert [name for name in names if name.endswith("_touch")] == []
        for name in ("one_touch", "two_touch"):
            assert name in yard.known().tools
            with pytest.raises(ToolRefused):
                await yard.call(name)
        assert (await yard.call("one_look", {"text": "x"})).text == "x"


# Servers that are down.


async def test_a_server_that_is_down_at_the_start_is_a_logged_warning_and_zero_tools_and_all_else_works(
    stdio: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    down = {"type": "streamableHttp", "url": "http://127.0.0.1:9/mcp"}
    async with Toolyard.open({"mcpServers": {"context7": down, "one": stdio("one")}}) as yard:
        assert {tool.server for tool in await yard.tools()} == {"one"}
        (warning,) = messages(caplog, logging.WARNING)
        assert warning.startswith("server 'context7' cannot be used: 127.0.0.1:9 cannot be reached")
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"
        answer = (await yard.answer("context7_query-docs")).for_model()
        assert isinstance(answer, dict)
        assert (answer["error"], answer["output"]) == (True, "MCP server unreachable")


@pytest.mark.parametrize("command", ["/no/such/command", "no-such-command-anywhere"])
async def test_a_command_that_is_not_found_is_a_logged_warning_and_the_server_is_skipped(
    command: str, stdio: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async with Toolyard.open({"mcpServers": {"gone": {"command": command}, "one": stdio("one")}}) as yard:
        assert {tool.server for tool in await yard.tools()} == {"one"}
        assert {status.server: status.state for status in yard.servers()} == {
            "gone": State.FAILED,
            "one": State.READY,
        }
    assert messages(caplog, logging.WARNING) == [
        f"server 'gone' cannot be used: command not found: {command}"
    ]


async def test_a_child_that_exits_is_a_logged_error_and_unavailable_and_is_not_started_again(
    tmp_path: Path, stdio: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture, wait_until: Until
) -> None:
    async with Toolyard.open({"mcpServers": {"one": stdio("one"), "two": stdio("two")}}) as yard:
        await yard.connect()
        pid = next(status.pid for status in yard.servers() if status.server == "one")
        assert pid is not None
        psutil.Process(pid).send_signal(signal.SIGKILL)
        await wait_until(lambda: messages(caplog, logging.ERROR) == ["server 'one': was killed by SIGKILL"])
        status = yard.servers()[0]
        assert (status.state, status.cause, status.next_retry) == (
            State.FAILED,
            "was killed by SIGKILL",
            None,
        )
        for _ in range(3):
            with pytest.raises(Unreachable, match="was killed by SIGKILL"):
                await yard.call("one_echo")
        assert (await yard.call("two_echo", {"text": "goes on"})).text == "goes on"
    assert sum("start" in note for note in journal(tmp_path / "one")) == 1


# Child processes.


async def test_a_stdio_server_is_a_child_with_its_command_arguments_and_variables(
    tmp_path: Path, stdio: Callable[..., dict[str, Any]]
) -> None:
    entry = {**stdio("one", "--modern"), "env": {"WORKSPACE": "/opt"}, "cwd": str(tmp_path)}
    async with Toolyard.open({"mcpServers": {"one": entry}}) as yard:
        assert (await yard.call("one_variable", {"text": "WORKSPACE"})).text == "/opt"
        (status,) = yard.servers()
        child = psutil.Process(status.pid)
        assert child.ppid() == psutil.Process().pid
        assert child.cmdline() == [entry["command"], *entry["args"]]
        assert child.cwd() == str(tmp_path)
        assert journal(tmp_path / "one")[0]["words"] == [str(tmp_path / "one"), "--modern"]


async def test_a_child_gets_one_json_message_a_line(tmp_path: Path) -> None:
    request_file = tmp_path / "heard"
    script = f"tee {request_file} | {sys.executable} -I -S {RECORDER} {tmp_path / 'journal'}"
    entry = {"command": "/bin/sh", "args": ["-c", script]}
    async with Toolyard.open({"mcpServers": {"one": entry}}) as yard:
        assert (await yard.call("one_echo", {"text": "two\nlines"})).text == "two\nlines"
    lines = request_file.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line)["jsonrpc"] for line in lines] == ["2.0"] * len(lines)
    assert json.loads(lines[-1])["params"]["arguments"] == {"text": "two\nlines"}


async def test_at_the_end_every_child_is_told_to_go_and_what_stays_is_killed_after_five_seconds(
    tmp_path: Path, stdio: Callable[..., dict[str, Any]], hostile_stdio: str
) -> None:
    stubborn = {
        "command": sys.executable,
        "args": ["-I", "-S", hostile_stdio, "stubborn", "--journal", str(tmp_path / "stubborn")],
    }
    servers = {"polite": stdio("polite", "--stay"), "other": stdio("other", "--stay"), "stubborn": stubborn}
    async with Toolyard.open({"mcpServers": servers}) as yard:
        await yard.connect()
        pids = [status.pid for status in yard.servers()]
        assert None not in pids
        start = time.monotonic()
    seconds = time.monotonic() - start
    assert seconds >= 5.0
    assert [pid for pid in pids if pid is not None and psutil.pid_exists(pid)] == []
    for name in ("polite", "other"):
        assert {"told_to_go": True} in journal(tmp_path / name)


async def test_closing_is_for_everything_even_when_the_program_fails(
    tmp_path: Path, stdio: Callable[..., dict[str, Any]]
) -> None:
    servers = {name: stdio(name) for name in ("one", "two", "three")}
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(30), Toolyard.open({"mcpServers": servers}) as yard:
            await yard.connect()
            pids = [status.pid for status in yard.servers()]
            assert all(pid is not None and psutil.pid_exists(pid) for pid in pids)
            raise ZeroDivisionError
    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
    assert [status.server for status in yard.servers()] == []
