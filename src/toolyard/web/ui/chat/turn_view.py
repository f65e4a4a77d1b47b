"""View data of a chat: turns and their items. Plain immutable data, built from events."""

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
    """Answer of the model in one step."""

    key: str
    text: str = ""
    reasoning: str = ""
    whole: bool = False
    """True if it is complete."""
    model: str = ""


@dataclass(frozen=True, slots=True)
class ProgressView:
    """Progress of a call."""

    progress: float
    total: float | None
    message: str

    @property
    def percent(self) -> int | None:
        """Percentage, if the server reports a total."""
        if not self.total or self.total <= 0:
            return None
        return round(100 * min(max(self.progress / self.total, 0.0), 1.0))


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """Approval of a call. ``yes`` is None until it is answered."""

    approval: str
    reason: str
    yes: bool | None = None
    remembered: str = ""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """Question from a server: an elicitation or sampling request, and the person's action."""

    key: str
    id: str
    server: str
    kind: str
    message: str
    schema: Mapping[str, Any]
    url: str
    request: str
    action: str | None = None
    """``accept``, ``decline`` or ``cancel``; None while it is open."""
    call: str | None = None


@dataclass(frozen=True, slots=True)
class MediaView:
    """Image, audio or file of a result."""

    kind: str
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class CallResultView:
    """Result of a call. ``text`` is its beginning; ``length`` is the number of characters of all of it."""

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
    """Call of a tool."""

    key: str
    call: str
    name: str
    tool: str | None
    server: str
    native: bool
    title: str
    arguments: object
    by_hand: bool = False
    """True if the person ran it from the console."""
    progress: ProgressView | None = None
    asked: ApprovalView | None = None
    questions: tuple[QuestionView, ...] = ()
    outcome: CallResultView | None = None
    over: bool = False
    """True if its turn has ended, so that no result will follow."""

    @property
    def state(self) -> str:
        """State: ``done``, ``failed``, ``refused``, ``asks``, ``waits``, ``runs`` or ``ended``."""
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
    """Notice for the person."""

    key: str
    text: str
    hint: str


TurnItem: TypeAlias = AnswerView | ToolCallView | QuestionView | NoteView


@dataclass(frozen=True, slots=True)
class UsageView:
    """Token counts and cost in US dollars of all model requests of a turn. ``cost`` is None if unknown."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: Decimal | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class TurnEndView:
    """End of a turn, with its reason."""

    why: str
    error: str
    hint: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnView:
    """Turn: a message or a tool run by the person, and everything that followed."""

    seq: int
    at: float
    text: str | None = None
    """Message; None if the person ran a tool."""
    model: str | None = None
    agent: str | None = None
    again: int | None = None
    """Number of the turn that this one retries."""
    items: tuple[TurnItem, ...] = ()
    usage: UsageView = UsageView()
    end: TurnEndView | None = None
    ran: str | None = None
    """Tool that the person ran; None for messages."""
    replaced: bool = False
    """True if a later turn retries this one."""

    @property
    def key(self) -> str:
        """Id of its element on the page."""
        return f"t{self.seq}"

    @property
    def state(self) -> str:
        """``idle`` after its end, ``waiting`` while a call needs approval, else ``running``."""
        if self.end is not None:
            return "idle"
        needs_approval = any(isinstance(each, ToolCallView) and each.state == "asks" for each in self.items)
        return "waiting" if needs_approval else "running"
