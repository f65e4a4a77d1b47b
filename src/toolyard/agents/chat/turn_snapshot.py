"""How far a turn is, read from its events alone: whoever continues it needs to know nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from toolyard.types.chat import PIECES, Event, Kind

__all__ = ["OpenCall", "Piece", "Standing", "call_key", "split_turns", "step_part"]


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result. ``yes``: what the person answered, None where nothing yet."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str
    """A text where the model sent no JSON object."""
    approval: str | None = None
    yes: bool | None = None


@dataclass(slots=True)
class Piece:
    """What arrived of a step whose answer is not whole."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """A turn as its events tell it."""

    began: Event | None = None
    steps: int = 0
    """Answers of the model so far."""
    tokens: int = 0
    calls: tuple[OpenCall, ...] = ()
    """Those that have no result, in their order."""
    made: Counter[bytes] = field(default_factory=Counter[bytes])
    """How often each call was asked for, by its key, those that are open left out."""
    questions: tuple[str, ...] = ()
    """Ids of questions that nobody answered."""
    pieces: Mapping[str, Piece] = field(default_factory=dict[str, Piece])
    ended: bool = False

    @property
    def by_hand(self) -> bool:
        """Whether the person called the tool, without a model."""
        return self.began is not None and self.began.kind is Kind.RUN

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of the approvals that it waits for."""
        return tuple(call.approval for call in self.calls if call.approval is not None and call.yes is None)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Standing:
        """The standing after these events, which are all those of one turn, in order."""
        reading = _Reading()
        for event in events:
            reading.read(event)
        return reading.standing()


class _Reading:
    """Events, read one by one."""

    def __init__(self) -> None:
        self._began: Event | None = None
        self._steps = self._tokens = 0
        self._calls: dict[str, dict[str, Any]] = {}
        self._made: Counter[bytes] = Counter()
        self._asks: dict[str, str] = {}
        self._answers: dict[str, bool] = {}
        self._questions: dict[str, None] = {}
        self._pieces: dict[str, Piece] = {}
        self._ended = False

    def read(self, event: Event) -> None:
        body, id = event.body, str(event.body.get("id", ""))
        if event.part and event.kind not in PIECES:
            self._pieces.pop(event.part, None)
        match event.kind:
            case Kind.USER | Kind.RUN:
                self._began = self._began or event
            case Kind.TEXT:
                self._pieces.setdefault(event.part, Piece()).text += str(body.get("delta", ""))
            case Kind.REASONING:
                self._pieces.setdefault(event.part, Piece()).reasoning += str(body.get("delta", ""))
            case Kind.SAID:
                self._steps += 1
            case Kind.CALL:
                self._calls[id] = dict(body)
            case Kind.RESULT:
                if (call := self._calls.pop(id, None)) is not None:
                    self._made[call_key(call["name"], call["arguments"])] += 1
            case Kind.ASK:
                self._asks[id] = str(body.get("approval"))
            case Kind.ANSWER:
                # Of two answers at once, the first one counts.
                self._answers.setdefault(str(body.get("approval")), body.get("yes") is True)
            case Kind.QUESTION:
                self._questions[id] = None
            case Kind.ANSWERED:
                self._questions.pop(id, None)
            case Kind.USAGE:
                self._tokens += int(body.get("input") or 0) + int(body.get("output") or 0)
            case Kind.END:
                self._ended = True
            case _:
                pass

    def standing(self) -> Standing:
        return Standing(
            self._began,
            self._steps,
            self._tokens,
            tuple(self._open(id, call) for id, call in self._calls.items()),
            self._made,
            tuple(self._questions),
            self._pieces,
            self._ended,
        )

    def _open(self, id: str, call: Mapping[str, Any]) -> OpenCall:
        approval = self._asks.get(id)
        yes = None if approval is None else self._answers.get(approval)
        return OpenCall(id, str(call.get("name")), call.get("arguments") or {}, approval, yes)


def call_key(name: str, arguments: object) -> bytes:
    """The same for the same call, in whatever order its arguments stand."""
    return orjson.dumps([name, arguments], option=orjson.OPT_SORT_KEYS)


def step_part(step: int) -> str:
    """The part that pieces of a step belong to; steps count from 1 in each turn."""
    return f"step-{step}"


def split_turns(events: Iterable[Event]) -> dict[int, list[Event]]:
    """The events of each turn, by its number, in order."""
    turns: dict[int, list[Event]] = {}
    for event in events:
        turns.setdefault(event.turn, []).append(event)
    return turns
