"""Fold of a chat's events into its turns, one immutable view after another.

Text deltas and the complete message that replaces them in storage lead to the same view, so that it does not
matter which of them a page received.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from toolyard.types.chat import ChatEvent, Kind
from toolyard.web.ui.chat.turn_view import (
    AnswerView,
    ApprovalView,
    CallResultView,
    MediaView,
    NoteView,
    ProgressView,
    QuestionView,
    ToolCallView,
    TurnEndView,
    TurnItem,
    TurnView,
    UsageView,
)

__all__ = ["ChatView"]

_NON_ALPHANUMERIC_PATTERN = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class ChatView:
    """Turns in order. ``last`` is the number of the last event applied."""

    turns: tuple[TurnView, ...] = ()
    last: int = 0

    @classmethod
    def from_events(cls, events: Iterable[ChatEvent]) -> ChatView:
        """Return the view of events that begin with a turn."""
        return cls().apply_events(events)

    def apply_events(self, events: Iterable[ChatEvent]) -> ChatView:
        """Return the view after more events."""
        turns, last = list(self.turns), self.last
        for event in events:
            last = max(last, event.seq)
            if event.kind in (Kind.USER, Kind.RUN):
                turn = _start_turn(event)
                # A retry marks the turn that it replaces.
                turns = [replace(each, replaced=True) if each.seq == turn.again else each for each in turns]
                turns.append(turn)
                continue
            index = next((at for at in reversed(range(len(turns))) if turns[at].seq == event.turn), None)
            if index is None:
                # The page begins in the middle of a turn, whose first event is not loaded.
                turns.append(TurnView(event.turn, event.at))
                index = -1
            turns[index] = _apply_event(turns[index], event)
        return ChatView(tuple(turns), last)

    @property
    def state(self) -> str:
        """State of the last turn: ``idle``, ``running`` or ``waiting``."""
        return self.turns[-1].state if self.turns else "idle"


# Event handlers.


def _start_turn(event: ChatEvent) -> TurnView:
    body = event.body
    text = _get_text(body, "text") if event.kind is Kind.USER else None
    again = body.get("again")
    return TurnView(
        event.seq,
        event.at,
        text,
        _get_text(body, "model") or None,
        _get_text(body, "agent") or None,
        again if isinstance(again, int) else None,
        ran=None if text is not None else _get_text(body, "name"),
    )


def _apply_event(turn: TurnView, event: ChatEvent) -> TurnView:
    return _EVENT_HANDLERS.get(event.kind, _ignore_event)(turn, event)


def _ignore_event(turn: TurnView, event: ChatEvent) -> TurnView:
    return turn


def _append_piece(turn: TurnView, event: ChatEvent) -> TurnView:
    delta = _get_text(event.body, "delta")

    def append_delta(answer: AnswerView) -> AnswerView:
        if event.kind is Kind.TEXT:
            return replace(answer, text=answer.text + delta)
        return replace(answer, reasoning=answer.reasoning + delta)

    return _update_answer(turn, event, append_delta)


def _complete_answer(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    whole = AnswerView(
        _answer_key(event),
        _get_text(body, "text"),
        _get_text(body, "reasoning"),
        True,
        _get_text(body, "model"),
    )
    return _update_answer(turn, event, lambda _: whole)


def _update_answer(turn: TurnView, event: ChatEvent, change: Callable[[AnswerView], AnswerView]) -> TurnView:
    key = _answer_key(event)
    for each in turn.items:
        if isinstance(each, AnswerView) and each.key == key:
            return _replace_item(turn, each, change(each))
    return replace(turn, items=(*turn.items, change(AnswerView(key))))


def _answer_key(event: ChatEvent) -> str:
    # The key becomes an element id. Part names come from model providers and may contain anything.
    part = _NON_ALPHANUMERIC_PATTERN.sub("-", event.part)[:40] or f"at-{event.seq}"
    return f"t{event.turn}-{part}"


def _add_call(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    card = ToolCallView(
        key=f"c{event.seq}",
        call=_get_text(body, "id"),
        name=_get_text(body, "name"),
        tool=_get_text(body, "tool") or None,
        server=_get_text(body, "server"),
        native=body.get("native") is True,
        title=_get_text(body, "title"),
        arguments=body.get("arguments", {}),
        by_hand=turn.text is None,
    )
    return replace(turn, items=(*turn.items, card))


def _set_progress(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    now = ProgressView(
        _get_number(body, "progress") or 0.0, _get_number(body, "total"), _get_text(body, "message")
    )
    return _update_call(turn, _get_text(body, "id"), lambda card: replace(card, progress=now))


def _request_approval(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    approval = ApprovalView(_get_text(body, "approval"), _get_text(body, "reason"))
    return _update_call(turn, _get_text(body, "id"), lambda card: replace(card, asked=approval))


def _record_approval(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    approval = ApprovalView(
        _get_text(body, "approval"), "", body.get("yes") is True, _get_text(body, "remembered")
    )

    def set_approval(card: ToolCallView) -> ToolCallView:
        reason = card.asked.reason if card.asked is not None else ""
        return replace(card, asked=replace(approval, reason=reason))

    return _update_call(turn, _get_text(body, "id"), set_approval)


def _add_question(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    schema = body.get("schema")
    question = QuestionView(
        key=f"q{event.seq}",
        id=_get_text(body, "id"),
        server=_get_text(body, "server"),
        kind=_get_text(body, "kind"),
        message=_get_text(body, "message"),
        schema=cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else {},
        url=_get_text(body, "url"),
        request=_get_text(body, "request"),
        call=_get_text(body, "call") or None,
    )
    # Questions that belong to a call are shown in its card, others on their own.
    if question.call is not None and _find_call(turn, question.call) is not None:
        return _update_call(
            turn, question.call, lambda card: replace(card, questions=(*card.questions, question))
        )
    return replace(turn, items=(*turn.items, question))


def _close_question(turn: TurnView, event: ChatEvent) -> TurnView:
    question_id, action = _get_text(event.body, "id"), _get_text(event.body, "action") or "cancel"

    def set_action(question: QuestionView) -> QuestionView:
        return replace(question, action=action) if question.id == question_id else question

    items: list[TurnItem] = []
    for each in turn.items:
        if isinstance(each, QuestionView):
            items.append(set_action(each))
        elif isinstance(each, ToolCallView) and any(one.id == question_id for one in each.questions):
            items.append(replace(each, questions=tuple(map(set_action, each.questions))))
        else:
            items.append(each)
    return replace(turn, items=tuple(items))


def _set_result(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    text = _get_text(body, "text")
    outcome = CallResultView(
        seq=event.seq,
        ok=body.get("ok") is True,
        text=text,
        length=max(int(_get_number(body, "length") or 0), len(text)),
        cause=_get_text(body, "cause"),
        seconds=_get_number(body, "seconds") or 0.0,
        media=tuple(_read_media(body)),
        reconnect=_get_text(body, "reconnect") or None,
    )
    # Stored progress events are deleted once there is a result, so a live view must drop them, too.
    return _update_call(
        turn, _get_text(body, "id"), lambda card: replace(card, outcome=outcome, progress=None)
    )


def _read_media(body: Mapping[str, Any]) -> Iterable[MediaView]:
    listed = body.get("media")
    for each in cast("list[object]", listed) if isinstance(listed, list) else []:
        if isinstance(each, dict):
            one = cast("Mapping[str, Any]", each)
            yield MediaView(
                _get_text(one, "kind"), _get_text(one, "mime"), int(_get_number(one, "size") or 0)
            )


def _add_usage(turn: TurnView, event: ChatEvent) -> TurnView:
    body, so_far = event.body, turn.usage
    cost = _parse_decimal(body.get("cost"))
    if cost is not None:
        cost += so_far.cost or 0
    usage = UsageView(
        so_far.input + int(_get_number(body, "input") or 0),
        so_far.output + int(_get_number(body, "output") or 0),
        so_far.cached + int(_get_number(body, "cached") or 0),
        cost if cost is not None else so_far.cost,
        so_far.requests + 1,
    )
    return replace(turn, usage=usage)


def _add_note(turn: TurnView, event: ChatEvent) -> TurnView:
    note = NoteView(f"n{event.seq}", _get_text(event.body, "text"), _get_text(event.body, "hint"))
    return replace(turn, items=(*turn.items, note))


def _end_turn(turn: TurnView, event: ChatEvent) -> TurnView:
    body = event.body
    end = TurnEndView(
        _get_text(body, "why"),
        _get_text(body, "error"),
        _get_text(body, "hint"),
        _get_number(body, "seconds") or 0.0,
    )
    return replace(turn, end=end, items=tuple(map(_end_item, turn.items)))


def _end_item(item: TurnItem) -> TurnItem:
    if isinstance(item, ToolCallView) and item.outcome is None:
        questions = tuple(replace(each, action=each.action or "cancel") for each in item.questions)
        return replace(item, over=True, questions=questions)
    if isinstance(item, QuestionView) and item.action is None:
        return replace(item, action="cancel")
    if isinstance(item, AnswerView) and not item.whole:
        return replace(item, whole=True)
    return item


_EVENT_HANDLERS: Mapping[Kind, Callable[[TurnView, ChatEvent], TurnView]] = {
    Kind.TEXT: _append_piece,
    Kind.REASONING: _append_piece,
    Kind.MODEL_MESSAGE: _complete_answer,
    Kind.CALL: _add_call,
    Kind.PROGRESS: _set_progress,
    Kind.APPROVAL_REQUEST: _request_approval,
    Kind.APPROVAL_ANSWER: _record_approval,
    Kind.QUESTION: _add_question,
    Kind.QUESTION_ANSWER: _close_question,
    Kind.RESULT: _set_result,
    Kind.USAGE: _add_usage,
    Kind.NOTE: _add_note,
    Kind.END: _end_turn,
}


# Helpers.


def _find_call(turn: TurnView, call: str) -> ToolCallView | None:
    """Return the last call with an id, because models may reuse ids."""
    return next(
        (each for each in reversed(turn.items) if isinstance(each, ToolCallView) and each.call == call), None
    )


def _update_call(turn: TurnView, call: str, change: Callable[[ToolCallView], ToolCallView]) -> TurnView:
    card = _find_call(turn, call)
    return turn if card is None else _replace_item(turn, card, change(card))


def _replace_item(turn: TurnView, old: TurnItem, new: TurnItem) -> TurnView:
    return replace(turn, items=tuple(new if each is old else each for each in turn.items))


def _get_text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _get_number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    # bool is a subclass of int in Python, but not a number in JSON.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _parse_decimal(value: object) -> Decimal | None:
    try:
        number = None if value is None else Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None
