"""Whether whoever asked is still there to hear the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

__all__ = ["cancel_on_disconnect"]

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to. It is cancelled when whoever asked hangs up: nobody waits for it any more.

    The body of the request must have been read.
    """
    loop = asyncio.get_running_loop()
    working, leaving = loop.create_task(work), loop.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait((working, leaving))
    raise HTTPException(400, "whoever asked has left")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
