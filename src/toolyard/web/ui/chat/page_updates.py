"""What must change on a page that shows a chat, as its events come. Pure: events in, changes out.

A part that changed is sent whole, in place of the one before. An answer is sent by blocks: those that are
finished once, and the last one as it grows, so that the work is in proportion to the length of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

from toolyard.types.chat import ChatEvent
from toolyard.web.rendering.markdown_blocks import MarkdownBlockSplitter
from toolyard.web.ui.chat.fragments import (
    FragmentContext,
    render_block,
    render_item,
    render_item_fragments,
    render_turn,
    render_turn_footer,
)
from toolyard.web.ui.chat.turn_view import AnswerView, QuestionView, ToolCallView, TurnItem, TurnView
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.formatting import one_line, visible

__all__ = ["TURNS_ELEMENT_ID", "ChatPageUpdater", "PageChange"]

TURNS_ELEMENT_ID = "turns"
"""The id of the element that all turns stand in."""
_MAX_ALWAYS_RENDERED_CHARACTERS = 2_048
"""Characters. A block that is longer is made anew only when it has grown by an eighth; until then, what comes
is added to it as plain text."""


class PageChange(TypedDict, total=False):
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


class ChatPageUpdater:
    """One page that follows a chat, from the events on that it shows."""

    def __init__(self, frame: FragmentContext, shown_view: ChatView) -> None:
        self._frame = frame
        self._view = ChatView(shown_view.turns[-1:], shown_view.last)
        self._answer_updaters: dict[str, _AnswerUpdater] = {}
        self._keys_in_sync: set[str] = set()
        """Items of which the page is known to show what we think. Of others it may show pieces that were
        deleted since."""

    @property
    def last(self) -> int:
        """The number of the last event that the page shows."""
        return self._view.last

    def changes(self, events: Sequence[ChatEvent]) -> list[PageChange]:
        """What changes with these events, in the order in which it must be done."""
        before, now = self._view, self._view.apply_events(events)
        known = {turn.seq: turn for turn in before.turns}
        found: list[PageChange] = []
        for turn in now.turns:
            old = known.get(turn.seq)
            if old is None or old.replaced != turn.replaced:
                found.append(_replace_element(turn.key, render_turn(turn, self._frame), TURNS_ELEMENT_ID))
            elif old is not turn:
                found += self._turn_changes(old, turn)
        if now.state != before.state:
            found.append({"state": now.state})
        # Older turns change no more, and a page that stays open for days must not hold them all.
        self._view = ChatView(now.turns[-1:], now.last)
        if now.state == "idle":
            self._answer_updaters.clear()
            self._keys_in_sync.clear()
        return found

    def _turn_changes(self, old: TurnView, now: TurnView) -> Iterator[PageChange]:
        known = {item.key: item for item in old.items}
        for item in now.items:
            before = known.get(item.key)
            if before is None:
                self._keys_in_sync.add(item.key)
                yield _replace_element(item.key, render_item(item, self._frame), f"{now.key}-items")
                yield from _announce_item(None, item)
            elif before is not item:
                yield from self._item_changes(before, item, now)
                yield from _announce_item(before, item)
        if (old.end, old.usage, old.state) != (now.end, now.usage, now.state):
            yield _replace_element(f"{now.key}-foot", render_turn_footer(now, self._frame))

    def _item_changes(self, old: TurnItem, now: TurnItem, turn: TurnView) -> Iterator[PageChange]:
        if isinstance(old, AnswerView) and isinstance(now, AnswerView):
            yield from self._answer_changes(old, now, turn)
            return
        before = render_item_fragments(old, self._frame)
        sure = now.key in self._keys_in_sync
        self._keys_in_sync.add(now.key)
        for id_, html in render_item_fragments(now, self._frame).items():
            # What somebody fills in is not put in place again.
            if before.get(id_) != html or not (sure or id_.startswith("q")):
                yield _replace_element(id_, html, f"{now.key}-questions")

    def _answer_changes(self, old: AnswerView, now: AnswerView, turn: TurnView) -> Iterator[PageChange]:
        if not now.text.startswith(old.text):
            self._answer_updaters.pop(now.key, None)
            yield _replace_element(now.key, render_item(now, self._frame), f"{turn.key}-items")
            return
        yield from self._reasoning_changes(old, now)
        growing = self._answer_updaters.get(now.key) or _AnswerUpdater(now.key, old.text, self._frame)
        self._answer_updaters[now.key] = growing
        yield from growing.add(now.text[len(old.text) :])
        if now.whole:
            yield from growing.end()
            del self._answer_updaters[now.key]

    def _reasoning_changes(self, old: AnswerView, now: AnswerView) -> Iterator[PageChange]:
        more = now.reasoning.removeprefix(old.reasoning)
        same_frame = (old.whole, bool(old.text)) == (now.whole, bool(now.text))
        if old.reasoning and same_frame and now.reasoning.startswith(old.reasoning):
            if more:
                yield {"id": f"{now.key}-thoughts", "text": visible(more)}
            return
        for id_, html in render_item_fragments(now, self._frame).items():
            if html != render_item_fragments(old, self._frame)[id_]:
                yield _replace_element(id_, html)


class _AnswerUpdater:
    """The text of an answer on the page: which blocks are there, and how far the last one is."""

    def __init__(self, key: str, text: str, frame: FragmentContext) -> None:
        self._key = key
        self._frame = frame
        self._blocks = MarkdownBlockSplitter()
        self._blocks.add(text)
        self._rendered_characters = 0
        """How long the last block was when it was made; 0: the page may show it in another way."""

    def add(self, piece: str) -> Iterator[PageChange]:
        """What changes when the text grows."""
        if not piece:
            return
        first = len(self._blocks.finished_blocks)
        self._blocks.add(piece)
        finished, tail = self._blocks.finished_blocks, self._blocks.tail
        for number in range(first, len(finished)):
            yield self._render_block_change(number, finished[number], is_finished=True)
            self._rendered_characters = 0
        if (
            not self._rendered_characters
            or len(tail) < _MAX_ALWAYS_RENDERED_CHARACTERS
            or len(tail) >= self._rendered_characters + self._rendered_characters // 8
        ):
            yield self._render_tail()
        else:
            yield {"id": f"{self._key}-b{len(finished)}", "text": visible(piece)}

    def end(self) -> Iterator[PageChange]:
        """What changes when no more comes."""
        if self._blocks.tail:
            yield {**self._render_tail(), "done": True}

    def _render_tail(self) -> PageChange:
        self._rendered_characters = len(self._blocks.tail)
        return self._render_block_change(len(self._blocks.finished_blocks), self._blocks.tail)

    def _render_block_change(self, number: int, text: str, *, is_finished: bool = False) -> PageChange:
        html = render_block(self._key, number, text, self._frame)
        change = _replace_element(f"{self._key}-b{number}", html, f"{self._key}-text")
        return {**change, "done": True} if is_finished else change


def _replace_element(id_: str, html: str, into: str = "") -> PageChange:
    return {"id": id_, "html": str(html), "into": into} if into else {"id": id_, "html": str(html)}


def _announce_item(old: TurnItem | None, now: TurnItem) -> Iterator[PageChange]:
    """What is said to those who do not see the page."""
    if isinstance(now, ToolCallView):
        before = old.state if isinstance(old, ToolCallView) else None
        words = {
            "runs": "is running",
            "asks": "needs your approval",
            "waits": "needs your input",
            "done": "is done",
            "failed": "failed",
        }
        if now.state != before and now.state in words:
            yield {"say": f"{one_line(now.title or now.name, 60)} {words[now.state]}"}
    elif isinstance(now, QuestionView) and old is None:
        yield {"say": f"{one_line(now.server, 60)} needs your input"}
