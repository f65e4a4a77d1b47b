"""Requests in flight and the answers that belong to them, in both directions.

An :class:`Exchange` numbers what we ask, matches what comes back, and sorts everything else into
events. It never raises for what the other side sent: an unknown id, a second answer or a message of
no known shape becomes a :class:`Stray`, which the owner may count and log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

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
    "UnmatchedResponse",
    "build_error_message",
    "build_notification",
    "build_request",
    "build_result_message",
    "is_response_to",
]

RequestId: TypeAlias = int | str
Message: TypeAlias = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class RpcFailure:
    """A JSON-RPC error as it was sent."""

    code: int
    message: str
    data: Any = None


@dataclass(slots=True)
class RpcResponse(Generic[T]):
    """The answer to what we asked under ``token``: a result, or a failure."""

    token: T
    result: dict[str, Any] | None
    failure: RpcFailure | None = None


@dataclass(slots=True)
class Progress(Generic[T]):
    """The other side is still working on what we asked under ``token``."""

    token: T
    params: dict[str, Any]


@dataclass(slots=True)
class IncomingRequest:
    """The other side asks us something and waits for an answer under ``id``."""

    id: RequestId
    method: str
    params: dict[str, Any]
    is_echo: bool = False
    """It is our own request coming back: the other side repeats what it reads."""


@dataclass(slots=True)
class Notification:
    """A notification."""

    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class Cancellation:
    """The other side no longer wants what it asked under ``id``, or ends our subscription of that id."""

    id: RequestId
    reason: str | None


@dataclass(slots=True)
class UnmatchedResponse:
    """Nothing that belongs anywhere; ``reason`` says why."""

    reason: str


IncomingMessage: TypeAlias = (
    RpcResponse[T] | Progress[T] | IncomingRequest | Notification | Cancellation | UnmatchedResponse
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


def is_response_to(message: object, id: RequestId) -> bool:
    """Whether this is the answer to the request of that id."""
    if type(message) is not dict:
        return False
    body = cast("Message", message)
    return ("result" in body or "error" in body) and "method" not in body and _is_same_id(body.get("id"), id)


def _is_same_id(theirs: object, ours: RequestId) -> bool:
    # Some servers send the id back as a string of the number that they were given.
    return (theirs == ours and type(theirs) is type(ours)) or (type(theirs) is str and theirs == str(ours))


class PendingRequests(Generic[T]):
    """One side of a conversation. ``T`` is what the owner files under each of its requests."""

    __slots__ = ("_last_id", "_pending")

    def __init__(self) -> None:
        self._pending: dict[int, tuple[T, str]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._pending)

    def tokens(self) -> list[T]:
        """What is in flight."""
        return [token for token, _ in self._pending.values()]

    def register(self, token: T, method: str) -> int:
        """A fresh id, under which an answer or progress will be matched to ``token``."""
        self._last_id += 1
        self._pending[self._last_id] = (token, method)
        return self._last_id

    def is_pending(self, id: int) -> bool:
        """Return whether the answer to the request of that id has not come yet."""
        return id in self._pending

    def discard(self, id: int) -> bool:
        """No longer wait for that answer. False if it had come, or was never asked."""
        return self._pending.pop(id, None) is not None

    def receive_all(self, message: object) -> Iterator[IncomingMessage[T]]:
        """The events of a message, or of each message of a batch."""
        if isinstance(message, list):
            for part in cast("list[object]", message):
                yield self.receive(part)
        else:
            yield self.receive(message)

    def receive(self, message: object) -> IncomingMessage[T]:
        """Sort one decoded message. Never raises."""
        if type(message) is not dict:
            return UnmatchedResponse("a JSON value that is no object")
        body = cast("Message", message)
        method = body.get("method")
        if method is None:
            return self._classify_response(body)
        if type(method) is not str:
            return UnmatchedResponse("a method that is no string")
        params = body.get("params")
        if params is None:
            params = {}
        elif type(params) is not dict:
            return UnmatchedResponse(f"{_describe_value(method)}: params that are no object")
        if "id" in body:
            return self._classify_request(body["id"], method, cast("dict[str, Any]", params))
        return self._classify_notification(method, cast("dict[str, Any]", params))

    def _classify_response(self, body: Message) -> IncomingMessage[T]:
        id = body.get("id")
        if type(id) is str and id.isascii() and id.isdigit() and len(id) < 19:
            id = int(id)
        if type(id) is not int or id not in self._pending:
            return UnmatchedResponse(f"an answer to {_describe_value(id)}, which is not in flight")
        if "result" in body and (body["result"] is not None or "error" not in body):
            result = body["result"]
            token, method = self._pending.pop(id)
            if type(result) is not dict:
                return RpcResponse(token, None, RpcFailure(0, f"{method}: the result is no object"))
            return RpcResponse(token, cast("dict[str, Any]", result))
        if "error" in body:
            token, _ = self._pending.pop(id)
            return RpcResponse(token, None, parse_rpc_failure(body["error"]))
        return UnmatchedResponse(f"an answer to {id!r} with neither result nor error")

    def _classify_request(self, id: object, method: str, params: dict[str, Any]) -> IncomingMessage[T]:
        if type(id) is not int and type(id) is not str:
            return UnmatchedResponse(f"{_describe_value(method)}: an id that is neither number nor string")
        mine = self._pending.get(id) if type(id) is int else None
        return IncomingRequest(id, method, params, is_echo=mine is not None and mine[1] == method)

    def _classify_notification(self, method: str, params: dict[str, Any]) -> IncomingMessage[T]:
        if method == "notifications/progress":
            token = params.get("progressToken")
            mine = self._pending.get(token) if type(token) is int else None
            if mine is None:
                return UnmatchedResponse(f"progress of {_describe_value(token)}, which is not in flight")
            return Progress(mine[0], params)
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if type(id) is not int and type(id) is not str:
                return UnmatchedResponse("a cancellation without a request id")
            reason = params.get("reason")
            return Cancellation(id, reason if type(reason) is str else None)
        return Notification(method, params)


def parse_rpc_failure(error: object) -> RpcFailure:
    """A JSON-RPC error, whatever its shape."""
    if type(error) is not dict:
        return RpcFailure(0, f"an error that is no object: {_describe_value(error)}")
    body = cast("dict[str, Any]", error)
    code, message = body.get("code"), body.get("message")
    return RpcFailure(
        code if type(code) is int else 0,
        message if type(message) is str and message else "no message",
        body.get("data"),
    )


def _describe_value(value: object) -> str:
    # What nests is named only by its type: repr() of a deep value raises RecursionError.
    if type(value) is str:
        return repr(value[:200])
    return repr(value)[:200] if value is None or isinstance(value, int | float) else type(value).__name__
