"""Cancellation of work when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

__all__ = ["cancel_on_disconnect"]

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel it and raise HTTPException if the client disconnects.

    The body of the request must have been read, because the disconnect message follows it.
    """
    loop = asyncio.get_running_loop()
    work_task, disconnect_task = loop.create_task(work), loop.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((work_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
    finally:
        for task in (work_task, disconnect_task):
            task.cancel()
        await asyncio.wait((work_task, disconnect_task))
    raise HTTPException(400, "the client disconnected")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
