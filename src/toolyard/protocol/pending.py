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
    "Answer",
    "Asked",
    "Cancelled",
    "Event",
    "Exchange",
    "Failure",
    "Id",
    "Message",
    "Progressed",
    "Stray",
    "Told",
    "error_message",
    "is_answer",
    "notification",
    "request",
    "result_message",
]

Id: TypeAlias = int | str
Message: TypeAlias = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class Failure:
    """A JSON-RPC error as it was sent."""

    code: int
    message: str
    data: Any = None


@dataclass(slots=True)
class Answer(Generic[T]):
    """The answer to what we asked under ``token``: a result, or a failure."""

    token: T
    result: dict[str, Any] | None
    failure: Failure | None = None


@dataclass(slots=True)
class Progressed(Generic[T]):
    """The other side is still working on what we asked under ``token``."""

    token: T
    params: dict[str, Any]


@dataclass(slots=True)
class Asked:
    """The other side asks us something and waits for an answer under ``id``."""

    id: Id
    method: str
    params: dict[str, Any]
    echo: bool = False
    """It is our own request coming back: the other side repeats what it reads."""


@dataclass(slots=True)
class Told:
    """A notification."""

    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class Cancelled:
    """The other side no longer wants what it asked under ``id``, or ends our subscription of that id."""

    id: Id
    reason: str | None


@dataclass(slots=True)
class Stray:
    """Nothing that belongs anywhere; ``reason`` says why."""

    reason: str


Event: TypeAlias = Answer[T] | Progressed[T] | Asked | Told | Cancelled | Stray


def request(id: Id, method: str, params: dict[str, Any] | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def notification(method: str, params: dict[str, Any] | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def result_message(id: Id, result: dict[str, Any]) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_message(id: Id | None, code: int, message: str, data: Any = None) -> Message:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def is_answer(message: object, id: Id) -> bool:
    """Whether this is the answer to the request of that id."""
    if type(message) is not dict:
        return False
    body = cast("Message", message)
    return ("result" in body or "error" in body) and "method" not in body and _same(body.get("id"), id)


def _same(theirs: object, ours: Id) -> bool:
    # Some servers send the id back as a string of the number that they were given.
    return (theirs == ours and type(theirs) is type(ours)) or (type(theirs) is str and theirs == str(ours))


class Exchange(Generic[T]):
    """One side of a conversation. ``T`` is what the owner files under each of its requests."""

    __slots__ = ("_asked", "_last")

    def __init__(self) -> None:
        self._asked: dict[int, tuple[T, str]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._asked)

    def tokens(self) -> list[T]:
        """What is in flight."""
        return [token for token, _ in self._asked.values()]

    def ask(self, token: T, method: str) -> int:
        """A fresh id, under which an answer or progress will be matched to ``token``."""
        self._last += 1
        self._asked[self._last] = (token, method)
        return self._last

    def awaits(self, id: int) -> bool:
        """Return whether the answer to the request of that id has not come yet."""
        return id in self._asked

    def forget(self, id: int) -> bool:
        """No longer wait for that answer. False if it had come, or was never asked."""
        return self._asked.pop(id, None) is not None

    def receive_all(self, message: object) -> Iterator[Event[T]]:
        """The events of a message, or of each message of a batch."""
        if isinstance(message, list):
            for part in cast("list[object]", message):
                yield self.receive(part)
        else:
            yield self.receive(message)

    def receive(self, message: object) -> Event[T]:
        """Sort one decoded message. Never raises."""
        if type(message) is not dict:
            return Stray("a JSON value that is no object")
        body = cast("Message", message)
        method = body.get("method")
        if method is None:
            return self._answer(body)
        if type(method) is not str:
            return Stray("a method that is no string")
        params = body.get("params")
        if params is None:
            params = {}
        elif type(params) is not dict:
            return Stray(f"{_brief(method)}: params that are no object")
        if "id" in body:
            return self._request(body["id"], method, cast("dict[str, Any]", params))
        return self._notification(method, cast("dict[str, Any]", params))

    def _answer(self, body: Message) -> Event[T]:
        id = body.get("id")
        if type(id) is str and id.isascii() and id.isdigit() and len(id) < 19:
            id = int(id)
        if type(id) is not int or id not in self._asked:
            return Stray(f"an answer to {_brief(id)}, which is not in flight")
        if "result" in body and (body["result"] is not None or "error" not in body):
            result = body["result"]
            token, method = self._asked.pop(id)
            if type(result) is not dict:
                return Answer(token, None, Failure(0, f"{method}: the result is no object"))
            return Answer(token, cast("dict[str, Any]", result))
        if "error" in body:
            token, _ = self._asked.pop(id)
            return Answer(token, None, read_failure(body["error"]))
        return Stray(f"an answer to {id!r} with neither result nor error")

    def _request(self, id: object, method: str, params: dict[str, Any]) -> Event[T]:
        if type(id) is not int and type(id) is not str:
            return Stray(f"{_brief(method)}: an id that is neither number nor string")
        mine = self._asked.get(id) if type(id) is int else None
        return Asked(id, method, params, echo=mine is not None and mine[1] == method)

    def _notification(self, method: str, params: dict[str, Any]) -> Event[T]:
        if method == "notifications/progress":
            token = params.get("progressToken")
            mine = self._asked.get(token) if type(token) is int else None
            if mine is None:
                return Stray(f"progress of {_brief(token)}, which is not in flight")
            return Progressed(mine[0], params)
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if type(id) is not int and type(id) is not str:
                return Stray("a cancellation without a request id")
            reason = params.get("reason")
            return Cancelled(id, reason if type(reason) is str else None)
        return Told(method, params)


def read_failure(error: object) -> Failure:
    """A JSON-RPC error, whatever its shape."""
    if type(error) is not dict:
        return Failure(0, f"an error that is no object: {_brief(error)}")
    body = cast("dict[str, Any]", error)
    code, message = body.get("code"), body.get("message")
    return Failure(
        code if type(code) is int else 0,
        message if type(message) is str and message else "no message",
        body.get("data"),
    )


def _brief(value: object) -> str:
    # What nests is named only by its type: repr() of a deep value raises RecursionError.
    if type(value) is str:
        return repr(value[:200])
    return repr(value)[:200] if value is None or isinstance(value, int | float) else type(value).__name__
