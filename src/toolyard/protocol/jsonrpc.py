"""JSON-RPC messages: requests in flight, their responses, and all other incoming messages by kind.

PendingRequests numbers outgoing requests, matches responses to them, and classifies everything else. It never
raises for data that the other side sent: an unknown id, a second response or a malformed message becomes an
UnprocessableMessage, which the owner may count and log.

The request id of a response that is unreadable or not worth decoding is recovered from its first and last
bytes. Without it, one broken or oversize response on a shared channel would leave its call waiting for the
timeout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

from toolyard.protocol.framing import Line, OversizeLine

__all__ = [
    "Cancellation",
    "IncomingMessage",
    "IncomingRequest",
    "Message",
    "Notification",
    "PendingRequests",
    "Progress",
    "RequestId",
    "RpcFailure",
    "RpcResponse",
    "UnprocessableMessage",
    "build_error_for_unreadable",
    "build_error_message",
    "build_failure_message",
    "build_notification",
    "build_request",
    "build_result_message",
    "has_method_first",
    "is_response_to",
    "recover_response_id",
]


RequestId: TypeAlias = int | str
Message: TypeAlias = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class RpcFailure:
    """A JSON-RPC error. Code 0 stands for a malformed response, which has no error code."""

    code: int
    message: str
    data: Any = None


@dataclass(slots=True)
class RpcResponse(Generic[T]):
    """Response to the request registered with ``token``: a result or a failure."""

    token: T
    result: dict[str, Any] | None
    failure: RpcFailure | None = None


@dataclass(slots=True)
class Progress(Generic[T]):
    """Progress notification for the request registered with ``token``."""

    token: T
    params: dict[str, Any]


@dataclass(slots=True)
class IncomingRequest:
    """Request from the other side, to be answered with the same ``id``."""

    id: RequestId
    method: str
    params: dict[str, Any]
    is_echo: bool = False
    """True if the other side echoed a request of ours."""


@dataclass(slots=True)
class Notification:
    """Notification other than progress and cancellation."""

    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class Cancellation:
    """Cancellation of the other side's request ``id``, or the end of our subscription with that id."""

    id: RequestId
    reason: str | None


@dataclass(slots=True)
class UnprocessableMessage:
    """Message that cannot be processed, with the reason."""

    reason: str
    response_id: int | None = None
    """Id of the request that it answers, if it is a response to one that is not in flight any more."""


IncomingMessage: TypeAlias = (
    RpcResponse[T] | Progress[T] | IncomingRequest | Notification | Cancellation | UnprocessableMessage
)


