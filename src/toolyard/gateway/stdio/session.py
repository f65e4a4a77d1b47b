"""A client on one channel that carries all messages, such as standard streams, in both protocol eras."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from toolyard.concurrency.tasks import cancel_tasks
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.incoming_request import (
    ClientRequest,
    LegacySession,
    SendToClient,
    build_session_request,
    is_request_id,
    parse_stateless_request,
)
from toolyard.gateway.subscriptions import LIST_CHANGED_KINDS
from toolyard.protocol.constants import INVALID_REQUEST, PARSE_ERROR
from toolyard.protocol.eras import detect_era
from toolyard.protocol.jsonrpc import (
    Message,
    RequestId,
    RpcFailure,
    build_error_message,
    build_failure_message,
    build_notification,
    build_result_message,
)
from toolyard.protocol.server import RequestRejection
from toolyard.types.json_values import object_or_empty

__all__ = ["StdioSession"]

log = logging.getLogger("toolyard.gateway")

_MAX_RUNNING_REQUESTS = 1000
"""Maximum number of concurrent requests."""


class StdioSession:
    """One client on one channel. ``receive`` handles incoming messages."""

    def __init__(
        self,
        endpoint: Endpoint,
        send_to_client: SendToClient,
        on_request_end: Callable[[RequestId], None] | None = None,
    ) -> None:
        """``on_request_end`` is called after each request, also for one that was cancelled."""
        self._endpoint = endpoint
        self._send_to_client = send_to_client
        self._on_request_end = on_request_end
        self._session: LegacySession | None = None
        self._running_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._listen_ids: set[RequestId] = set()

    @property
    def is_busy(self) -> bool:
        """True while a request runs, except those that only listen."""
        return len(self._running_tasks) > len(self._listen_ids)

    def skip_blank(self) -> None:
        """Ignore a line without a message."""

    def notify_lists_changed(self) -> None:
        """Notify the client that everything may have changed, as after a restart."""
        if self._session is not None:
            for method in LIST_CHANGED_KINDS:
                self._session.notify(build_notification(method, {}))

    def reject_unreadable(self) -> None:
        """Answer input that is not JSON, or too long, with a parse error."""
        self._send_error(None, PARSE_ERROR, "Parse error")

    def receive(self, message: object) -> None:
        """Handle one decoded message, or a batch as old revisions allow. Never raises."""
        for each in cast("list[object]", message) if isinstance(message, list) else (message,):
            self._handle_message(object_or_empty(each))

    def _handle_message(self, body: Message) -> None:
        method, id = body.get("method"), body.get("id")
        if method is None and ("result" in body or "error" in body):
            if self._session is not None:
                self._session.receive_response(body)
            return
        params = body.get("params")
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            self._send_error(id if is_request_id(id) else None, INVALID_REQUEST, "Invalid request")
        elif "id" not in body:
            self._handle_notification(method, object_or_empty(body.get("params")))
        elif not is_request_id(id):
            self._send_error(
                None, INVALID_REQUEST, "Invalid request: the id is neither a number nor a string"
            )
        # Two requests with one id could be neither cancelled nor answered apart.
        elif id in self._running_tasks or len(self._running_tasks) >= _MAX_RUNNING_REQUESTS:
            self._send_error(
                id, INVALID_REQUEST, "Invalid request: the id is in use, or too many requests are running"
            )
        else:
            task = asyncio.get_running_loop().create_task(self._answer_request(id, body))
            self._running_tasks[id] = task

    async def _answer_request(self, id: RequestId, body: Message) -> None:
        request: ClientRequest | None = None
        try:
            read = self._parse_request(body)
            if isinstance(read, RpcFailure):
                self._send_to_client(build_failure_message(id, read))
                return
            request = read
            if request.session is not None:
                request.session.active_requests.append(request)
            self._send_to_client(await self._handle_request(id, request))
        finally:
            if request is not None:
                request.is_finished = True
                if request.session is not None:
                    request.session.active_requests.remove(request)
            self._end_request(id)

    def _end_request(self, id: RequestId) -> None:
        del self._running_tasks[id]
        self._listen_ids.discard(id)
        if self._on_request_end is not None:
            self._on_request_end(id)

    def _parse_request(self, body: Message) -> ClientRequest | RpcFailure:
        era = detect_era(body)
        if era.has_sessions:
            return build_session_request(body, era, self._session, self._send_to_client)
        request = parse_stateless_request(body, era, self._send_to_client)
        if isinstance(request, RequestRejection):
            return request.failure
        if self._session is None and (sole := self._endpoint.gateway.sole_client) is not None:
            sole.declare(request.capabilities)
        return request

    async def _handle_request(self, id: RequestId, request: ClientRequest) -> Message:
        if request.method == "subscriptions/listen" and request.era.subscribes_by_request:
            self._listen_ids.add(id)
            try:
                return build_result_message(id, await self._endpoint.listen(id, request))
            except RpcErrorResponse as refusal:
                return build_failure_message(id, refusal.failure)
        if request.method == "initialize" and request.era.has_sessions:
            result, session = await self._endpoint.initialize(request.params)
            # A client may initialize again on the same streams. The new session is in place before the old
            # one ends, which takes a while.
            before, self._session = self._session, session
            self._endpoint.subscribe_session(session, self._send_to_client)
            if before is not None:
                await self._endpoint.end_session(before)
            return build_result_message(id, result)
        return await self._endpoint.respond(id, request)

    def _handle_notification(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if is_request_id(id) and (task := self._running_tasks.get(id)) is not None:
                # The task ends without a response, as the specification asks. One that has not begun, as when
                # both messages arrive together, never enters its ``finally``.
                task.cancel()
                task.add_done_callback(lambda ended: self._on_cancelled(id, ended))
        elif method == "notifications/roots/list_changed" and self._session is not None:
            self._endpoint.gateway.manager.notify_roots_changed(self._session.key)

    def _on_cancelled(self, id: RequestId, task: asyncio.Task[None]) -> None:
        # The id may belong to a later request by now.
        if self._running_tasks.get(id) is task:
            self._end_request(id)

    def _send_error(self, id: RequestId | None, code: int, message: str) -> None:
        self._send_to_client(build_error_message(id, code, message))

    async def finish(self, timeout_seconds: float) -> None:
        """Answer the remaining requests within a time limit, after the input has ended. Listening requests
        are not awaited."""
        asked = [task for id, task in self._running_tasks.items() if id not in self._listen_ids]
        if asked:
            await asyncio.wait(asked, timeout=timeout_seconds)

    async def close(self) -> None:
        """Cancel everything that runs for the client."""
        await cancel_tasks(self._running_tasks.values())
        if self._session is not None:
            await self._endpoint.end_session(self._session)
