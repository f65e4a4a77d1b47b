"""The clients that ask a gateway, over the transport that it speaks: bare, ordinary, of the official SDK."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import aiohttp
import anyio
from mcp import Client, ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from harness.raw_http_client import INITIALIZED_NOTIFICATION, Line, Peer
from harness.raw_sse_client import StreamLine

__all__ = ["Ask", "bare", "connect", "official", "ordinary"]

Message = dict[str, Any]
Ask = Callable[[], Awaitable[None]]
"""Calls a tool and reads the answer."""


async def connect(peer: Peer, session: str | None = None, number: int = 1) -> Line:
    """A connection of a bare client, in this session or in a new one where the peer wants one."""
    return await (Line if peer.stream is None else StreamLine).open(peer, session, number)


@contextlib.asynccontextmanager
async def bare(peer: Peer, session: str | None, number: int) -> AsyncGenerator[Ask]:
    """A client that writes prepared bytes and looks for its word in what comes back."""
    line = await connect(peer, session, number)
    call, word = line.calls()[number % len(peer.names)], b'"hello %d"' % number

    async def ask() -> None:
        if word not in (body := await line.ask(call)):
            raise RuntimeError(f"not what was asked for: {body.decode()[:300]}")

    try:
        yield ask
    finally:
        line.close()


@contextlib.asynccontextmanager
async def ordinary(peer: Peer, session: str | None, number: int) -> AsyncGenerator[Ask]:
    """A client that posts JSON and reads the answer as one does that uses it."""
    call = peer.calls(number)[number % len(peer.names)]
    async with aiohttp.ClientSession(headers=peer.headers(call, session)) as http:
        if peer.stream is None:
            yield functools.partial(_call, functools.partial(_post_message, http, peer.url), call)
        else:
            async with http.get(peer.origin + peer.stream) as stream:
                url = peer.origin + (await _data(stream)).decode().strip()
                ask = functools.partial(_read_streamed_answer, http, url, stream)
                await ask(peer.hello(number))
                (await http.post(url, json=INITIALIZED_NOTIFICATION)).release()
                yield functools.partial(_call, ask, call)


@contextlib.asynccontextmanager
async def official(peer: Peer, session: str | None, number: int) -> AsyncGenerator[Ask]:
    """A client made with the official SDK. It begins a session of its own where it needs one."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            if peer.stream is not None:
                streams = await stack.enter_async_context(sse_client(peer.origin + peer.stream))
                speaker = await stack.enter_async_context(ClientSession(*streams))
                # All clients of the SDK count from one: each would take the answers of others for its own.
                speaker._dispatcher._next_id = number * 1_000_000
                await speaker.initialize()
            else:
                auth_headers = {} if peer.token is None else {"Authorization": f"Bearer {peer.token}"}
                http = await stack.enter_async_context(create_mcp_http_client(headers=auth_headers))
                speaker = await stack.enter_async_context(
                    Client(
                        streamable_http_client(peer.url, http_client=http),
                        mode="legacy" if peer.legacy else "auto",
                    )
                )
            name, echo_arguments = peer.names[number % len(peer.names)], {"text": f"hello {number}"}

            async def ask() -> None:
                result = await speaker.call_tool(name, echo_arguments)
                if result.content[0].text != echo_arguments["text"]:
                    raise RuntimeError(f"not what was asked for: {result}")

            yield ask
    except* anyio.BrokenResourceError:
        pass  # An answer that was for others came while it closed.


async def _call(ask: Callable[[Message], Awaitable[Message]], call: Message) -> None:
    tool_reply = await ask(call)
    content = tool_reply.get("result", {}).get("content", [{}])
    if content[0].get("text") != call["params"]["arguments"]["text"]:
        raise RuntimeError(f"not what was asked for: {json.dumps(tool_reply)[:300]}")


async def _post_message(http: aiohttp.ClientSession, url: str, message: Message) -> Message:
    async with http.post(url, json=message) as answer:
        text = await answer.text()
    if answer.content_type == "text/event-stream":
        text = next(line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip())
    return json.loads(text)


async def _read_streamed_answer(
    http: aiohttp.ClientSession, url: str, stream: aiohttp.ClientResponse, message: Message
) -> Message:
    """The answer, picked from all that the stream brings."""
    async with http.post(url, json=message) as response:
        response.raise_for_status()
        await response.read()
    while (document := json.loads(await _data(stream))).get("id") != message["id"]:
        pass
    return document


async def _data(stream: aiohttp.ClientResponse) -> bytes:
    async for line in stream.content:
        if line.startswith(b"data:"):
            return line[5:]
    raise RuntimeError("the stream ended")
