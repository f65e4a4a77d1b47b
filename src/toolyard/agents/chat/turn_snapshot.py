"""State of turns, computed from their events alone.

Every reader of events uses it: pages, the terminal, the export, the model's history, and the process that
runs or continues a turn. Text deltas and the complete message that replaces them in storage lead to the same
snapshot, so it does not matter which of them a reader received.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

import orjson

from toolyard.types.chat import (
    ApprovalAnswer,
    ApprovalRequest,
    Attachment,
    CallProgress,
    CallRequest,
    CallResult,
    ChatEvent,
    ChatTitle,
    Kind,
    ManualCall,
    ModelMessage,
    ModelUsage,
    Note,
    Question,
    QuestionAnswer,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnOutcome,
    UserMessage,
)

__all__ = [
    "AnswerSnapshot",
    "CallSnapshot",
    "ChatSnapshot",
    "NoteSnapshot",
    "QuestionSnapshot",
    "TurnItem",
    "TurnSnapshot",
    "UsageTotal",
    "call_key",
    "step_part_id",
]

_NON_ALPHANUMERIC_PATTERN = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class AnswerSnapshot:
    """Answer of the model in one step."""

    key: str
    part: str = ""
    text: str = ""
    reasoning: str = ""
    model: str | None = None
    seq: int | None = None
    """Number of the complete message; None while there are only fragments."""
    has_payload: bool = False
    whole: bool = False
    """No text will follow: the message is complete, or the turn has ended."""


@dataclass(frozen=True, slots=True)
class QuestionSnapshot:
    """Question from a server, and the user's action."""

    key: str
    question: Question
    action: str | None = None
    """``accept``, ``decline`` or ``cancel``; None while it is open."""


@dataclass(frozen=True)
class CallSnapshot:
    """Call of a tool."""

    key: str
    request: CallRequest
    by_hand: bool = False
    """The user called the tool directly, without a model."""
    progress: CallProgress | None = None
    approval: ApprovalRequest | None = None
    approval_answer: ApprovalAnswer | None = None
    questions: tuple[QuestionSnapshot, ...] = ()
    result: CallResult | None = None
    result_seq: int = 0
    result_at: float = 0.0
    has_payload: bool = False
    """Whether a payload is stored beside the result."""
    over: bool = False
    """The turn has ended, so no result will follow."""

    @property
    def approved(self) -> bool | None:
        """The user's answer; None if there is none, or no approval was requested."""
        return None if self.approval_answer is None else self.approval_answer.yes

    @cached_property
    def state(self) -> str:
        """State: ``done``, ``failed``, ``stopped``, ``refused``, ``asks``, ``waits``, ``runs`` or
        ``ended``."""
        if self.result is not None:
            if self.result.stopped:
                return "stopped"
            refused = self.approval is not None and not self.approved
            return "done" if self.result.ok else "refused" if refused else "failed"
        if self.over:
            return "ended"
        if self.approval is not None and self.approval_answer is None:
            return "asks"
        return "waits" if any(each.action is None for each in self.questions) else "runs"


@dataclass(frozen=True, slots=True)
class NoteSnapshot:
    """Notice for the user."""

    key: str
    note: Note


