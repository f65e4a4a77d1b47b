"""Changes for a page that shows a chat, computed from its events without I/O.

A changed part is sent as a whole and replaces the previous one. Answers are sent in Markdown blocks: finished
blocks once, and the last one as it grows, so that the total work is proportional to the length of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

from toolyard.agents.chat.turn_snapshot import (
    AnswerSnapshot,
    CallSnapshot,
    ChatSnapshot,
    QuestionSnapshot,
    TurnItem,
    TurnSnapshot,
)
from toolyard.results.json_size import estimate_characters
from toolyard.types.chat import ChatEvent, Kind, TurnTree
from toolyard.web.rendering.markdown_blocks import MarkdownBlockSplitter
from toolyard.web.ui.chat import fragments as parts
from toolyard.web.ui.components.formatting import one_line, visible

__all__ = ["TURNS_ELEMENT_ID", "ChatPageUpdater", "PageChange"]

TURNS_ELEMENT_ID = "turns"
"""Id of the element that contains all turns."""
_MAX_SHORT_TURN_CHARACTERS = 20_000
_MAX_ALWAYS_RENDERED_CHARACTERS = 2_048
"""Maximum length of a block that is rendered again for every piece of text. Longer blocks are rendered when
they
have grown by an eighth; until then, new text is appended as plain text. That bounds the work for one huge
block (such as a code listing), which would otherwise be quadratic."""


class PageChange(TypedDict, total=False):
    """A change for the script.

    ``html`` replaces the element ``id``, or is appended to the element ``into`` if there is none. With
    ``after``, it replaces all turns after that element, or all if that is empty; without such an element the
    page is loaded again. ``text`` is appended to the element ``id``. ``state`` is the new state of the chat.
    ``say`` is announced to screen readers, and with ``done`` so is the replaced element.
    """

    id: str
    into: str
    html: str
    after: str
    text: str
    state: str
    say: str
    done: bool


class ChatPageUpdater:
    """State of one open page, from which changes are computed."""

    def __init__(self, frame: parts.FragmentContext, shown_view: ChatSnapshot) -> None:
        self._frame = frame
        self._view = ChatSnapshot(shown_view.turns[-1:], shown_view.last)
        self._answer_updaters: dict[str, _AnswerUpdater] = {}
        self._sent_fragments: dict[str, parts.ItemFragments] = {}
        """Parts of the running calls that were sent over this stream, by key. Other items were rendered with
        the page, perhaps from transient events that no longer exist, so that all their parts are sent on
        their first change."""

    @property
    def last(self) -> int:
        """Number of the last event that the page shows."""
        return self._view.last

    @property
    def state(self) -> str:
        """State of the last turn: ``idle``, ``running`` or ``waiting``."""
        return self._view.state

    @property
    def is_waiting(self) -> bool:
        """True if the last turn waits for an approval or an answer."""
        return bool(self._view.turns and self._view.turns[-1].open_requests)

    def is_long(self, events: Sequence[ChatEvent]) -> bool:
        """Return True if the last turn or new events have so much text that rendering may take long."""
        items = (item for turn in self._view.turns[-1:] for item in turn.items)
        answers = (item for item in items if isinstance(item, AnswerSnapshot))
        shown = sum(len(each.text) + len(each.reasoning) for each in answers)
        added = estimate_characters([event.body for event in events], _MAX_SHORT_TURN_CHARACTERS)
        return shown + added > _MAX_SHORT_TURN_CHARACTERS

    @property
    def last_turn(self) -> int:
        """Number of the last turn of the branch that the page shows."""
        return self._view.turns[-1].seq if self._view.turns else 0

    def find_other_branch(self, events: Sequence[ChatEvent]) -> int | None:
        """Return the last turn of the branch that the page has to show after new events, if it is another one
        than that which it shows."""
        last, is_other = self.last_turn, False
        for event in events:
            if event.kind is Kind.SWITCH or event.seq == event.turn:
                is_other |= event.kind is Kind.SWITCH or event.parent not in (None, last)
                last = event.turn
        return last if is_other else None

    def switch_branch(
        self, view: ChatSnapshot, shown: Sequence[TurnSnapshot], after: str, tree: TurnTree
    ) -> list[PageChange]:
        """Return the change that shows another branch: its turns after the element ``after``."""
        self._view = ChatSnapshot(view.turns[-1:], view.last)
        self._answer_updaters.clear()
        self._sent_fragments.clear()
        frame = replace(self._frame, tree=tree)
        html = "\n".join(parts.render_turn(turn, frame) for turn in shown)
        return [{"after": after, "html": html}, {"state": view.state}]

    def changes(self, events: Sequence[ChatEvent]) -> list[PageChange]:
        """Return the changes for new events, in the order in which they must be applied."""
        before, now = self._view, self._view.apply(events)
        known = {turn.seq: turn for turn in before.turns}
        changes: list[PageChange] = []
        for turn in now.turns:
            old = known.get(turn.seq)
            if old is None:
                sent = {item.key: parts.render_item_fragments(item, self._frame) for item in turn.items}
                html = parts.render_turn(turn, self._frame, sent)
                changes.append(_replace_element(turn.key, html, TURNS_ELEMENT_ID))
                self._sent_fragments = sent
            # Views are immutable and shared: an identical object means that nothing changed.
            elif old is not turn:
                changes += self._turn_changes(old, turn)
        if any(event.kind is Kind.USAGE for event in events):
            usage = parts.find_context_usage(now.turns)
            if usage is not None and usage != parts.find_context_usage(before.turns):
                changes.append(_replace_element(parts.CONTEXT_ELEMENT_ID, parts.render_context_bar(usage)))
        state = now.state
        if state != before.state:
            changes.append({"state": state})
        # Older turns no longer change. Keeping only the last one bounds memory for pages that stay open for
        # days.
        self._view = ChatSnapshot(now.turns[-1:], now.last)
        if state == "idle":
            self._answer_updaters.clear()
        # Calls with a result hardly change any more, and a turn may have hundreds.
        running = {call.key for turn in self._view.turns for call in turn.open_calls}
        self._sent_fragments = {key: sent for key, sent in self._sent_fragments.items() if key in running}
        return changes

    def _turn_changes(self, old: TurnSnapshot, now: TurnSnapshot) -> Iterator[PageChange]:
        known = {item.key: item for item in old.items}
        for item in now.items:
            before = known.get(item.key)
            if before is None:
                sent = self._sent_fragments[item.key] = parts.render_item_fragments(item, self._frame)
                yield _replace_element(
                    item.key, parts.render_item(item, self._frame, sent), f"{now.key}-items"
                )
                yield from _announce_item(None, item)
            elif before is not item:
                yield from self._item_changes(before, item, now)
                yield from _announce_item(before, item)
        # Most changes of the footer are those of its own facts, and need no look at the calls.
        is_other = (old.end, old.usage, old.title_usage) != (now.end, now.usage, now.title_usage)
        if is_other or _is_footer_active(old) != _is_footer_active(now):
            yield _replace_element(f"{now.key}-foot", parts.render_turn_footer(now, self._frame))

    def _item_changes(self, old: TurnItem, now: TurnItem, turn: TurnSnapshot) -> Iterator[PageChange]:
        if isinstance(old, AnswerSnapshot) and isinstance(now, AnswerSnapshot):
            yield from self._answer_changes(old, now, turn)
            return
        sent = self._sent_fragments.get(now.key)
        before = parts.render_item_fragments(old, self._frame) if sent is None else sent
        fragments = self._sent_fragments[now.key] = parts.render_item_fragments(now, self._frame)
        for id_, html in fragments.items():
            # Do not replace a question without need, because someone may be filling in its form.
            if before.get(id_) != html or not (sent or id_.startswith("q")):
                yield _replace_element(id_, html, f"{now.key}-questions")

    def _answer_changes(
        self, old: AnswerSnapshot, now: AnswerSnapshot, turn: TurnSnapshot
    ) -> Iterator[PageChange]:
        # The text did not only grow, so blocks on the page may be wrong: send the whole answer.
        if not now.text.startswith(old.text):
            self._answer_updaters.pop(now.key, None)
            yield _replace_element(now.key, parts.render_item(now, self._frame), f"{turn.key}-items")
            return
        yield from self._reasoning_changes(old, now)
        updater = self._answer_updaters.get(now.key) or _AnswerUpdater(now.key, old.text, self._frame)
        self._answer_updaters[now.key] = updater
        yield from updater.add(now.text[len(old.text) :])
        if now.whole:
            yield from updater.end()
            del self._answer_updaters[now.key]

    def _reasoning_changes(self, old: AnswerSnapshot, now: AnswerSnapshot) -> Iterator[PageChange]:
        more = now.reasoning.removeprefix(old.reasoning)
        same_frame = (old.whole, bool(old.text)) == (now.whole, bool(now.text))
        # Reasoning that only grew is appended, without rendering it again.
        if old.reasoning and same_frame and now.reasoning.startswith(old.reasoning):
            if more:
                yield {"id": f"{now.key}-thoughts", "text": visible(more)}
            return
        for id_, html in parts.render_item_fragments(now, self._frame).items():
            if html != parts.render_item_fragments(old, self._frame)[id_]:
                yield _replace_element(id_, html)


class _AnswerUpdater:
    """Blocks of one answer that the page shows, and the state of the last, growing one."""

    def __init__(self, key: str, text: str, frame: parts.FragmentContext) -> None:
        self._key = key
        self._frame = frame
        self._blocks = MarkdownBlockSplitter()
        self._blocks.add(text)
        self._rendered_characters = 0
        """Length of the last block when it was last rendered; 0 if the page may show something else."""

    def add(self, piece: str) -> Iterator[PageChange]:
        """Yield the changes for new text."""
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
        """Yield the changes at the end of the answer."""
        if self._blocks.tail:
            yield {**self._render_tail(), "done": True}

    def _render_tail(self) -> PageChange:
        self._rendered_characters = len(self._blocks.tail)
        return self._render_block_change(len(self._blocks.finished_blocks), self._blocks.tail)

    def _render_block_change(self, number: int, text: str, *, is_finished: bool = False) -> PageChange:
        html = parts.render_block(self._key, number, text, self._frame)
        change = _replace_element(f"{self._key}-b{number}", html, f"{self._key}-text")
        return {**change, "done": True} if is_finished else change


def _is_footer_active(turn: TurnSnapshot) -> tuple[str, bool]:
    return turn.state, parts.FragmentContext.is_waiting(turn)


def _replace_element(id_: str, html: str, into: str = "") -> PageChange:
    return {"id": id_, "html": str(html), "into": into} if into else {"id": id_, "html": str(html)}


def _announce_item(old: TurnItem | None, now: TurnItem) -> Iterator[PageChange]:
    """Yield announcements for screen readers."""
    if isinstance(now, CallSnapshot):
        before = old.state if isinstance(old, CallSnapshot) else None
        words = {
            "runs": "is running",
            "asks": "needs your approval",
            "waits": "needs your input",
            "done": "is done",
            "failed": "failed",
            "stopped": "was stopped",
        }
        if now.state != before and now.state in words:
            yield {"say": f"{one_line(now.request.title or now.request.name, 60)} {words[now.state]}"}
    elif isinstance(now, QuestionSnapshot) and old is None:
        yield {"say": f"{one_line(now.question.server, 60)} needs your input"}
