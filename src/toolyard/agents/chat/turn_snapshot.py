"""State of a turn, computed from its events alone, so that any process can continue it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent, Kind

__all__ = ["OpenCall", "PartialAnswer", "TurnSnapshot", "call_key", "split_turns", "step_part_id"]


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result. ``yes`` is the user's answer to its approval, None while unanswered."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str
    """A string if the model did not send a JSON object."""
    approval_id: str | None = None
    approved: bool | None = None


@dataclass(slots=True)
class PartialAnswer:
    """Streamed text of a step whose answer is not complete."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class TurnSnapshot:
    """State of a turn after its events."""

    first_event: ChatEvent | None = None
    steps: int = 0
    """Number of complete model answers."""
    tokens: int = 0
    open_calls: tuple[OpenCall, ...] = ()
    """Calls without a result, in order."""
    call_counts: Counter[bytes] = field(default_factory=Counter[bytes])
    """Number of completed calls, by ``call_key``. Open calls are not counted."""
    open_question_ids: tuple[str, ...] = ()
    """Ids of unanswered questions."""
    partial_answers: Mapping[str, PartialAnswer] = field(default_factory=dict[str, PartialAnswer])
    is_ended: bool = False

    @property
    def is_manual(self) -> bool:
        """Whether the user called the tool directly, without a model."""
        return self.first_event is not None and self.first_event.kind is Kind.RUN

    @property
    def pending_approval_ids(self) -> tuple[str, ...]:
        """Ids of the unanswered approvals."""
        return tuple(
            call.approval_id
            for call in self.open_calls
            if call.approval_id is not None and call.approved is None
        )

    @classmethod
    def from_events(cls, events: Iterable[ChatEvent]) -> TurnSnapshot:
        """Return the state after these events: all events of one turn, in order."""
        builder = _SnapshotBuilder()
        for event in events:
            builder.add(event)
        return builder.build()


class _SnapshotBuilder:
    """Accumulates events, one at a time."""

    def __init__(self) -> None:
        self._first_event: ChatEvent | None = None
        self._steps = self._tokens = 0
        self._open_calls: dict[str, dict[str, Any]] = {}
        self._call_counts: Counter[bytes] = Counter()
        self._approval_ids: dict[str, str] = {}
        self._approval_answers: dict[str, bool] = {}
        self._open_question_ids: dict[str, None] = {}
        self._partial_answers: dict[str, PartialAnswer] = {}
        self._is_ended = False

    def add(self, event: ChatEvent) -> None:
        body, id = event.body, str(event.body.get("id", ""))
        if event.part and event.kind not in TRANSIENT_KINDS:
            self._partial_answers.pop(event.part, None)
        match event.kind:
            case Kind.USER | Kind.RUN:
                self._first_event = self._first_event or event
            case Kind.TEXT:
                self._partial_answers.setdefault(event.part, PartialAnswer()).text += str(
                    body.get("delta", "")
                )
            case Kind.REASONING:
                self._partial_answers.setdefault(event.part, PartialAnswer()).reasoning += str(
                    body.get("delta", "")
                )
            case Kind.MODEL_MESSAGE:
                self._steps += 1
            case Kind.CALL:
                self._open_calls[id] = dict(body)
            case Kind.RESULT:
                if (call := self._open_calls.pop(id, None)) is not None:
                    self._call_counts[call_key(call["name"], call["arguments"])] += 1
            case Kind.APPROVAL_REQUEST:
                self._approval_ids[id] = str(body.get("approval"))
            case Kind.APPROVAL_ANSWER:
                # If two answers were stored concurrently, the first one counts.
                self._approval_answers.setdefault(str(body.get("approval")), body.get("yes") is True)
            case Kind.QUESTION:
                self._open_question_ids[id] = None
            case Kind.QUESTION_ANSWER:
                self._open_question_ids.pop(id, None)
            case Kind.USAGE:
                self._tokens += int(body.get("input") or 0) + int(body.get("output") or 0)
            case Kind.END:
                self._is_ended = True
            case _:
                pass

    def build(self) -> TurnSnapshot:
        return TurnSnapshot(
            self._first_event,
            self._steps,
            self._tokens,
            tuple(self._build_open_call(id, call) for id, call in self._open_calls.items()),
            self._call_counts,
            tuple(self._open_question_ids),
            self._partial_answers,
            self._is_ended,
        )

    def _build_open_call(self, id: str, call: Mapping[str, Any]) -> OpenCall:
        approval = self._approval_ids.get(id)
        yes = None if approval is None else self._approval_answers.get(approval)
        return OpenCall(id, str(call.get("name")), call.get("arguments") or {}, approval, yes)


def call_key(name: str, arguments: object) -> bytes:
    """Return a key that is equal for equal calls, whatever the order of their arguments."""
    return orjson.dumps([name, arguments], option=orjson.OPT_SORT_KEYS)


def step_part_id(step: int) -> str:
    """Return the part id of a step's pieces. Steps count from 1 in each turn."""
    return f"step-{step}"


def split_turns(events: Iterable[ChatEvent]) -> dict[int, list[ChatEvent]]:
    """Group events by turn number, in order."""
    turns: dict[int, list[ChatEvent]] = {}
    for event in events:
        turns.setdefault(event.turn, []).append(event)
    return turns