TurnItem: TypeAlias = AnswerSnapshot | CallSnapshot | QuestionSnapshot | NoteSnapshot


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """Tokens and cost in US dollars of all model requests of a turn. ``cost`` is None if unknown."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: Decimal | None = None
    requests: int = 0
    last: ModelUsage | None = None
    """Usage of the last request whose context was recorded."""

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def add(self, usage: ModelUsage) -> UsageTotal:
        """Return the total with one more request."""
        cost = _parse_decimal(usage.cost)
        return UsageTotal(
            self.input + usage.input,
            self.output + usage.output,
            self.cached + usage.cached,
            self.cost if cost is None else cost + (self.cost or 0),
            self.requests + 1,
            usage if usage.window else self.last,
        )


@dataclass(frozen=True)
class TurnSnapshot:
    """State of a turn after its events."""

    seq: int = 0
    """Number of the event that began the turn."""
    at: float = 0.0
    start: UserMessage | ManualCall | None = None
    items: tuple[TurnItem, ...] = ()
    """Answers, calls and notes in order, and questions that belong to no known call."""
    usage: UsageTotal = UsageTotal()
    end: TurnEnd | None = None
    title_usage: UsageTotal | None = None
    """Usage of the request for the chat's title, which the model wrote after this turn."""

    @classmethod
    def from_events(cls, events: Iterable[ChatEvent]) -> TurnSnapshot:
        """Return the state after these events: all events of one turn, in order."""
        return cls().apply(events)

    def apply(self, events: Iterable[ChatEvent]) -> TurnSnapshot:
        """Return the state after more events. Items that did not change stay the same objects."""
        return _TurnFold(self).apply(events)

    @cached_property
    def key(self) -> str:
        return f"t{self.seq}"

    @cached_property
    def text(self) -> str | None:
        """The user's message; None if the user called a tool directly."""
        return self.start.text if isinstance(self.start, UserMessage) else None

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments of the user's message."""
        return self.start.attachments if isinstance(self.start, UserMessage) else ()

    @cached_property
    def state(self) -> str:
        """``idle`` after its end, ``waiting`` while a call needs approval, else ``running``."""
        if self.end is not None:
            return "idle"
        return "waiting" if any(call.state == "asks" for call in self.calls) else "running"

    @property
    def failed_mid_answer(self) -> bool:
        """Whether the turn failed in the middle of an answer from the model."""
        is_failed = self.end is not None and self.end.why == TurnOutcome.FAILED
        return is_failed and bool(self.items) and isinstance(self.items[-1], AnswerSnapshot)

    @property
    def answers(self) -> list[AnswerSnapshot]:
        return [item for item in self.items if isinstance(item, AnswerSnapshot)]

    @property
    def steps(self) -> int:
        """Number of complete model answers."""
        return sum(answer.seq is not None for answer in self.answers)

    @cached_property
    def calls(self) -> list[CallSnapshot]:
        return [item for item in self.items if isinstance(item, CallSnapshot)]

    @cached_property
    def open_calls(self) -> list[CallSnapshot]:
        """Calls without a result. Models may reuse an id: of calls with the same one, the last counts."""
        calls = {call.request.id: call for call in self.calls}
        return [call for call in calls.values() if call.result is None]

    @property
    def pending_approval_ids(self) -> list[str]:
        """Ids of the unanswered approvals."""
        return [
            call.approval.approval
            for call in self.open_calls
            if call.approval is not None and call.approved is None
        ]

    @property
    def open_questions(self) -> list[QuestionSnapshot]:
        return [each for each in self.open_requests if isinstance(each, QuestionSnapshot)]

    @cached_property
    def open_requests(self) -> list[CallSnapshot | QuestionSnapshot]:
        """Calls that need an approval, and open questions."""
        requests: list[CallSnapshot | QuestionSnapshot] = []
        for item in self.items:
            if isinstance(item, CallSnapshot) and item.state == "asks":
                requests.append(item)
            questions = item.questions if isinstance(item, CallSnapshot) else (item,)
            requests += [
                each for each in questions if isinstance(each, QuestionSnapshot) and each.action is None
            ]
        return requests

    @property
    def payload_seqs(self) -> list[int]:
        """Numbers of the events whose payload is sent to a model."""
        answers = [answer.seq for answer in self.answers if answer.has_payload and answer.seq is not None]
        return answers + [call.result_seq for call in self.calls if call.has_payload]

    def count_completed_calls(self) -> Counter[bytes]:
        """Return the number of calls with a result, by ``call_key``."""
        return Counter(call_key(call.request) for call in self.calls if call.result is not None)

    def find_answer(self, part: str) -> AnswerSnapshot | None:
        """Return the answer that a fragment with this part belongs to."""
        return next((each for each in reversed(self.answers) if each.part == part), None)


@dataclass(frozen=True, slots=True)
class ChatSnapshot:
    """Turns in order. ``last`` is the number of the last event applied."""

    turns: tuple[TurnSnapshot, ...] = ()
    last: int = 0

    @classmethod
    def from_events(cls, events: Iterable[ChatEvent]) -> ChatSnapshot:
        return cls().apply(events)

    def apply(self, events: Iterable[ChatEvent]) -> ChatSnapshot:
        """Return the state after more events."""
        turns, last = {turn.seq: turn for turn in self.turns}, self.last
        for number, group in groupby(events, attrgetter("turn")):
            batch = list(group)
            last = max(last, batch[-1].seq)
            if all(event.kind is Kind.SWITCH for event in batch):
                continue
            # The first event of the turn may not be among the events of a page.
            before = turns.get(number) or TurnSnapshot(number, batch[0].at)
            turns[number] = before.apply(batch)
        return ChatSnapshot(tuple(turns.values()), last)

    @property
    def state(self) -> str:
        """State of the last turn: ``idle``, ``running`` or ``waiting``."""
        return self.turns[-1].state if self.turns else "idle"


