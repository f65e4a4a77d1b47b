"""From a chat's events to its turns: one event after the other, each giving the next view.

Pieces and the event that stands in their place lead to the same view, so that it does not matter which of
them somebody saw.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from toolyard.types.chat import Event, Kind
from toolyard.web.ui.chat.turn_view import (
    Answer,
    Asked,
    Card,
    End,
    Item,
    Media,
    Note,
    Outcome,
    Progress,
    Question,
    Turn,
    Usage,
)

__all__ = ["ChatView"]

_ODD = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class ChatView:
    """Turns in order. ``last`` is the number of the last event that is in it."""

    turns: tuple[Turn, ...] = ()
    last: int = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> ChatView:
        """The view of events that begin with a turn."""
        return cls().then(events)

    def then(self, events: Iterable[Event]) -> ChatView:
        """This, and what happened since."""
        turns, last = list(self.turns), self.last
        for event in events:
            last = max(last, event.seq)
            if event.kind in (Kind.USER, Kind.RUN):
                turn = _begin(event)
                turns = [replace(each, replaced=True) if each.seq == turn.again else each for each in turns]
                turns.append(turn)
                continue
            index = next((at for at in reversed(range(len(turns))) if turns[at].seq == event.turn), None)
            if index is None:
                turns.append(Turn(event.turn, event.at))
                index = -1
            turns[index] = _after(turns[index], event)
        return ChatView(tuple(turns), last)

    @property
    def state(self) -> str:
        """What the last turn is doing: ``idle``, ``running`` or ``waiting``."""
        return self.turns[-1].state if self.turns else "idle"


# One event.


def _begin(event: Event) -> Turn:
    body = event.body
    text = _text(body, "text") if event.kind is Kind.USER else None
    again = body.get("again")
    return Turn(
        event.seq,
        event.at,
        text,
        _text(body, "model") or None,
        _text(body, "agent") or None,
        again if isinstance(again, int) else None,
        ran=None if text is not None else _text(body, "name"),
    )


def _after(turn: Turn, event: Event) -> Turn:
    return _CHANGES.get(event.kind, _same)(turn, event)


def _same(turn: Turn, event: Event) -> Turn:
    return turn


def _piece(turn: Turn, event: Event) -> Turn:
    delta = _text(event.body, "delta")

    def grown(answer: Answer) -> Answer:
        if event.kind is Kind.TEXT:
            return replace(answer, text=answer.text + delta)
        return replace(answer, reasoning=answer.reasoning + delta)

    return _with_answer(turn, event, grown)


def _said(turn: Turn, event: Event) -> Turn:
    body = event.body
    whole = Answer(
        _answer_key(event), _text(body, "text"), _text(body, "reasoning"), True, _text(body, "model")
    )
    return _with_answer(turn, event, lambda _: whole)


def _with_answer(turn: Turn, event: Event, change: Callable[[Answer], Answer]) -> Turn:
    key = _answer_key(event)
    for each in turn.items:
        if isinstance(each, Answer) and each.key == key:
            return _put(turn, each, change(each))
    return replace(turn, items=(*turn.items, change(Answer(key))))


def _answer_key(event: Event) -> str:
    part = _ODD.sub("-", event.part)[:40] or f"at-{event.seq}"
    return f"t{event.turn}-{part}"


def _call(turn: Turn, event: Event) -> Turn:
    body = event.body
    card = Card(
        key=f"c{event.seq}",
        call=_text(body, "id"),
        name=_text(body, "name"),
        tool=_text(body, "tool") or None,
        server=_text(body, "server"),
        native=body.get("native") is True,
        title=_text(body, "title"),
        arguments=body.get("arguments", {}),
        by_hand=turn.text is None,
    )
    return replace(turn, items=(*turn.items, card))


def _progress(turn: Turn, event: Event) -> Turn:
    body = event.body
    now = Progress(_number(body, "progress") or 0.0, _number(body, "total"), _text(body, "message"))
    return _with_card(turn, _text(body, "id"), lambda card: replace(card, progress=now))


def _ask(turn: Turn, event: Event) -> Turn:
    body = event.body
    asked = Asked(_text(body, "approval"), _text(body, "reason"))
    return _with_card(turn, _text(body, "id"), lambda card: replace(card, asked=asked))


def _answer(turn: Turn, event: Event) -> Turn:
    body = event.body
    asked = Asked(_text(body, "approval"), "", body.get("yes") is True, _text(body, "remembered"))

    def answered(card: Card) -> Card:
        reason = card.asked.reason if card.asked is not None else ""
        return replace(card, asked=replace(asked, reason=reason))

    return _with_card(turn, _text(body, "id"), answered)


def _question(turn: Turn, event: Event) -> Turn:
    body = event.body
    schema = body.get("schema")
    question = Question(
        key=f"q{event.seq}",
        id=_text(body, "id"),
        server=_text(body, "server"),
        kind=_text(body, "kind"),
        message=_text(body, "message"),
        schema=cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else {},
        url=_text(body, "url"),
        request=_text(body, "request"),
        call=_text(body, "call") or None,
    )
    if question.call is not None and _card(turn, question.call) is not None:
        return _with_card(
            turn, question.call, lambda card: replace(card, questions=(*card.questions, question))
        )
    return replace(turn, items=(*turn.items, question))


def _answered(turn: Turn, event: Event) -> Turn:
    wanted, action = _text(event.body, "id"), _text(event.body, "action") or "cancel"

    def done(question: Question) -> Question:
        return replace(question, action=action) if question.id == wanted else question

    items: list[Item] = []
    for each in turn.items:
        if isinstance(each, Question):
            items.append(done(each))
        elif isinstance(each, Card) and any(one.id == wanted for one in each.questions):
            items.append(replace(each, questions=tuple(map(done, each.questions))))
        else:
            items.append(each)
    return replace(turn, items=tuple(items))


def _result(turn: Turn, event: Event) -> Turn:
    body = event.body
    text = _text(body, "text")
    outcome = Outcome(
        seq=event.seq,
        ok=body.get("ok") is True,
        text=text,
        length=max(int(_number(body, "length") or 0), len(text)),
        cause=_text(body, "cause"),
        seconds=_number(body, "seconds") or 0.0,
        media=tuple(_media(body)),
        reconnect=_text(body, "reconnect") or None,
    )
    # Progress is gone with its pieces once a result stands in their place.
    return _with_card(turn, _text(body, "id"), lambda card: replace(card, outcome=outcome, progress=None))


def _media(body: Mapping[str, Any]) -> Iterable[Media]:
    listed = body.get("media")
    for each in cast("list[object]", listed) if isinstance(listed, list) else []:
        if isinstance(each, dict):
            one = cast("Mapping[str, Any]", each)
            yield Media(_text(one, "kind"), _text(one, "mime"), int(_number(one, "size") or 0))


def _usage(turn: Turn, event: Event) -> Turn:
    body, so_far = event.body, turn.usage
    cost = _decimal(body.get("cost"))
    if cost is not None:
        cost += so_far.cost or 0
    usage = Usage(
        so_far.input + int(_number(body, "input") or 0),
        so_far.output + int(_number(body, "output") or 0),
        so_far.cached + int(_number(body, "cached") or 0),
        cost if cost is not None else so_far.cost,
        so_far.requests + 1,
    )
    return replace(turn, usage=usage)


def _note(turn: Turn, event: Event) -> Turn:
    note = Note(f"n{event.seq}", _text(event.body, "text"), _text(event.body, "hint"))
    return replace(turn, items=(*turn.items, note))


def _end(turn: Turn, event: Event) -> Turn:
    body = event.body
    end = End(_text(body, "why"), _text(body, "error"), _text(body, "hint"), _number(body, "seconds") or 0.0)
    return replace(turn, end=end, items=tuple(map(_over, turn.items)))


def _over(item: Item) -> Item:
    if isinstance(item, Card) and item.outcome is None:
        questions = tuple(replace(each, action=each.action or "cancel") for each in item.questions)
        return replace(item, over=True, questions=questions)
    if isinstance(item, Question) and item.action is None:
        return replace(item, action="cancel")
    if isinstance(item, Answer) and not item.whole:
        return replace(item, whole=True)
    return item


_CHANGES: Mapping[Kind, Callable[[Turn, Event], Turn]] = {
    Kind.TEXT: _piece,
    Kind.REASONING: _piece,
    Kind.SAID: _said,
    Kind.CALL: _call,
    Kind.PROGRESS: _progress,
    Kind.ASK: _ask,
    Kind.ANSWER: _answer,
    Kind.QUESTION: _question,
    Kind.ANSWERED: _answered,
    Kind.RESULT: _result,
    Kind.USAGE: _usage,
    Kind.NOTE: _note,
    Kind.END: _end,
}


# Finding things.


def _card(turn: Turn, call: str) -> Card | None:
    """The last call of that id: a model may use one twice."""
    return next((each for each in reversed(turn.items) if isinstance(each, Card) and each.call == call), None)


def _with_card(turn: Turn, call: str, change: Callable[[Card], Card]) -> Turn:
    card = _card(turn, call)
    return turn if card is None else _put(turn, card, change(card))


def _put(turn: Turn, old: Item, new: Item) -> Turn:
    return replace(turn, items=tuple(new if each is old else each for each in turn.items))


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    return found if isinstance(found, str) else ""


def _number(body: Mapping[str, Any], name: str) -> float | None:
    found = body.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def _decimal(value: object) -> Decimal | None:
    try:
        found = None if value is None else Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None
