"""Values of headers and of secret variables show up nowhere, however loudly a server quotes them."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from toolyard import ServerError, Toolyard
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import MemoryAuthStorage, OAuthClient, OAuthGrant
from toolyard.clients import ConnectionManager
from toolyard.clients.secret_redaction import find_secrets
from toolyard.net import OutboundHttp
from toolyard.types.call import Caller, CallRecord, McpRequest
from toolyard.types.server import HttpSpec, OAuthSpec, ProtocolEra, Server, StdioSpec

OpenYard = Callable[..., Toolyard]
Recorders = Callable[..., Any]

SECRET = "zebra-4711-hush"


def error_texts(error: BaseException) -> Iterator[str]:
    """Everything that an error can show: itself, its parts, and the traceback with all that led to it."""
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    yield "".join(traceback.format_exception(error))


def yard_error_texts(yard: Toolyard) -> Iterator[str]:
    yield repr(yard)
    for status in yard.servers():
        yield repr(status)


def check(text_stream: Iterator[str]) -> None:
    for text in text_stream:
        assert SECRET not in text


@pytest.fixture
def records() -> list[CallRecord]:
    return []


# A child process.


CALLS = {
    "refuse": {"text": f"the key {SECRET} is wrong", "data": {"key": [SECRET]}},
    "fail": {"text": f"the key {SECRET} is wrong"},
    "exit": {"text": f"the key {SECRET} is wrong"},
}


@pytest.mark.parametrize("tool", CALLS)
async def test_a_child_that_quotes_a_secret_variable_in_its_complaint_is_not_quoted(
    tool: str,
    open_yard: OpenYard,
    recorder: Recorders,
    records: list[CallRecord],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "toolyard")
    entry = {**recorder().entry, "env": {"SERVICE_API_KEY": SECRET}}
    async with open_yard({"one": entry}, record=records.append) as yard:
        answer = await yard.answer(f"one_{tool}", CALLS[tool])
        assert SECRET not in str(answer.for_model())
        assert SECRET not in str(answer.raw)
        assert "the key *** is wrong" in str(answer.for_model())
        if tool != "fail":
            with pytest.raises(ServerError) as exc_info:
                await yard.call(f"one_{tool}", CALLS[tool])
            check(error_texts(exc_info.value))
        check(yard_error_texts(yard))
    log_messages = [line.getMessage() for line in caplog.records]
    assert len(records) == len([line for line in log_messages if line.startswith(f"one/{tool}: ")]) > 0
    check(iter([repr(records), *log_messages]))


async def test_a_child_that_dies_with_a_secret_on_its_lips_is_not_quoted(open_yard: OpenYard) -> None:
    script = "echo starting >&2; echo cannot use the token $TOKEN >&2; exit 3"
    entry = {"command": "/bin/sh", "args": ["-c", script], "env": {"TOKEN": SECRET}}
    async with open_yard({"one": entry}) as yard:
        with pytest.raises(ServerError, match=r"exited with code 3: cannot use the token \*\*\*") as exc_info:
            await yard.call("one_tool")
        check(error_texts(exc_info.value))
        (status,) = yard.servers()
        assert status.cause == "exited with code 3: cannot use the token ***"
        assert status.stderr == ("starting", "cannot use the token ***")
        (status,) = await yard.connect()
        check(iter([repr(status)]))
        assert SECRET not in str((await yard.answer("one_tool")).for_model())


async def test_a_secret_still_reaches_the_server_it_is_for(open_yard: OpenYard, recorder: Recorders) -> None:
    entry = {**recorder().entry, "env": {"SERVICE_API_KEY": SECRET}}
    async with open_yard({"one": entry}) as yard:
        assert (await yard.call("one_variable", {"text": "SERVICE_API_KEY"})).text == SECRET


# A server behind a URL.


@asynccontextmanager
async def quoting_server(status: int, kind: str) -> AsyncIterator[str]:
    """A server that answers everything with a refusal which quotes the header that it was sent."""

    async def refuse(request: web.Request) -> web.Response:
        words = f"the key {request.headers['Authorization'].split()[-1]} is wrong"
        id = (await request.json()).get("id")
        if kind == "tool":
            tools = [{"name": "tool", "inputSchema": {"type": "object"}}]
            result = {"tools": tools, "content": [{"type": "text", "text": words}], "isError": True}
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            result |= {"serverInfo": {"name": "quoting", "version": "1"}, "resultType": "complete"}
            return web.json_response({"jsonrpc": "2.0", "id": id, "result": result})
        if kind == "json-rpc":
            return web.json_response(
                {"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": words, "data": [words]}},
                status=status,
            )
        return web.Response(
            status=status, text=words, headers={"WWW-Authenticate": f'Bearer error="{words}"'}
        )

    app = web.Application()
    app.router.add_route("*", "/mcp", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    services = web.TCPSite(runner, "127.0.0.1", 0)
    await services.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", ["text", "json-rpc"])
@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500, 503])
async def test_a_server_that_quotes_our_header_is_not_quoted(
    status: int, kind: str, open_yard: OpenYard
) -> None:
    async with quoting_server(status, kind) as url:
        entry = {"url": url, "headers": {"Authorization": f"Bearer {SECRET}"}}
        async with open_yard({"one": entry}) as yard:
            with pytest.raises(ServerError) as exc_info:
                await yard.call("one_tool")
            check(error_texts(exc_info.value))
            check(yard_error_texts(yard))
            assert SECRET not in str((await yard.answer("one_tool")).for_model())


@pytest.mark.parametrize("kind", ["text", "json-rpc", "tool"])
async def test_a_server_that_quotes_the_access_token_is_not_quoted(kind: str) -> None:
    async with quoting_server(200 if kind == "tool" else 500, kind) as url:
        storage, net = MemoryAuthStorage(), OutboundHttp()
        client = OAuthClient("https://as.example", "c", "http://127.0.0.1:1/callback", "dynamic")
        grant = OAuthGrant(
            url,
            client.issuer,
            client,
            "https://as.example/token",
            None,
            (),
            (),
            SECRET,
            None,
            time.time(),
            None,
        )
        await storage.put_grant(url, grant)
        identity = ClientIdentity("http://127.0.0.1:1/callback")
        provider = OAuthProvider(SignInTarget(url), net=net, storage=storage, client_identity=identity)
        server = Server("one", HttpSpec(url), protocol=ProtocolEra.MODERN)
        request = McpRequest("tools/call", {"name": "tool", "arguments": {}})
        async with ConnectionManager([server], auth_provider_for=lambda *_: provider) as manager:
            if kind == "tool":
                result = await manager.send("one", Caller(), request)
                assert result["content"] == [{"type": "text", "text": "the key *** is wrong"}]
            else:
                with pytest.raises(ServerError, match=r"the key \*\*\* is wrong") as exc_info:
                    await manager.send("one", Caller(), request)
                check(error_texts(exc_info.value))
            assert SECRET not in repr(manager.status("one"))
        await net.close()


# What counts as a secret.


PATH_TOKEN = "NmFmZGU0Yzk3ZTQ2NGY1YThiOTM4MGM2"


@pytest.mark.parametrize(
    ("transport", "secrets"),
    [
        (HttpSpec("http://a/", {"Authorization": "Bearer abcdefgh"}), {"Bearer abcdefgh", "abcdefgh"}),
        (HttpSpec("http://a/", {"X-Custom": "abcdefgh"}), {"abcdefgh"}),
        (HttpSpec("http://a/", {"User-Agent": "a browser", "accept": "text/html"}), set()),
        (HttpSpec("http://a/", {"X-Key": "abc"}), set()),
        (HttpSpec(f"http://a/s/{PATH_TOKEN}/mcp"), {PATH_TOKEN}),
        (HttpSpec("http://a/mcp?when=always&api_key=abc%2Fdefgh"), {"abc%2Fdefgh", "abc/defgh"}),
        (StdioSpec("x", env={"DATABASE_URL": "postgres://me:hunter2@host/db"}), {"hunter2"}),
        (StdioSpec("npx", ("remote", f"http://a/s/{PATH_TOKEN}/mcp")), {PATH_TOKEN}),
        (StdioSpec("x", env={"GITHUB_TOKEN": "abcdefgh", "DB_PASSWORD": "hunter2"}), {"abcdefgh", "hunter2"}),
        (StdioSpec("x", env={"WORKSPACE": "/opt/work", "LANG": "en_US.UTF-8"}), set()),
        (StdioSpec("x", ("--api-key", "abcdefgh", "--verbose")), {"abcdefgh"}),
        (StdioSpec("docker", ("run", "-e", "GITHUB_TOKEN=abcdefgh", "an-image")), {"abcdefgh"}),
        (StdioSpec("npx", ("--header", "Authorization: Bearer abc==")), {"Bearer abc=="}),
        (StdioSpec("npx", ("remote", "https://host/mcp?token=abcdefgh")), {"abcdefgh"}),
        (StdioSpec("docker", ("-e", "GITHUB_TOKEN", "an-image", "--no-auth", "--verbose")), set()),
        (StdioSpec("npx", ("remote", "https://auth.example.com/mcp")), set()),
        (StdioSpec("sh", ("-c", "the key of it = something")), set()),
    ],
)
def test_headers_are_secrets_and_so_are_variables_and_arguments_with_telling_names(
    transport: Any, secrets: set[str]
) -> None:
    assert set(find_secrets(Server("one", transport))) == secrets


def test_a_client_secret_is_one_too() -> None:
    server = Server("one", HttpSpec("http://a/"), oauth=OAuthSpec("me", "abcdefgh"))
    assert find_secrets(server) == ("abcdefgh",)
