"""The floors of a chat: relays that hand a model's stream on as it comes, and keep nothing.

python -m peers.relay MODEL_URL [--pydantic-ai]

``POST /`` with what to ask the model answers with its stream: the bytes as they come, or, with pydantic-ai,
what it makes of them. Prints its port as one line of JSON and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web

Pieces = Callable[[str], AsyncIterator[bytes]]


def bare(url: str, session: aiohttp.ClientSession) -> Pieces:
    """The bytes as they come."""

    async def pieces(request_text: str) -> AsyncIterator[bytes]:
        messages = [{"role": "user", "content": request_text}]
        body = {"model": "bench", "stream": True, "messages": messages}
        async with session.post(f"{url}/chat/completions", json=body) as answer:
            async for part in answer.content.iter_any():
                yield part

    return pieces


def through_pydantic_ai(url: str) -> Pieces:
    """The texts that pydantic-ai reads from the stream, which is what the loop of chats is built on."""
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("bench", provider=OpenAIProvider(base_url=url, api_key="none"))

    async def pieces(request_text: str) -> AsyncIterator[bytes]:
        async with model_request_stream(model, [ModelRequest.user_text_prompt(request_text)]) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    yield _chunk(event.part.content)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    yield _chunk(event.delta.content_delta)

    return pieces


def _chunk(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


async def serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--pydantic-ai", action="store_true")
    options = parser.parse_args()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        pieces = through_pydantic_ai(options.url) if options.pydantic_ai else bare(options.url, session)

        async def relay(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            async for piece in pieces(await request.text()):
                await response.write(piece)
            return response

        app = web.Application()
        app.router.add_post("/", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        services = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await services.start()
        print(json.dumps(runner.addresses[0][1]), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve())
