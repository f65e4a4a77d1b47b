"""What a page shows of a chat: turns, and what was said and done in each. Plain data, made from events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

__all__ = [
    "AnswerView",
    "ApprovalView",
    "CallResultView",
    "MediaView",
    "NoteView",
    "ProgressView",
    "QuestionView",
    "ToolCallView",
    "TurnEndView",
    "TurnItem",
    "TurnView",
    "UsageView",
]


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What a model says in one step."""

    key: str
    text: str = ""
    reasoning: str = ""
    whole: bool = False
    """Whether it is at its end; else more may come."""
    model: str = ""


@dataclass(frozen=True, slots=True)
class ProgressView:
    """How far a call is."""

    progress: float
    total: float | None
    message: str

    @property
    def percent(self) -> int | None:
        """Of the whole, where a server says how much that is."""
        if not self.total or self.total <= 0:
            return None
        return round(100 * min(max(self.progress / self.total, 0.0), 1.0))


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """A call that needs somebody's yes, and what they said."""

    approval: str
    reason: str
    yes: bool | None = None
    remembered: str = ""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """What a server asks the person, and what they did about it."""

    key: str
    id: str
    server: str
    kind: str
    message: str
    schema: Mapping[str, Any]
    url: str
    request: str
    action: str | None = None
    """None: it waits."""
    call: str | None = None


@dataclass(frozen=True, slots=True)
class MediaView:
    """A picture, a sound or a file of a result."""

    kind: str
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class CallResultView:
    """What a call came to. ``text`` is the beginning of what it said, ``length`` counts all of it."""

    seq: int
    ok: bool
    text: str
    length: int
    cause: str
    seconds: float
    media: tuple[MediaView, ...] = ()
    reconnect: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallView:
    """One call of a tool."""

    key: str
    call: str
    name: str
    tool: str | None
    server: str
    native: bool
    title: str
    arguments: object
    by_hand: bool = False
    """Whether the person ran it themself."""
    progress: ProgressView | None = None
    asked: ApprovalView | None = None
    questions: tuple[QuestionView, ...] = ()
    outcome: CallResultView | None = None
    over: bool = False
    """Whether its turn has ended, so that no outcome comes any more."""

    @property
    def state(self) -> str:
        """In one word: ``done``, ``failed``, ``refused``, ``asks``, ``waits``, ``runs`` or ``ended``."""
        if self.outcome is not None:
            refused = self.asked is not None and not self.asked.yes
            return "done" if self.outcome.ok else "refused" if refused else "failed"
        if self.over:
            return "ended"
        if self.asked is not None and self.asked.yes is None:
            return "asks"
        return "waits" if any(each.action is None for each in self.questions) else "runs"


@dataclass(frozen=True, slots=True)
class NoteView:
    """Something that the person should know."""

    key: str
    text: str
    hint: str


TurnItem: TypeAlias = AnswerView | ToolCallView | QuestionView | NoteView


@dataclass(frozen=True, slots=True)
class UsageView:
    """Of all model requests of a turn. ``cost`` None: nobody knows."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: Decimal | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class TurnEndView:
    """Why a turn is over."""

    why: str
    error: str
    hint: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnView:
    """What a person began, and all that came of it."""

    seq: int
    at: float
    text: str | None = None
    """What they said; None where they ran a tool."""
    model: str | None = None
    agent: str | None = None
    again: int | None = None
    """The turn that this one is in place of."""
    items: tuple[TurnItem, ...] = ()
    usage: UsageView = UsageView()
    end: TurnEndView | None = None
    ran: str | None = None
    """The tool that they ran; None where they said something."""
    replaced: bool = False
    """Whether a later turn is in place of this one."""

    @property
    def key(self) -> str:
        """What its element on the page is called."""
        return f"t{self.seq}"

    @property
    def state(self) -> str:
        """``idle`` where it has ended, ``waiting`` for a yes, or ``running``."""
        if self.end is not None:
            return "idle"
        asks = any(isinstance(each, ToolCallView) and each.state == "asks" for each in self.items)
        return "waiting" if asks else "running"
