"""Markdown that is still being written: blocks that are finished and stay, and the one that grows.

So a page gets each block about once, however long the answer. Where blocks end depends on the text alone, not
on the pieces in which it came: whoever begins anew in the middle finds the same blocks.
"""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt

from toolyard.web.ui.markdown import parser
from toolyard.web.ui.saying import visible

__all__ = ["Blocks", "blocks_of"]

_SHORT = 4_096
"""Characters. A block that is longer is looked at again only when it has grown by an eighth."""


class Blocks:
    """A text that grows. ``finished`` never change any more; ``tail`` is what comes after them."""

    def __init__(self) -> None:
        self.finished: list[str] = []
        self.tail = ""
        self._line = 0
        """Where the line begins that is looked at next."""
        self._after_blank = False
        self._judged_to = 0
        """Lines that begin before this need no judgement."""

    def add(self, piece: str) -> None:
        """Let the text grow."""
        self.tail += piece
        while self._look():
            pass

    @property
    def all(self) -> list[str]:
        """Every block, the one that grows too."""
        return [*self.finished, self.tail] if self.tail else list(self.finished)

    def _look(self) -> bool:
        """Look at one line; False where more must come before it is done with."""
        start, end = self._line, self.tail.find("\n", self._line) + 1
        first = self.tail[start : start + 1]
        # A letter begins a paragraph, however its line goes on; of other lines the whole must be known.
        known = start + 1 if first.isalpha() else end
        if known and self._after_blank and start >= self._judged_to and not first.isspace():
            if _begins_block(self.tail[:known], start):
                self._finish(start)
                return True
            self._judged_to = start + max(start // 8 if start > _SHORT else 0, 1)
        if end:
            self._after_blank = not self.tail[start:end].strip()
            self._line = end
        return bool(end)

    def _finish(self, at: int) -> None:
        self.finished.append(self.tail[:at])
        self.tail = self.tail[at:]
        self._line = self._judged_to = 0
        self._after_blank = False


def blocks_of(text: str) -> list[str]:
    """The blocks of a whole text: the same as if it had come in pieces."""
    blocks = Blocks()
    blocks.add(text)
    return blocks.all


def _begins_block(text: str, start: int) -> bool:
    """Whether the last line, which begins at ``start``, begins a block that stands in no other."""
    line = text.count("\n", 0, start)
    tokens = _outline().parse(visible(text))
    return any(token.level == 0 and token.map and token.map[0] == line for token in reversed(tokens))


@cache
def _outline() -> MarkdownIt:
    """The parser, for blocks only."""
    made = MarkdownIt("commonmark", parser().options)
    made.block.ruler = parser().block.ruler
    made.core.ruler.enableOnly(["normalize", "block"])
    return made
