"""The whole of a result as a model could read it, before any limit or fence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from toolyard.results.content_blocks import ParsedBlock, parse_block
from toolyard.results.readable_json import to_readable_json
from toolyard.types.result import ContentBlock, Media, TextBlock
from toolyard.types.tool import JsonObject

__all__ = ["NO_OUTPUT_TEXT", "ParsedResult", "parse_result"]

NO_OUTPUT_TEXT = "(no output)"
MAX_BLOCKS = 1_000
"""Blocks of a result that are read one by one: each costs time again wherever the result is shown."""


class ParsedResult(NamedTuple):
    """``text`` is empty where there was nothing at all."""

    text: str
    is_error: bool
    blocks: tuple[ContentBlock, ...]
    warnings: tuple[str, ...]
    parts: tuple[ParsedBlock, ...] = ()

    def with_parts(self, parts: Sequence[ParsedBlock]) -> ParsedResult:
        """The same with other parts."""
        blocks = tuple(part.block for part in parts)
        return self._replace(text=_join_text(parts), blocks=blocks, parts=tuple(parts))


def parse_result(raw: object) -> ParsedResult:
    """Read what a server sent. Whatever it is, there is a view of it."""
    if not isinstance(raw, dict):
        text = to_readable_json(raw)
        return ParsedResult(text, False, (TextBlock(text),), ("the result is no object",))
    found = cast(JsonObject, raw)
    flag = found.get("isError")
    doubts = () if flag is None or isinstance(flag, bool) else ("isError is no boolean and counts as false",)
    parts, more = _parse_parts(found)
    warnings = (f"block {at} {part.warning}" for at, part in enumerate(parts, 1) if part.warning)
    return ParsedResult("", flag is True, (), (*doubts, *more, *warnings)).with_parts(parts)


def _parse_parts(raw: JsonObject) -> tuple[list[ParsedBlock], tuple[str, ...]]:
    content = raw.get("content")
    if content:
        if isinstance(content, list):
            return _blocks(cast(list[object], content))
        text = to_readable_json(content)
        return [ParsedBlock(TextBlock(text), text)], ("content is no list",)
    structured: object = raw.get("structuredContent")
    if structured is None:
        return [], ()
    text = to_readable_json(structured)
    return [ParsedBlock(TextBlock(text), text)], ()


def _blocks(content: list[object]) -> tuple[list[ParsedBlock], tuple[str, ...]]:
    """Read the blocks; of very many the first ones, and the others as one text of JSON."""
    parts = [parse_block(block) for block in content[:MAX_BLOCKS]]
    rest = content[MAX_BLOCKS:]
    if not rest:
        return parts, ()
    text = to_readable_json(rest)
    told = f"content has {len(content):,} blocks; those after the first {MAX_BLOCKS:,} are shown as JSON"
    return [*parts, ParsedBlock(TextBlock(text), text)], (told,)


def _join_text(parts: Iterable[ParsedBlock]) -> str:
    text = "\n".join(part.text for part in parts if part.text is not None)
    if text:
        return text
    # Media travel beside the text; a model that cannot see them should know that they are there.
    return "\n".join(str(part.block) for part in parts if isinstance(part.block, Media))
