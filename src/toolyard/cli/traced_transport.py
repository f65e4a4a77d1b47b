"""A transport that is watched: how long each step of a conversation took, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolyard.errors import ServerError
from toolyard.protocol.framing import Line
from toolyard.protocol.pending import Message
from toolyard.transports.transport import Receiver, Transport, TransportFacts

__all__ = ["Step", "Traced"]


@dataclass(slots=True)
class Step:
    """One thing that was tried. ``seconds`` is None while it has not ended; ``refusal`` is an answer that
    says no."""

    name: str
    began: float
    seconds: float | None = None
    refusal: str | None = None
    detail: str = ""

    def end(self, refusal: str | None = None) -> None:
        """It ended now."""
        if self.seconds is None:
            self.seconds, self.refusal = time.perf_counter() - self.began, refusal


class Traced:
    """Stands between a link and its transport, writes down each step and changes nothing."""

    def __init__(self, inner: Transport, steps: list[Step], opening: str | None) -> None:
        self._inner = inner
        self._steps = steps
        self._opening = opening
        self._receiver: Receiver | None = None
        self._asked: dict[object, Step] = {}

    @property
    def closing_cancels(self) -> bool:
        return self._inner.closing_cancels

    @property
    def uses_headers(self) -> bool:
        return self._inner.uses_headers

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._opening is None:
            await self._inner.open(self)
            return
        step = self._begin(self._opening)
        await self._inner.open(self)
        step.end()
        pid = self._inner.facts().pid
        step.detail = "" if pid is None else f"process {pid}"

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if "method" in message and "id" in message:
            self._asked[message["id"]] = self._begin(str(message["method"]))
        await self._inner.send(message, headers)

    def accepts(self, undecoded: Line) -> bool:
        return self._receiver is not None and self._receiver.accepts(undecoded)

    def on_message(self, message: object, size: int = 0) -> None:
        if self._receiver is not None:
            self._receiver.on_message(message, size)
        if isinstance(message, dict):
            self._answered(cast("dict[str, Any]", message))

    def on_lost(self, error: ServerError) -> None:
        for step in self._asked.values():
            step.detail = error.cause
        if self._receiver is not None:
            self._receiver.on_lost(error)

    def adopt(self, version: str, *, modern: bool) -> None:
        self._inner.adopt(version, modern=modern)

    def listen(self) -> None:
        self._inner.listen()

    def facts(self) -> TransportFacts:
        return self._inner.facts()

    async def close(self) -> None:
        await self._inner.close()

    def _begin(self, name: str) -> Step:
        step = Step(name, time.perf_counter())
        self._steps.append(step)
        return step

    def _answered(self, message: dict[str, Any]) -> None:
        step = self._asked.pop(message.get("id"), None) if "method" not in message else None
        if step is not None:
            failure = message.get("error")
            told = cast("dict[str, Any]", failure).get("message") if isinstance(failure, dict) else None
            step.end(None if failure is None else str(told))