def build_request(id: RequestId, method: str, params: dict[str, Any] | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def build_notification(method: str, params: dict[str, Any] | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def build_result_message(id: RequestId, result: dict[str, Any]) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def build_error_message(id: RequestId | None, code: int, message: str, data: Any = None) -> Message:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def build_failure_message(id: RequestId | None, failure: RpcFailure) -> Message:
    return build_error_message(id, failure.code, failure.message, failure.data)


def is_response_to(message: object, id: RequestId) -> bool:
    """Return True if a message is the response to the request with this id."""
    if type(message) is not dict:
        return False
    body = cast("Message", message)
    return ("result" in body or "error" in body) and "method" not in body and _is_same_id(body.get("id"), id)


def _is_same_id(theirs: object, ours: RequestId) -> bool:
    # Some servers return a numeric id as a string.
    return (theirs == ours and type(theirs) is type(ours)) or (type(theirs) is str and theirs == str(ours))


class PendingRequests(Generic[T]):
    """Requests in flight of one side of a connection. ``T`` is the owner's data for each request."""

    __slots__ = ("_last_id", "_pending")

    def __init__(self) -> None:
        self._pending: dict[int, tuple[T, str]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._pending)

    def tokens(self) -> list[T]:
        """Return the tokens of all requests in flight."""
        return [token for token, _ in self._pending.values()]

    def register(self, token: T, method: str) -> int:
        """Return a new id; its response and progress are matched to ``token``."""
        # Ids are never reused within a session (JSON-RPC, and MCP Requests), so that a late response to a
        # cancelled request cannot be taken for that of a newer one.
        self._last_id += 1
        self._pending[self._last_id] = (token, method)
        return self._last_id

    @property
    def next_id(self) -> int:
        """The id that ``register`` returns next."""
        return self._last_id + 1

    def is_pending(self, id: int) -> bool:
        """Return True if the request with this id has not been answered yet."""
        return id in self._pending

    def discard(self, id: int) -> bool:
        """Forget a request. Return False if it was answered already or never registered."""
        return self._pending.pop(id, None) is not None

    def receive(self, message: object) -> IncomingMessage[T]:
        """Classify one decoded message and complete the request that it answers. Never raises."""
        if type(message) is not dict:
            return UnprocessableMessage("a JSON value that is not an object")
        body = cast("Message", message)
        method = body.get("method")
        if method is None:
            return self._classify_response(body)
        if type(method) is not str:
            return UnprocessableMessage("a method that is not a string")
        params = body.get("params")
        if params is None:
            params = {}
        elif type(params) is not dict:
            return UnprocessableMessage(f"{_describe_value(method)}: params are not an object")
        if "id" in body:
            return self._classify_request(body["id"], method, cast("dict[str, Any]", params))
        return self._classify_notification(method, cast("dict[str, Any]", params))

    def _classify_response(self, body: Message) -> IncomingMessage[T]:
        id = body.get("id")
        # Accept a numeric id that comes back as a string (see _is_same_id).
        if type(id) is str and id.isascii() and id.isdigit() and len(id) < 19:
            id = int(id)
        # Late responses to requests that timed out or were cancelled end here, too. They are normal: the
        # specification (Cancellation) warns that a response may cross its cancellation.
        if type(id) is not int or id not in self._pending:
            reason = f"a response to {_describe_value(id)}, which is not in flight"
            return UnprocessableMessage(reason, id if type(id) is int else None)
        # A null result beside an error does not count as a result.
        if "result" in body and (body["result"] is not None or "error" not in body):
            result = body["result"]
            token, method = self._pending.pop(id)
            # The request is completed with a failure rather than skipped: its caller would wait for the
            # timeout.
            if type(result) is not dict:
                return RpcResponse(token, None, RpcFailure(0, f"{method}: the result is not an object"))
            return RpcResponse(token, cast("dict[str, Any]", result))
        if "error" in body:
            token, _ = self._pending.pop(id)
            return RpcResponse(token, None, parse_rpc_failure(body["error"]))
        return UnprocessableMessage(f"a response to {id!r} with neither result nor error")

    def _classify_request(self, id: object, method: str, params: dict[str, Any]) -> IncomingMessage[T]:
        if type(id) is not int and type(id) is not str:
            return UnprocessableMessage(f"{_describe_value(method)}: an id that is neither number nor string")
        # An echo has the id and the method of one of our own requests. A legacy server numbers its requests
        # independently, so an equal id alone proves nothing.
        own_request = self._pending.get(id) if type(id) is int else None
        is_echo = own_request is not None and own_request[1] == method
        return IncomingRequest(id, method, params, is_echo=is_echo)

    def _classify_notification(self, method: str, params: dict[str, Any]) -> IncomingMessage[T]:
        if method == "notifications/progress":
            token = params.get("progressToken")
            own_request = self._pending.get(token) if type(token) is int else None
            if own_request is None:
                return UnprocessableMessage(f"progress of {_describe_value(token)}, which is not in flight")
            return Progress(own_request[0], params)
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if type(id) is not int and type(id) is not str:
                return UnprocessableMessage("a cancellation without a request id")
            reason = params.get("reason")
            return Cancellation(id, reason if type(reason) is str else None)
        return Notification(method, params)


def parse_rpc_failure(error: object) -> RpcFailure:
    """Convert a JSON-RPC error of any shape."""
    if type(error) is not dict:
        return RpcFailure(0, f"an error that is not an object: {_describe_value(error)}")
    body = cast("dict[str, Any]", error)
    code, message = body.get("code"), body.get("message")
    return RpcFailure(
        code if type(code) is int else 0,
        message if type(message) is str and message else "no message",
        body.get("data"),
    )


def _describe_value(value: object) -> str:
    # Containers are described by their type: repr() of a deeply nested value raises RecursionError.
    if type(value) is str:
        return repr(value[:200])
    return repr(value)[:200] if value is None or isinstance(value, int | float) else type(value).__name__


_EDGE_BYTES = 200
"""Number of bytes inspected at each end. Libraries write the id directly before or after the result."""
_VERSION_PATTERN = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_PATTERN = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_OUTCOME_PATTERN = rb'"(?:result|error)"'
# The forms that known libraries write: the id before the outcome, or the outcome first and the id last.
_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b"
    % (_VERSION_PATTERN, _ID_PATTERN, _VERSION_PATTERN, _OUTCOME_PATTERN)
)
_OUTCOME_FIRST = re.compile(rb"\s*\{\s*(?:%b,\s*)?%b" % (_VERSION_PATTERN, _OUTCOME_PATTERN))
_METHOD_FIRST = re.compile(
    rb'\s*\{\s*(?:%b,\s*)?(?:"id"\s*:[^,{}\[\]]{1,100},\s*)?"method"\s*:' % _VERSION_PATTERN
)
_ID_LAST = re.compile(rb",\s*%b(?:,\s*%b)?\}\s*$" % (_ID_PATTERN, _VERSION_PATTERN))


def build_error_for_unreadable(line: Line, cause: str) -> Message | None:
    """Return an error message for the one call that an unreadable message answers, or None if it does not
    look like a response. Only its ends are inspected: its content may contain other ids."""
    id = recover_response_id(line)
    return None if id is None else build_error_message(id, 0, cause)


def recover_response_id(line: Line) -> int | None:
    """Return the id of the request that an undecoded message answers, or None if its ends do not show it."""
    head, tail = _take_edges(line)
    match = _ID_FIRST.match(head)
    if match is None and _OUTCOME_FIRST.match(head):
        match = _ID_LAST.search(tail)
    return None if match is None else int(match[1])


def has_method_first(line: Line) -> bool:
    """Return True if an undecoded message begins with a method, so it is not a response."""
    return _METHOD_FIRST.match(_take_edges(line)[0]) is not None


def _take_edges(line: Line) -> tuple[bytes, bytes]:
    if isinstance(line, OversizeLine):
        return line.head[:_EDGE_BYTES], line.tail[-_EDGE_BYTES:]
    return bytes(line[:_EDGE_BYTES]), bytes(line[-_EDGE_BYTES:])
