"""The whole of a result as a model could read it, before any limit or fence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from toolyard.results.content_blocks import Part, read_block
from toolyard.results.readable_json import readable
from toolyard.types.result import Block, Media, Text
from toolyard.types.tool import JsonObject

__all__ = ["NO_OUTPUT", "View", "read"]

NO_OUTPUT = "(no output)"
MAX_BLOCKS = 1_000
"""Blocks of a result that are read one by one: each costs time again wherever the result is shown."""


class View(NamedTuple):
    """``text`` is empty where there was nothing at all."""

    text: str
    is_error: bool
    blocks: tuple[Block, ...]
    warnings: tuple[str, ...]
    parts: tuple[Part, ...] = ()

    def of(self, parts: Sequence[Part]) -> View:
        """The same with other parts."""
        blocks = tuple(part.block for part in parts)
        return self._replace(text=_joined(parts), blocks=blocks, parts=tuple(parts))


def read(raw: object) -> View:
    """Read what a server sent. Whatever it is, there is a view of it."""
    if not isinstance(raw, dict):
        text = readable(raw)
        return View(text, False, (Text(text),), ("the result is no object",))
    found = cast(JsonObject, raw)
    flag = found.get("isError")
    doubts = () if flag is None or isinstance(flag, bool) else ("isError is no boolean and counts as false",)
    parts, more = _parts(found)
    warnings = (f"block {at} {part.warning}" for at, part in enumerate(parts, 1) if part.warning)
    return View("", flag is True, (), (*doubts, *more, *warnings)).of(parts)


def _parts(raw: JsonObject) -> tuple[list[Part], tuple[str, ...]]:
    content = raw.get("content")
    if content:
        if isinstance(content, list):
            return _blocks(cast(list[object], content))
        text = readable(content)
        return [Part(Text(text), text)], ("content is no list",)
    structured: object = raw.get("structuredContent")
    if structured is None:
        return [], ()
    text = readable(structured)
    return [Part(Text(text), text)], ()


def _blocks(content: list[object]) -> tuple[list[Part], tuple[str, ...]]:
    """Read the blocks; of very many the first ones, and the others as one text of JSON."""
    parts = [read_block(block) for block in content[:MAX_BLOCKS]]
    rest = content[MAX_BLOCKS:]
    if not rest:
        return parts, ()
    text = readable(rest)
    told = f"content has {len(content):,} blocks; those after the first {MAX_BLOCKS:,} are shown as JSON"
    return [*parts, Part(Text(text), text)], (told,)


def _joined(parts: Iterable[Part]) -> str:
    text = "\n".join(part.text for part in parts if part.text is not None)
    if text:
        return text
    # Media travel beside the text; a model that cannot see them should know that they are there.
    return "\n".join(str(part.block) for part in parts if isinstance(part.block, Media))
