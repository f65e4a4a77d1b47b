"""What must change on a page that shows a chat, as its events come. Pure: events in, changes out.

A part that changed is sent whole, in place of the one before. An answer is sent by blocks: those that are
finished once, and the last one as it grows, so that the work is in proportion to the length of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

from toolyard.types.chat import Event
from toolyard.web.rendering.markdown_blocks import Blocks
from toolyard.web.ui.chat.fragments import (
    Frame,
    block_part,
    foot_part,
    item_part,
    item_parts,
    turn_part,
)
from toolyard.web.ui.chat.turn_view import Answer, Card, Item, Question, Turn
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.formatting import one_line, visible

__all__ = ["TURNS", "Change", "Following"]

TURNS = "turns"
"""The id of the element that all turns stand in."""
_SHORT = 2_048
"""Characters. A block that is longer is made anew only when it has grown by an eighth; until then, what comes
is added to it as plain text."""


class Change(TypedDict, total=False):
    """One change. With ``html``, the element ``id`` is put in place of the one of that id, or at the end of
    the element ``into``. With ``text``, the text is added to the element's end. ``state`` is what the chat is
    doing, ``say`` is for those who listen to the page; ``done``: what is put is read to them."""

    id: str
    into: str
    html: str
    text: str
    state: str
    say: str
    done: bool


class Following:
    """One page that follows a chat, from the events on that it shows."""

    def __init__(self, frame: Frame, shown: ChatView) -> None:
        self._frame = frame
        self._view = ChatView(shown.turns[-1:], shown.last)
        self._answers: dict[str, _Growing] = {}
        self._sure: set[str] = set()
        """Items of which the page is known to show what we think. Of others it may show pieces that were
        deleted since."""

    @property
    def last(self) -> int:
        """The number of the last event that the page shows."""
        return self._view.last

    def changes(self, events: Sequence[Event]) -> list[Change]:
        """What changes with these events, in the order in which it must be done."""
        before, now = self._view, self._view.then(events)
        known = {turn.seq: turn for turn in before.turns}
        found: list[Change] = []
        for turn in now.turns:
            old = known.get(turn.seq)
            if old is None or old.replaced != turn.replaced:
                found.append(_put(turn.key, turn_part(turn, self._frame), TURNS))
            elif old is not turn:
                found += self._in_turn(old, turn)
        if now.state != before.state:
            found.append({"state": now.state})
        # Older turns change no more, and a page that stays open for days must not hold them all.
        self._view = ChatView(now.turns[-1:], now.last)
        if now.state == "idle":
            self._answers.clear()
            self._sure.clear()
        return found

    def _in_turn(self, old: Turn, now: Turn) -> Iterator[Change]:
        known = {item.key: item for item in old.items}
        for item in now.items:
            before = known.get(item.key)
            if before is None:
                self._sure.add(item.key)
                yield _put(item.key, item_part(item, self._frame), f"{now.key}-items")
                yield from _heard(None, item)
            elif before is not item:
                yield from self._in_item(before, item, now)
                yield from _heard(before, item)
        if (old.end, old.usage, old.state) != (now.end, now.usage, now.state):
            yield _put(f"{now.key}-foot", foot_part(now, self._frame))

    def _in_item(self, old: Item, now: Item, turn: Turn) -> Iterator[Change]:
        if isinstance(old, Answer) and isinstance(now, Answer):
            yield from self._in_answer(old, now, turn)
            return
        before = item_parts(old, self._frame)
        sure = now.key in self._sure
        self._sure.add(now.key)
        for id_, html in item_parts(now, self._frame).items():
            # What somebody fills in is not put in place again.
            if before.get(id_) != html or not (sure or id_.startswith("q")):
                yield _put(id_, html, f"{now.key}-questions")

    def _in_answer(self, old: Answer, now: Answer, turn: Turn) -> Iterator[Change]:
        if not now.text.startswith(old.text):
            self._answers.pop(now.key, None)
            yield _put(now.key, item_part(now, self._frame), f"{turn.key}-items")
            return
        yield from self._in_thoughts(old, now)
        growing = self._answers.get(now.key) or _Growing(now.key, old.text, self._frame)
        self._answers[now.key] = growing
        yield from growing.add(now.text[len(old.text) :])
        if now.whole:
            yield from growing.end()
            del self._answers[now.key]

    def _in_thoughts(self, old: Answer, now: Answer) -> Iterator[Change]:
        more = now.reasoning.removeprefix(old.reasoning)
        same_frame = (old.whole, bool(old.text)) == (now.whole, bool(now.text))
        if old.reasoning and same_frame and now.reasoning.startswith(old.reasoning):
            if more:
                yield {"id": f"{now.key}-thoughts", "text": visible(more)}
            return
        for id_, html in item_parts(now, self._frame).items():
            if html != item_parts(old, self._frame)[id_]:
                yield _put(id_, html)


class _Growing:
    """The text of an answer on the page: which blocks are there, and how far the last one is."""

    def __init__(self, key: str, text: str, frame: Frame) -> None:
        self._key = key
        self._frame = frame
        self._blocks = Blocks()
        self._blocks.add(text)
        self._made_at = 0
        """How long the last block was when it was made; 0: the page may show it in another way."""

    def add(self, piece: str) -> Iterator[Change]:
        """What changes when the text grows."""
        if not piece:
            return
        first = len(self._blocks.finished)
        self._blocks.add(piece)
        finished, tail = self._blocks.finished, self._blocks.tail
        for number in range(first, len(finished)):
            yield self._block(number, finished[number], done=True)
            self._made_at = 0
        if not self._made_at or len(tail) < _SHORT or len(tail) >= self._made_at + self._made_at // 8:
            yield self._tail()
        else:
            yield {"id": f"{self._key}-b{len(finished)}", "text": visible(piece)}

    def end(self) -> Iterator[Change]:
        """What changes when no more comes."""
        if self._blocks.tail:
            yield {**self._tail(), "done": True}

    def _tail(self) -> Change:
        self._made_at = len(self._blocks.tail)
        return self._block(len(self._blocks.finished), self._blocks.tail)

    def _block(self, number: int, text: str, *, done: bool = False) -> Change:
        html = block_part(self._key, number, text, self._frame)
        change = _put(f"{self._key}-b{number}", html, f"{self._key}-text")
        return {**change, "done": True} if done else change


def _put(id_: str, html: str, into: str = "") -> Change:
    return {"id": id_, "html": str(html), "into": into} if into else {"id": id_, "html": str(html)}


def _heard(old: Item | None, now: Item) -> Iterator[Change]:
    """What is said to those who do not see the page."""
    if isinstance(now, Card):
        before = old.state if isinstance(old, Card) else None
        words = {
            "runs": "runs",
            "asks": "needs your yes",
            "waits": "asks you something",
            "done": "is done",
            "failed": "failed",
        }
        if now.state != before and now.state in words:
            yield {"say": f"{one_line(now.title or now.name, 60)} {words[now.state]}"}
    elif isinstance(now, Question) and old is None:
        yield {"say": f"{one_line(now.server, 60)} asks you something"}
