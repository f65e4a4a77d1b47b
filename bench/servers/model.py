"""A model for the benchmarks: it speaks the OpenAI wire protocol and writes down when it said each word.

python -m servers.model

The last user message says how much: ``TOKENS PAUSE``, a number and seconds between two tokens. Each token is
``NUMBER@TIME`` and a blank; the time is that of a clock that all processes of a machine share. Prints its
port as one line of JSON and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from aiohttp import web

BASE = {"id": "c", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "bench"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({**BASE, "choices": [choice]}).encode() + b"\n\n"


async def completions(request: web.Request) -> web.StreamResponse:
    messages = (await request.json())["messages"]
    content = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    words = content if isinstance(content, str) else content[0]["text"]
    tokens, pause = words.split()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for number in range(int(tokens)):
        await asyncio.sleep(float(pause))
        await response.write(chunk({"role": "assistant", "content": f"{number}@{time.monotonic():.6f} "}))
    await response.write(chunk({}, "stop"))
    await response.write(b"data: " + json.dumps({**BASE, "choices": [], "usage": USAGE}).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


async def serve() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", completions)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    services = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await services.start()
    print(json.dumps(runner.addresses[0][1]), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve())
