"""A transport wrapper that records the duration and outcome of each step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolyard.errors import ServerError
from toolyard.protocol.framing import Line
from toolyard.protocol.pending import Message
from toolyard.transports.transport import Receiver, Transport, TransportInfo

__all__ = ["TraceStep", "TracedTransport"]


@dataclass(slots=True)
class TraceStep:
    """One step. ``seconds`` is None until it has ended; ``refusal`` holds an error response."""

    name: str
    started_at: float
    seconds: float | None = None
    refusal: str | None = None
    detail: str = ""

    def end(self, refusal: str | None = None) -> None:
        """Record the end of the step."""
        if self.seconds is None:
            self.seconds, self.refusal = time.perf_counter() - self.started_at, refusal


class TracedTransport:
    """Wraps a transport and records each step, without changing anything."""

    def __init__(self, inner: Transport, steps: list[TraceStep], open_step_name: str | None) -> None:
        self._inner = inner
        self._steps = steps
        self._open_step_name = open_step_name
        self._receiver: Receiver | None = None
        self._pending_steps: dict[object, TraceStep] = {}

    @property
    def cancels_on_disconnect(self) -> bool:
        return self._inner.cancels_on_disconnect

    @property
    def mirrors_headers(self) -> bool:
        return self._inner.mirrors_headers

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._open_step_name is None:
            await self._inner.open(self)
            return
        step = self._start_step(self._open_step_name)
        await self._inner.open(self)
        step.end()
        pid = self._inner.get_info().pid
        step.detail = "" if pid is None else f"process {pid}"

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if "method" in message and "id" in message:
            self._pending_steps[message["id"]] = self._start_step(str(message["method"]))
        await self._inner.send(message, headers)

    def should_decode(self, undecoded: Line) -> bool:
        return self._receiver is not None and self._receiver.should_decode(undecoded)

    def on_message(self, message: object, size: int = 0) -> None:
        if self._receiver is not None:
            self._receiver.on_message(message, size)
        if isinstance(message, dict):
            self._on_response(cast("dict[str, Any]", message))

    def on_lost(self, error: ServerError) -> None:
        for step in self._pending_steps.values():
            step.detail = error.cause
        if self._receiver is not None:
            self._receiver.on_lost(error)

    def set_protocol_version(self, version: str, *, modern: bool) -> None:
        self._inner.set_protocol_version(version, modern=modern)

    def start_listening(self) -> None:
        self._inner.start_listening()

    def get_info(self) -> TransportInfo:
        return self._inner.get_info()

    async def close(self) -> None:
        await self._inner.close()

    def _start_step(self, name: str) -> TraceStep:
        step = TraceStep(name, time.perf_counter())
        self._steps.append(step)
        return step

    def _on_response(self, message: dict[str, Any]) -> None:
        step = self._pending_steps.pop(message.get("id"), None) if "method" not in message else None
        if step is not None:
            failure = message.get("error")
            told = cast("dict[str, Any]", failure).get("message") if isinstance(failure, dict) else None
            step.end(None if failure is None else str(told))
