"""Servers that others wrote, over every transport and in both eras."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tool_calls import call_tool

from toolyard.clients import Callbacks, ConnectionManager
from toolyard.errors import CallTimeout, RpcError, Unreachable
from toolyard.types.call import McpRequest
from toolyard.types.server import HttpSpec, ProtocolEra, Server, State, StdioSpec, Timeouts

from .conftest import LEGACY, NODE, PYTHONS, SDK_SERVER, ServerPrograms

EVERYTHING = NODE / "mcp-server-everything"


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def sdk_server(serve: ServerPrograms, kind: str, *extra: str) -> Server:
    """A server made with the official SDK: ``sdk1-sse``, ``sdk2-stdio`` …"""
    sdk, _, transport = kind.partition("-")
    if transport == "stdio":
        return Server("s", StdioSpec(PYTHONS[sdk], (str(SDK_SERVER), "stdio", *extra)))
    flags = {"http": (), "json": ("--json",), "stateless": ("--stateless",), "sse": ()}[transport]
    name, path = ("sse", "sse") if transport == "sse" else ("streamable-http", "mcp")
    site = serve(PYTHONS[sdk], SDK_SERVER, name, "--port", "{port}", *flags, *extra)
    return Server("s", HttpSpec(f"http://127.0.0.1:{site.port}/{path}"))


KINDS = [
    "sdk1-stdio",
    "sdk1-http",
    "sdk1-json",
    "sdk1-stateless",
    "sdk1-sse",
    "sdk2-stdio",
    "sdk2-http",
    "sdk2-json",
    "sdk2-sse",
]
MODERN = {"sdk2-stdio", "sdk2-http", "sdk2-json"}


@pytest.mark.parametrize("kind", KINDS)
async def test_servers_of_the_official_sdk_do_everything_they_can(kind: str, serve: ServerPrograms) -> None:
    requested_urls: list[str] = []
    messages: list[str] = []
    progress: list[float] = []

    async def elicit(server: str, params: Any) -> dict[str, Any]:
        requested_urls.append(params["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    async with ConnectionManager(
        [sdk_server(serve, kind)],
        callbacks=Callbacks(elicitation=elicit),
        on_notification=lambda server, method, params: messages.append(method),
    ) as manager:
        facts = await manager.ensure_connected("s")
        assert facts.version == ("2026-07-28" if kind in MODERN else "2025-11-25")
        assert facts.info["name"] == "sdk-server"
        assert facts.instructions == "Try everything."
        listing = await manager.list_tools("s")
        assert {"echo", "slow", "greet"} <= {tool["name"] for tool in listing.items}
        assert text_of(await call_tool(manager, "s", "echo", {"text": "grüße 世界 🎉"})) == "grüße 世界 🎉"
        slow = await call_tool(
            manager, "s", "slow", {"steps": 2}, on_progress=lambda params: progress.append(params["progress"])
        )
        assert text_of(slow) == "done"
        if not kind.endswith("-json"):  # One JSON object has no room for progress.
            assert progress == [1, 2]
        result = await call_tool(manager, "s", "fail")
        assert result["isError"] is True
        note = await manager.connection("s").request(McpRequest("resources/read", {"uri": "test://note"}))
        assert note["contents"][0]["text"] == "a note"
        prompt = await manager.connection("s").request(
            McpRequest("prompts/get", {"name": "ask", "arguments": {"topic": "tea"}})
        )
        assert prompt["messages"][0]["content"]["text"] == "Tell me about tea"
        if kind not in ("sdk1-json", "sdk1-stateless"):
            greeting = text_of(await call_tool(manager, "s", "greet"))
            assert greeting.startswith("hello Ada")
            assert requested_urls == ["Who are you?"]
        with pytest.raises(RpcError):
            await manager.connection("s").request(McpRequest("no/such/method"))
        if kind in ("sdk1-stdio", "sdk1-http", "sdk1-sse", "sdk2-stdio", "sdk2-http"):
            await until(lambda: kind not in MODERN or "notifications/subscriptions/acknowledged" in messages)
            await call_tool(manager, "s", "grow")
            await until(lambda: "notifications/tools/list_changed" in messages)
            assert "grown" in {tool["name"] for tool in (await manager.list_tools("s")).items}


@pytest.mark.parametrize("kind", ["sdk1-stdio", "sdk1-http", "sdk2-stdio", "sdk2-http"])
async def test_a_cancelled_call_and_a_timed_out_call_reach_the_server(
    kind: str, serve: ServerPrograms, tmp_path: Path
) -> None:
    async with ConnectionManager([sdk_server(serve, kind)]) as manager:
        await manager.ensure_connected("s")
        first = tmp_path / "first"
        call = asyncio.ensure_future(call_tool(manager, "s", "wait", {"seconds": 60, "marker": str(first)}))
        await until((tmp_path / "first.begun").exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(first.exists)
        second = tmp_path / "second"
        with pytest.raises(CallTimeout, match="no response or progress"):
            await call_tool(
                manager,
                "s",
                "wait",
                {"seconds": 60, "marker": str(second)},
                timeouts=Timeouts(silence=3),
            )
        await until(second.exists)
        assert text_of(await call_tool(manager, "s", "echo", {"text": "still here"})) == "still here"


@pytest.mark.parametrize("kind", ["sdk1-http", "sdk1-stateless", "sdk2-http"])
async def test_a_restarted_http_server_is_used_again_without_anyone_noticing(
    kind: str, serve: ServerPrograms
) -> None:
    server = sdk_server(serve, kind)
    (first_program,) = serve.running
    async with ConnectionManager([server]) as manager:
        assert text_of(await call_tool(manager, "s", "echo", {"text": "one"})) == "one"
        first_program.stop()
        with pytest.raises(Unreachable):
            await call_tool(manager, "s", "echo", {"text": "down"}, repeatable=True)
        await asyncio.to_thread(first_program.start)
        assert text_of(await call_tool(manager, "s", "echo", {"text": "two"})) == "two"
        assert manager.status("s").state is State.READY


@pytest.mark.parametrize("transport", ["stdio", "sse", "streamableHttp"])
async def test_the_everything_server_works_over_each_of_its_transports(
    transport: str, serve: ServerPrograms
) -> None:
    if transport == "stdio":
        spec: Any = StdioSpec(str(EVERYTHING), ("stdio",))
    else:
        site = serve(EVERYTHING, transport, PORT="{port}")
        spec = HttpSpec(f"http://127.0.0.1:{site.port}/{'sse' if transport == 'sse' else 'mcp'}")

    async def sample(server: str, params: Any) -> dict[str, Any]:
        content = {"type": "text", "text": "a sampled answer"}
        return {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}

    async def roots(server: str, params: Any) -> dict[str, Any]:
        return {"roots": [{"uri": "file:///tmp", "name": "tmp"}]}

    callbacks = Callbacks(sampling=sample, roots=roots)
    async with ConnectionManager([Server("every", spec)], callbacks=callbacks) as manager:
        names = {tool["name"] for tool in (await manager.list_tools("every")).items}
        assert {"echo", "get-sum", "get-tiny-image"} <= names
        assert text_of(await call_tool(manager, "every", "get-sum", {"a": 2, "b": 40})).endswith("42.")
        image = await call_tool(manager, "every", "get-tiny-image")
        assert any(block["type"] == "image" for block in image["content"])
        progress: list[Any] = []
        await call_tool(
            manager,
            "every",
            "trigger-long-running-operation",
            {"duration": 0.6, "steps": 3},
            on_progress=progress.append,
            timeouts=Timeouts(silence=30),
        )
        assert [one["progress"] for one in progress] == [1, 2, 3]
        if "trigger-sampling-request" in names:
            result = await call_tool(
                manager, "every", "trigger-sampling-request", {"prompt": "x", "maxTokens": 5}
            )
            assert "a sampled answer" in text_of(result)
        resources = await manager.list_all("every", "resources/list", "resources")
        assert resources.items
        prompts = await manager.list_all("every", "prompts/list", "prompts")
        assert prompts.items
        bad = await call_tool(manager, "every", "get-sum", {"a": "two"})
        assert bad["isError"] is True


async def test_the_filesystem_server_reads_and_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello from disk")
    spec = StdioSpec(str(NODE / "mcp-server-filesystem"), (str(tmp_path),))
    async with ConnectionManager([Server("fs", spec)]) as manager:
        result = await call_tool(manager, "fs", "read_text_file", {"path": str(tmp_path / "note.txt")})
        assert "hello from disk" in text_of(result)
        outside = await call_tool(manager, "fs", "read_text_file", {"path": "/etc/hostname"})
        assert outside["isError"] is True


async def test_the_memory_server_keeps_its_entities(tmp_path: Path) -> None:
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}
    server = Server("memory", StdioSpec(str(NODE / "mcp-server-memory"), env=env))
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    async with ConnectionManager([server]) as manager:
        await call_tool(manager, "memory", "create_entities", {"entities": [entity]})
        await manager.restart("memory")
        assert "first program" in text_of(await call_tool(manager, "memory", "read_graph"))


async def test_the_time_server_tells_the_time() -> None:
    async with ConnectionManager([Server("time", StdioSpec(str(LEGACY / "mcp-server-time")))]) as manager:
        result = await call_tool(manager, "time", "get_current_time", {"timezone": "UTC"})
        assert '"timezone": "UTC"' in text_of(result)


async def test_the_git_server_reads_a_repository(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a.txt").write_text("a")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "the first commit"], check=True)
    spec = StdioSpec(str(LEGACY / "mcp-server-git"), ("--repository", str(tmp_path)))
    async with ConnectionManager([Server("git", spec)]) as manager:
        log = await call_tool(manager, "git", "git_log", {"repo_path": str(tmp_path)})
        assert "the first commit" in text_of(log)


@pytest.mark.parametrize(
    ("protocol", "sdk", "version"),
    [
        (ProtocolEra.LEGACY, "sdk2", "2025-11-25"),
        (ProtocolEra.LEGACY, "sdk1", "2025-11-25"),
        (ProtocolEra.MODERN, "sdk2", "2026-07-28"),
    ],
)
async def test_a_configured_era_is_spoken_without_a_probe(
    protocol: ProtocolEra, sdk: str, version: str
) -> None:
    spec = StdioSpec(PYTHONS[sdk], (str(SDK_SERVER), "stdio"))
    async with ConnectionManager([Server("s", spec, protocol=protocol)]) as manager:
        assert (await manager.ensure_connected("s")).version == version
        assert text_of(await call_tool(manager, "s", "echo", {"text": "x"})) == "x"


async def test_a_legacy_server_that_must_be_modern_gets_a_hint() -> None:
    spec = StdioSpec(PYTHONS["sdk1"], (str(SDK_SERVER), "stdio"))
    async with ConnectionManager([Server("s", spec, protocol=ProtocolEra.MODERN)]) as manager:
        (status,) = await manager.connect()
        assert status.state is State.FAILED
        assert "does not support protocol version 2026-07-28" in (status.cause or "")
        assert "protocol" in (status.hint or "")


@pytest.mark.parametrize("kind", ["sdk1-stdio", "sdk2-http"])
async def test_a_result_of_forty_megabytes_arrives_whole(kind: str, serve: ServerPrograms) -> None:
    async with ConnectionManager([sdk_server(serve, kind)]) as manager:
        # The SDK sends the text twice, as content and as structured content: 40 MB in one message.
        result = await call_tool(manager, "s", "big", {"megabytes": 20})
        assert len(result["structuredContent"]["result"]) == 20_000_000
        assert len(text_of(result)) == 20_000_000
