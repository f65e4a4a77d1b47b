"""The child process in which untrusted content is rendered, within a time limit for each request."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import orjson

from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.worker_process import WorkerProcess

__all__ = ["ChildUnavailable", "RenderingProcess"]

log = logging.getLogger("toolyard.web")

_CHILD_START_SECONDS = 60.0


class ChildUnavailable(Exception):
    """Raised if the child process cannot be started."""


class RenderingProcess:
    """A child process that is started on first use, and replaced if it ends or is stuck."""

    def __init__(self) -> None:
        self._child: WorkerProcess | None = None
        self._start_task: asyncio.Task[WorkerProcess] | None = None
        # The child handles one request at a time, and responses carry no ids.
        self._lock = asyncio.Lock()

    async def request(self, request: dict[str, Any], seconds: float) -> bytes | None:
        """Return the child's response. Return None if it failed or took too long.

        Raises ChildUnavailable.
        """
        message = _encode(request)
        async with self._lock:
            # An idle child exits after a while, so that a lost child is replaced once.
            for is_new in (self._child is None, True):
                child = await self._ensure_child()
                if child is None:
                    raise ChildUnavailable
                try:
                    async with asyncio.timeout(seconds):
                        return await child.send_request(message)
                except NativeToolError:
                    await self._end_child()
                    if is_new:
                        return None
                except TimeoutError:
                    await self._end_child()
                    return None
                except BaseException:
                    # Cancelled: the late response must not be taken for that to the next request.
                    await self._end_child()
                    raise
        return None

    async def close(self) -> None:
        """End the child process."""
        async with self._lock:
            await self._end_child()

    async def _ensure_child(self) -> WorkerProcess | None:
        """Return the child, starting it if necessary, or None if it cannot be started.

        Cancellation of the caller does not interrupt the start, which the next caller continues to await.
        """
        if self._child is None:
            if self._start_task is None:
                self._start_task = asyncio.create_task(_start_child())
            try:
                self._child = await asyncio.shield(self._start_task)
            except (NativeToolError, OSError, TimeoutError) as error:
                log.warning(
                    "Texts are shown unrendered, because the rendering process failed to start: %s", error
                )
            if self._start_task.done():
                self._start_task = None
        return self._child

    async def _end_child(self) -> None:
        start_task, self._start_task = self._start_task, None
        if start_task is not None:
            start_task.cancel()
            await asyncio.gather(start_task, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await child.__aexit__(None, None, None)


def _encode(request: dict[str, Any]) -> bytes:
    try:
        # Fast, because it runs in the event loop.
        return orjson.dumps(request)
    except TypeError:
        # Lone surrogates.
        return json.dumps(request).encode()


async def _start_child() -> WorkerProcess:
    """Start the child and wait until it has loaded its modules."""
    child = WorkerProcess("toolyard.web.rendering.worker", with_site_packages=True)
    await child.__aenter__()
    try:
        async with asyncio.timeout(_CHILD_START_SECONDS):
            await child.send_request(b"{}")
    except BaseException:
        await child.__aexit__(None, None, None)
        raise
    return child
