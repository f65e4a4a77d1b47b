"""A conversation over one channel that carries everything, such as standard streams: both eras at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeGuard, cast

from toolyard.gateway.client_request import Request, Tell, as_object, mirrored
from toolyard.gateway.endpoint import Front
from toolyard.gateway.error_responses import Refusal
from toolyard.gateway.legacy_session import Session
from toolyard.protocol.constants import INVALID_REQUEST, PARSE_ERROR
from toolyard.protocol.pending import Failure, Id, Message, error_message, result_message
from toolyard.protocol.server import Rejected, is_modern, read_modern

__all__ = ["Channel"]

log = logging.getLogger("toolyard.gateway")

_MOST = 1000
"""Requests that are answered at the same time."""


class Channel:
    """One client behind one channel. Messages go in by ``receive``, and out by ``tell``."""

    def __init__(self, front: Front, tell: Tell) -> None:
        self._front = front
        self._tell = tell
        self._session: Session | None = None
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._listening: set[Id] = set()

    def unreadable(self) -> None:
        """Something came that is no JSON, or too long."""
        self._fail(None, PARSE_ERROR, "Parse error")

    def receive(self, message: object) -> None:
        """One decoded message, or a batch of them, as old revisions allow. Never raises."""
        for each in cast("list[object]", message) if isinstance(message, list) else (message,):
            self._receive(as_object(each))

    def _receive(self, body: Message) -> None:
        method, id = body.get("method"), body.get("id")
        if method is None and ("result" in body or "error" in body):
            if self._session is not None:
                self._session.answered(body)
            return
        params = body.get("params")
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            self._fail(id if _is_id(id) else None, INVALID_REQUEST, "Invalid request")
        elif "id" not in body:
            self._told(method, as_object(body.get("params")))
        elif not _is_id(id):
            self._fail(None, INVALID_REQUEST, "Invalid request: id is neither number nor string")
        elif id in self._running or len(self._running) >= _MOST:
            self._fail(id, INVALID_REQUEST, "Invalid request: the id is in use, or too many are running")
        else:
            task = asyncio.get_running_loop().create_task(self._answer(id, method, body))
            self._running[id] = task

    async def _answer(self, id: Id, method: str, body: Message) -> None:
        request: Request | None = None
        try:
            read = self._read(method, body)
            if isinstance(read, Failure):
                self._fail(id, read.code, read.message, read.data)
                return
            request = read
            if request.session is not None:
                request.session.requests.append(request)
            self._tell(await self._outcome(id, request))
        finally:
            self._running.pop(id, None)
            self._listening.discard(id)
            if request is not None:
                request.over = True
                if request.session is not None:
                    request.session.requests.remove(request)

    def _read(self, method: str, body: Message) -> Request | Failure:
        params = as_object(body.get("params"))
        if not is_modern(body):
            token = as_object(params.get("_meta")).get("progressToken")
            return Request(
                method,
                params,
                False,
                self._tell,
                progress_token=token if _is_id(token) else None,
                session=self._session,
            )
        caller = read_modern(body)
        if isinstance(caller, Rejected):
            return caller.failure
        return Request(
            method,
            params,
            True,
            self._tell,
            mirrored(caller.capabilities),
            caller.log_level,
            caller.progress_token,
        )

    async def _outcome(self, id: Id, request: Request) -> Message:
        if request.modern and request.method == "subscriptions/listen":
            self._listening.add(id)
            try:
                return result_message(id, await self._front.listen(id, request))
            except Refusal as refusal:
                failure = refusal.failure
                return error_message(id, failure.code, failure.message, failure.data)
        if not request.modern and request.method == "initialize":
            result, session = await self._front.initialize(request.params)
            before, self._session = self._session, session
            self._front.attend(session, self._tell)
            if before is not None:
                await self._front.leave(before)
            return result_message(id, result)
        return await self._front.respond(id, request)

    def _told(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if _is_id(id) and (task := self._running.get(id)) is not None:
                task.cancel()
        elif method == "notifications/roots/list_changed" and self._session is not None:
            for lane in self._front.gateway.parts.manager.lanes(self._session.key):
                lane.notify(method)

    def _fail(self, id: Id | None, code: int, message: str, data: object = None) -> None:
        self._tell(error_message(id, code, message, data))

    async def finish(self, seconds: float) -> None:
        """Nothing more comes: answer what was asked, within so long. None waits for who only listens."""
        asked = [task for id, task in self._running.items() if id not in self._listening]
        if asked:
            await asyncio.wait(asked, timeout=seconds)

    async def close(self) -> None:
        """The client is gone: end what runs for it."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._front.leave(self._session)


def _is_id(value: object) -> TypeGuard[Id]:
    return isinstance(value, int | str) and not isinstance(value, bool)