def call_key(call: CallRequest) -> bytes:
    """Return a key that is equal for equal calls, whatever the order of their arguments."""
    return orjson.dumps([call.name, call.arguments], option=orjson.OPT_SORT_KEYS)


def step_part_id(step: int) -> str:
    """Return the part id of a step's fragments. Steps count from 1 in each turn."""
    return f"step-{step}"


class _TurnFold:
    """Applies a batch of events to a turn in place. Takes time in proportion to them and the turn's items."""

    def __init__(self, turn: TurnSnapshot) -> None:
        self._turn = turn
        self._items = list(turn.items)
        self._indexes: dict[tuple[type, str], int] = {}
        """Position of an item, by the id with which later events refer to it."""
        self._indexed_count = 0
        """Number of items in ``_indexes``: most batches refer to no earlier item."""
        self._deltas: dict[int, tuple[list[str], list[str]]] = {}
        """Fragments of text and reasoning to be added, by the position of the answer."""

    def apply(self, events: Iterable[ChatEvent]) -> TurnSnapshot:
        """Return the turn after the events."""
        for event in events:
            match event.data:
                case (UserMessage() | ManualCall()) as start:
                    if self._turn.start is None:
                        self._turn = replace(self._turn, seq=event.turn, at=event.at, start=start)
                case TextDelta(delta):
                    self._add_delta(event, delta, "")
                case ReasoningDelta(delta):
                    self._add_delta(event, "", delta)
                case ModelMessage() as message:
                    self._complete_answer(event, message)
                case CallRequest() as request:
                    by_hand = not isinstance(self._turn.start, UserMessage)
                    self._items.append(CallSnapshot(f"c{event.seq}", request, by_hand))
                case CallProgress() as progress:
                    if (found := self._find_call(CallSnapshot, progress.id)) is not None:
                        self._items[found[0]] = replace(found[1], progress=progress)
                case ApprovalRequest() as approval:
                    self._request_approval(approval)
                case ApprovalAnswer() as answer:
                    self._answer_approval(answer)
                case Question() as question:
                    self._ask_question(event, question)
                case QuestionAnswer() as answer:
                    self._answer_question(answer)
                case CallResult() as result:
                    self._set_result(event, result)
                case ModelUsage() as usage:
                    self._turn = replace(self._turn, usage=self._turn.usage.add(usage))
                case Note() as note:
                    self._items.append(NoteSnapshot(f"n{event.seq}", note))
                case ChatTitle() as title:
                    usage = ModelUsage(title.input, title.output, title.cached, title.cost)
                    self._turn = replace(self._turn, title_usage=UsageTotal().add(usage))
                case TurnEnd() as end:
                    if self._deltas:
                        self._flush_deltas()
                    self._items = list(map(_end_item, self._items))
                    if end.why == TurnOutcome.STOPPED:
                        self._items = [_mark_stopped(item, event.at) for item in self._items]
                    self._turn = replace(self._turn, end=end)
                case _:
                    pass
        if self._deltas:
            self._flush_deltas()
        return replace(self._turn, items=tuple(self._items))

    # Items.

    def _find_index(self, kind: type, id: str) -> int | None:
        """Return the position of the last item that has an id of this kind."""
        for index in range(self._indexed_count, len(self._items)):
            match self._items[index]:
                case AnswerSnapshot() as answer:
                    self._indexes[AnswerSnapshot, answer.key] = index
                case CallSnapshot() as call:
                    self._indexes[CallSnapshot, call.request.id] = index
                    if call.approval is not None:
                        self._indexes[ApprovalRequest, call.approval.approval] = index
                    for question in call.questions:
                        self._indexes[QuestionSnapshot, question.question.id] = index
                case QuestionSnapshot() as asked:
                    self._indexes[QuestionSnapshot, asked.question.id] = index
                case NoteSnapshot():
                    pass
        self._indexed_count = len(self._items)
        return self._indexes.get((kind, id))

    def _find_call(self, kind: type, id: str) -> tuple[int, CallSnapshot] | None:
        index = self._find_index(kind, id)
        item = None if index is None else self._items[index]
        return (index, item) if index is not None and isinstance(item, CallSnapshot) else None

    # Answers.

    def _ensure_model_answer(self, event: ChatEvent) -> int:
        # The key becomes an element id. Part names come from model providers and may contain anything.
        part = _NON_ALPHANUMERIC_PATTERN.sub("-", event.part)[:40] or f"at-{event.seq}"
        key = f"t{event.turn}-{part}"
        index = self._find_index(AnswerSnapshot, key)
        if index is None:
            index = len(self._items)
            self._items.append(AnswerSnapshot(key, event.part))
        return index

    def _add_delta(self, event: ChatEvent, text: str, reasoning: str) -> None:
        texts, reasonings = self._deltas.setdefault(self._ensure_model_answer(event), ([], []))
        texts.append(text)
        reasonings.append(reasoning)

    def _complete_answer(self, event: ChatEvent, message: ModelMessage) -> None:
        index = self._ensure_model_answer(event)
        self._deltas.pop(index, None)
        self._items[index] = AnswerSnapshot(
            self._items[index].key,
            event.part,
            message.text,
            message.reasoning,
            message.model,
            event.seq,
            event.has_payload,
            True,
        )

    def _flush_deltas(self) -> None:
        for index, (texts, reasonings) in self._deltas.items():
            answer = self._items[index]
            # The complete message replaces its fragments, also those that arrive later.
            if isinstance(answer, AnswerSnapshot) and answer.seq is None:
                self._items[index] = replace(
                    answer,
                    text=answer.text + "".join(texts),
                    reasoning=answer.reasoning + "".join(reasonings),
                )
        self._deltas.clear()

    # Calls.

    def _request_approval(self, approval: ApprovalRequest) -> None:
        if (found := self._find_call(CallSnapshot, approval.id)) is not None:
            self._items[found[0]] = replace(found[1], approval=approval, approval_answer=None)
            self._indexes[ApprovalRequest, approval.approval] = found[0]

    def _answer_approval(self, answer: ApprovalAnswer) -> None:
        found = self._find_call(ApprovalRequest, answer.approval)
        # If two answers were stored concurrently, the first one counts.
        if found is not None and found[1].approval_answer is None:
            self._items[found[0]] = replace(found[1], approval_answer=answer)

    def _set_result(self, event: ChatEvent, result: CallResult) -> None:
        found = self._find_call(CallSnapshot, result.id)
        if found is not None and found[1].result is None:
            # Stored progress events are deleted once there is a result, so a live snapshot must drop them.
            self._items[found[0]] = replace(
                found[1],
                result=result,
                result_seq=event.seq,
                result_at=event.at,
                has_payload=event.has_payload,
                progress=None,
            )

    def _ask_question(self, event: ChatEvent, question: Question) -> None:
        asked = QuestionSnapshot(f"q{event.seq}", question)
        found = None if question.call is None else self._find_call(CallSnapshot, question.call)
        # Questions that belong to a call are shown with it, others on their own.
        if found is None:
            self._items.append(asked)
        else:
            self._items[found[0]] = replace(found[1], questions=(*found[1].questions, asked))
            self._indexes[QuestionSnapshot, question.id] = found[0]

    def _answer_question(self, answer: QuestionAnswer) -> None:
        def set_action(asked: QuestionSnapshot) -> QuestionSnapshot:
            is_answer = asked.question.id == answer.id and asked.action is None
            return replace(asked, action=answer.action or "cancel") if is_answer else asked

        index = self._find_index(QuestionSnapshot, answer.id)
        if index is None:
            return
        item = self._items[index]
        if isinstance(item, QuestionSnapshot):
            self._items[index] = set_action(item)
        elif isinstance(item, CallSnapshot):
            self._items[index] = replace(item, questions=tuple(map(set_action, item.questions)))


def _end_item(item: TurnItem) -> TurnItem:
    if isinstance(item, CallSnapshot) and item.result is None:
        questions = tuple(replace(each, action=each.action or "cancel") for each in item.questions)
        return replace(item, over=True, questions=questions)
    if isinstance(item, QuestionSnapshot) and item.action is None:
        return replace(item, action="cancel")
    if isinstance(item, AnswerSnapshot) and not item.whole:
        return replace(item, whole=True)
    return item


def _mark_stopped(item: TurnItem, ended_at: float) -> TurnItem:
    """Mark a call that the end of a stopped turn gave its result, as earlier versions did not.

    Such results are stored together with the end, so they have the same time.
    """
    if isinstance(item, CallSnapshot) and item.result_at == ended_at:
        result = item.result
        if result is not None and not result.ok and not result.stopped:
            return replace(item, result=replace(result, stopped=True))
    return item


def _parse_decimal(value: float | str | None) -> Decimal | None:
    try:
        number = None if value is None else Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None
