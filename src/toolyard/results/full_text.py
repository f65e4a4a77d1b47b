"""Parsing of a raw result into blocks and its full text, before limits and fences are applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from toolyard.results.content_blocks import ParsedBlock, parse_block
from toolyard.results.readable_json import to_readable_json
from toolyard.types.tool import ContentBlock, JsonObject, Media, TextBlock

__all__ = ["NO_OUTPUT_TEXT", "ParsedResult", "parse_result"]

NO_OUTPUT_TEXT = "(no output)"
MAX_BLOCKS = 1_000
"""Maximum number of blocks parsed one by one, since each costs time again wherever the result is shown."""


class ParsedResult(NamedTuple):
    """A parsed result. ``text`` is empty if the result has no content."""

    text: str
    is_error: bool
    blocks: tuple[ContentBlock, ...]
    warnings: tuple[str, ...]
    parts: tuple[ParsedBlock, ...] = ()

    def with_parts(self, parts: Sequence[ParsedBlock]) -> ParsedResult:
        """Return a copy with other parts, and the blocks and text derived from them."""
        blocks = tuple(part.block for part in parts)
        return self._replace(text=_join_text(parts), blocks=blocks, parts=tuple(parts))


def parse_result(raw: object) -> ParsedResult:
    """Parse a raw result. Never raises: invalid parts are shown as JSON and described in ``warnings``."""
    if not isinstance(raw, dict):
        text = to_readable_json(raw)
        return ParsedResult(text, False, (TextBlock(text),), ("the result is not an object",))
    fields = cast(JsonObject, raw)
    flag = fields.get("isError")
    flag_warnings = (
        () if flag is None or isinstance(flag, bool) else ("isError is not a boolean and counts as false",)
    )
    parts, content_warnings = _parse_parts(fields)
    block_warnings = (
        f"block {number} {part.warning}" for number, part in enumerate(parts, 1) if part.warning
    )
    warnings = (*flag_warnings, *content_warnings, *block_warnings)
    return ParsedResult("", flag is True, (), warnings).with_parts(parts)


def _parse_parts(raw: JsonObject) -> tuple[list[ParsedBlock], tuple[str, ...]]:
    content = raw.get("content")
    if content:
        if isinstance(content, list):
            return _parse_blocks(cast(list[object], content))
        text = to_readable_json(content)
        return [ParsedBlock(TextBlock(text), text)], ("content is not a list",)
    structured: object = raw.get("structuredContent")
    if structured is None:
        return [], ()
    text = to_readable_json(structured)
    return [ParsedBlock(TextBlock(text), text)], ()


def _parse_blocks(content: list[object]) -> tuple[list[ParsedBlock], tuple[str, ...]]:
    """Parse the first ``MAX_BLOCKS`` blocks, and combine the others into one text of JSON."""
    parts = [parse_block(block) for block in content[:MAX_BLOCKS]]
    rest = content[MAX_BLOCKS:]
    if not rest:
        return parts, ()
    text = to_readable_json(rest)
    warning = f"content has {len(content):,} blocks; those after the first {MAX_BLOCKS:,} are shown as JSON"
    return [*parts, ParsedBlock(TextBlock(text), text)], (warning,)


def _join_text(parts: Iterable[ParsedBlock]) -> str:
    text = "\n".join(part.text for part in parts if part.text is not None)
    if text:
        return text
    # Media are passed beside the text. Mention them, for models that cannot process them.
    return "\n".join(str(part.block) for part in parts if isinstance(part.block, Media))
