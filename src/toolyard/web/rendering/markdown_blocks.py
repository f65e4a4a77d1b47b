"""Splitting of streamed Markdown into finished blocks and a growing tail.

A page receives each block about once, however long the response. The boundaries depend on the text only, not
on how it was cut into pieces, so that a client that reconnects in the middle gets the same blocks.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from toolyard.types.visible_text import visible
from toolyard.web.rendering.markdown import build_parser

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["MarkdownBlockSplitter", "split_blocks"]

_MAX_ALWAYS_PARSED_CHARACTERS = 512
"""Length in characters up to which a block is parsed at each candidate; longer ones after growing by 25 %."""
_MAX_PARSED_CHARACTERS = 8_192
"""Length in characters beyond which a block with a code fence is no longer split."""
_FREE_PARSED_CHARACTERS = 60_000
"""Number of characters that may be parsed in addition to the length of the text so far. Where a text needs
more, which only a hostile one does, it is not split."""
_PARSE_OVERHEAD_CHARACTERS = 100
"""Cost of one use of the parser beside that of its characters."""
_CHUNK_CHARACTERS = 8_192
_MAX_SHORT_BLOCKS = 200
_MIN_LATER_BLOCK_CHARACTERS = 2_000
"""Length of blocks after the first ``_MAX_SHORT_BLOCKS``. Browsers take seconds to add tens of thousands of
elements beside each other one by one, which a model that repeats a short paragraph would need."""
_FENCE_PATTERN = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_LIST_ITEM_PATTERN = re.compile(r" {0,3}(?:[-+*]|[0-9]{1,9}[.)])(?:\s|$)")


class MarkdownBlockSplitter:
    """Incremental splitter. ``finished_blocks`` never change; ``tail`` is the text after them."""

    def __init__(self) -> None:
        self.finished_blocks: list[str] = []
        self.tail = ""
        self._line_start = 0
        """Offset in the tail of the next line to scan."""
        self._after_blank = False
        self._next_parse_start = 0
        """Offset in the tail before which the parser is not used again."""
        self.parsed_characters = 0
        """Cost of all uses of the parser so far."""
        self._finished_characters = 0
        self._has_fence = self._has_list = False
        """True if the tail may contain a nested code fence, or a list."""
        self._open_fence = ""
        """Marker of the code fence that the tail begins with, until it is closed."""

    def add(self, piece: str) -> None:
        """Append a piece of text."""
        # In chunks: finishing a block copies the rest of the tail, which should stay short.
        for at in range(0, len(piece), _CHUNK_CHARACTERS):
            self.tail += piece[at : at + _CHUNK_CHARACTERS]
            while self._scan_line():
                pass

    @property
    def all_blocks(self) -> list[str]:
        """All blocks, including the tail."""
        return [*self.finished_blocks, self.tail] if self.tail else list(self.finished_blocks)

    def _scan_line(self) -> bool:
        """Scan one line. Return False if more text is needed first."""
        start, end = self._line_start, self.tail.find("\n", self._line_start) + 1
        first = self.tail[start : start + 1]
        # A line that begins with a letter is a paragraph, whatever follows; other lines must be complete.
        known_end = start + 1 if first.isalpha() else end
        if (
            known_end
            and self._after_blank
            and not first.isspace()
            and self._is_long_enough(start)
            and self._is_block_start(start, known_end)
        ):
            self._finish_block(start)
            return True
        if end:
            line = self.tail[start:end]
            self._after_blank = not line.strip()
            self._track_fence(line, start)
            self._has_list = self._has_list or _LIST_ITEM_PATTERN.match(line) is not None
            self._line_start = end
        return bool(end)

    def _is_long_enough(self, start: int) -> bool:
        """Return True if a block may end there. A code fence always begins a block."""
        return (
            len(self.finished_blocks) < _MAX_SHORT_BLOCKS
            or start >= _MIN_LATER_BLOCK_CHARACTERS
            or self.tail[start] in "`~"
        )

    def _is_block_start(self, start: int, known_end: int) -> bool:
        """Return True if an unindented line after a blank one begins a new block.

        It does, unless it may be the next item of a list, or lies within a code fence, which only the parser
        can decide. Not splitting is always correct, because the larger block renders the same.
        """
        if self._open_fence:
            return False
        if not self._has_fence:
            return not (self._has_list and _LIST_ITEM_PATTERN.match(self.tail, start))
        if not self._next_parse_start <= start <= _MAX_PARSED_CHARACTERS:
            return False
        cost = known_end + _PARSE_OVERHEAD_CHARACTERS
        if self.parsed_characters + cost > _FREE_PARSED_CHARACTERS + self._finished_characters + start:
            return False
        self.parsed_characters += cost
        self._next_parse_start = start + max(start // 4 if start > _MAX_ALWAYS_PARSED_CHARACTERS else 0, 1)
        return _is_top_level_block_start(self.tail[:known_end], start)

    def _finish_block(self, at: int) -> None:
        self.finished_blocks.append(self.tail[:at])
        self._finished_characters += at
        self.tail = self.tail[at:]
        self._line_start = self._next_parse_start = 0
        self._after_blank = self._has_fence = self._has_list = False
        self._open_fence = ""

    def _track_fence(self, line: str, start: int) -> None:
        fence = _FENCE_PATTERN.match(line)
        # The info string of a backtick fence must not contain backticks (CommonMark).
        if start == 0 and fence and not ("`" in fence[1] and "`" in fence[2]):
            self._open_fence = fence[1]
        elif self._open_fence:
            if fence and fence[1].startswith(self._open_fence) and not fence[2].strip(" \t\r\n"):
                self._open_fence = ""
        else:
            self._has_fence = self._has_fence or "```" in line or "~~~" in line


def split_blocks(text: str) -> list[str]:
    """Return the blocks of a complete text, the same as if it had been added in pieces."""
    blocks = MarkdownBlockSplitter()
    blocks.add(text)
    return blocks.all_blocks


def _is_top_level_block_start(text: str, start: int) -> bool:
    """Return True if the last line, beginning at ``start``, begins a block that is not nested."""
    line = text.count("\n", 0, start)
    tokens = _build_block_parser().parse(visible(text))
    return any(token.level == 0 and token.map and token.map[0] == line for token in reversed(tokens))


@cache
def _build_block_parser() -> MarkdownIt:
    """Return a parser without inline parsing, which is not needed to find blocks."""
    from markdown_it import MarkdownIt  # imported late: slow to load

    parser = MarkdownIt("commonmark", build_parser().options)
    parser.block.ruler = build_parser().block.ruler
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
