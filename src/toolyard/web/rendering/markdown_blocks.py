"""Markdown that is still being written: blocks that are finished and stay, and the one that grows.

So a page gets each block about once, however long the answer. Where blocks end depends on the text alone, not
on the pieces in which it came: whoever begins anew in the middle finds the same blocks.
"""

from __future__ import annotations

import re
from functools import cache

from markdown_it import MarkdownIt

from toolyard.types.visible_text import visible
from toolyard.web.rendering.markdown import build_parser

__all__ = ["MarkdownBlockSplitter", "split_blocks"]

_MAX_ALWAYS_PARSED_CHARACTERS = 512
"""Characters. A block that is longer is parsed again only when it has grown by a quarter."""
_MAX_PARSED_CHARACTERS = 8_192
"""Characters from which on a block with a code fence is not parsed for its end any more: it goes on."""
_CHUNK_CHARACTERS = 8_192
_FENCE_PATTERN = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_LIST_ITEM_PATTERN = re.compile(r" {0,3}(?:[-+*]|[0-9]{1,9}[.)])(?:\s|$)")


class MarkdownBlockSplitter:
    """A text that grows. ``finished`` never change any more; ``tail`` is what comes after them."""

    def __init__(self) -> None:
        self.finished_blocks: list[str] = []
        self.tail = ""
        self._line_start = 0
        """Where the line begins that is looked at next."""
        self._after_blank = False
        self._next_parse_start = 0
        """Lines that begin before this need no judgement."""
        self._has_fence = self._has_list = False
        """Whether the block may contain a code fence in another block, or a list."""
        self._open_fence = ""
        """What opened the code fence that the block begins with, until it is closed."""

    def add(self, piece: str) -> None:
        """Let the text grow."""
        # In parts: each block that is finished is cut off from what is there by then.
        for at in range(0, len(piece), _CHUNK_CHARACTERS):
            self.tail += piece[at : at + _CHUNK_CHARACTERS]
            while self._scan_line():
                pass

    @property
    def all_blocks(self) -> list[str]:
        """Every block, the one that grows too."""
        return [*self.finished_blocks, self.tail] if self.tail else list(self.finished_blocks)

    def _scan_line(self) -> bool:
        """Look at one line; False where more must come before it is done with."""
        start, end = self._line_start, self.tail.find("\n", self._line_start) + 1
        first = self.tail[start : start + 1]
        # A letter begins a paragraph, however its line goes on; of other lines the whole must be known.
        known = start + 1 if first.isalpha() else end
        if known and self._after_blank and not first.isspace() and self._is_block_start(start, known):
            self._finish_block(start)
            return True
        if end:
            line = self.tail[start:end]
            self._after_blank = not line.strip()
            self._track_fence(line, start)
            self._has_list = self._has_list or _LIST_ITEM_PATTERN.match(line) is not None
            self._line_start = end
        return bool(end)

    def _is_block_start(self, start: int, known: int) -> bool:
        """Tell whether a line that is not indented, after a blank one, begins a block.

        It does, unless it may be the next item of a list, or is within a code fence, which only the parser
        knows. A block that is not split renders the same, so a doubt costs nothing.
        """
        if self._open_fence:
            return False
        if not self._has_fence:
            return not (self._has_list and _LIST_ITEM_PATTERN.match(self.tail, start))
        if not self._next_parse_start <= start <= _MAX_PARSED_CHARACTERS:
            return False
        self._next_parse_start = start + max(start // 4 if start > _MAX_ALWAYS_PARSED_CHARACTERS else 0, 1)
        return _is_top_level_block_start(self.tail[:known], start)

    def _finish_block(self, at: int) -> None:
        self.finished_blocks.append(self.tail[:at])
        self.tail = self.tail[at:]
        self._line_start = self._next_parse_start = 0
        self._after_blank = self._has_fence = self._has_list = False
        self._open_fence = ""

    def _track_fence(self, line: str, start: int) -> None:
        found = _FENCE_PATTERN.match(line)
        if start == 0 and found and not ("`" in found[1] and "`" in found[2]):
            self._open_fence = found[1]
        elif self._open_fence:
            if found and found[1].startswith(self._open_fence) and not found[2].strip(" \t\r\n"):
                self._open_fence = ""
        else:
            self._has_fence = self._has_fence or "```" in line or "~~~" in line


def split_blocks(text: str) -> list[str]:
    """The blocks of a whole text: the same as if it had come in pieces."""
    blocks = MarkdownBlockSplitter()
    blocks.add(text)
    return blocks.all_blocks


def _is_top_level_block_start(text: str, start: int) -> bool:
    """Whether the last line, which begins at ``start``, begins a block that stands in no other."""
    line = text.count("\n", 0, start)
    tokens = _build_block_parser().parse(visible(text))
    return any(token.level == 0 and token.map and token.map[0] == line for token in reversed(tokens))


@cache
def _build_block_parser() -> MarkdownIt:
    """The parser, for blocks only."""
    made = MarkdownIt("commonmark", build_parser().options)
    made.block.ruler = build_parser().block.ruler
    made.core.ruler.enableOnly(["normalize", "block"])
    return made
