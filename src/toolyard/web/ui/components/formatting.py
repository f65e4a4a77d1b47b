"""Formatting of times, counts, sizes, JSON and untrusted text for pages, also as template filters."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import orjson
from markupsafe import Markup, escape
from yarl import URL

from toolyard.results.json_size import is_large
from toolyard.results.readable_json import to_readable_json
from toolyard.types.plurals import format_count as count
from toolyard.types.visible_text import visible

__all__ = [
    "TEMPLATE_FILTERS",
    "ago",
    "capitalize_first",
    "code_spans",
    "compact",
    "count",
    "date",
    "extract_host",
    "iso",
    "money",
    "one_line",
    "pretty_json",
    "seconds",
    "sentence",
    "size",
    "visible",
]

_MAX_JSON_DEPTH = 250
_PLAIN_WORD_PATTERN = re.compile(r"[a-z]+(?=[ ,]|$)")
_CODE_SPAN_PATTERN = re.compile(r"`([^`\n]{1,200})`")
_DURATION_UNITS = ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (86400 * 60, 86400, "d"))


def iso(at: float) -> str:
    """Return a timestamp in ISO 8601, UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def ago(at: float, now: float | None = None) -> str:
    """Return a timestamp relative to now: ``5 min ago``, ``in 3 h``; older or later ones as a date."""
    distance = (time.time() if now is None else now) - at
    ahead, distance = distance < 0, abs(distance)
    for end, unit, word in _DURATION_UNITS:
        if distance < end:
            if distance < 5:
                return "just now"
            # A link for a day expires in 24 h, not in 23.
            duration = f"{round(distance / unit) if ahead else math.floor(distance / unit)} {word}"
            return f"in {duration}" if ahead else f"{duration} ago"
    return date(at)


def date(at: float) -> str:
    """Return the day of a timestamp, UTC: ``18 Dec 2026``."""
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %Y")


def capitalize_first(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def code_spans(text: str) -> Markup:
    """Return a text as HTML, with the words between backticks as code."""
    return Markup(_CODE_SPAN_PATTERN.sub(r"<code>\1</code>", str(escape(text))))


def one_line(text: object, max_characters: int = 200) -> str:
    """Return a text in one line, truncated to ``max_characters``."""
    # The rest of a long text cannot be part of the line, and to escape hidden characters takes time.
    start = str(text)[: 100 * max_characters]
    line = " ".join((start if start.isascii() and start.isprintable() else visible(start)).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def sentence(text: str) -> str:
    """Return a message with a capital first letter and a full stop. Causes and hints of errors have neither.

    Identifiers at the start stay as they are, and so does the end of a text of several lines, and a text that
    is a quotation.
    """
    if text[:1] == "“" and text[-1:] == "”":
        return text
    if _PLAIN_WORD_PATTERN.match(text):
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".!?:;…" or "\n" in text else f"{text}."


def extract_host(url: str) -> str:
    """Return the host of a URL as browsers interpret it, with international names in ASCII (punycode), so
    that look-alike letters are visible. Empty if it cannot be determined."""
    try:
        host = URL(url).raw_host or ""
    except ValueError:
        return ""
    # A percent sign (zone ids, encoded characters) is read differently by browsers: rather show no host.
    return "" if "%" in host else host


def pretty_json(value: object, max_characters: int | None = None) -> str:
    """Return indented JSON, truncated to ``max_characters``; a large value then has no indentation."""
    if max_characters is not None and is_large(value):
        # In short steps, of which none holds the GIL for long.
        return visible(to_readable_json(value, max_characters)[:max_characters], spaces=True)
    try:
        # A hundred times as fast as the indenting encoder of the standard library.
        return visible(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()[:max_characters], spaces=True)
    except TypeError:
        pass
    # Tool definitions and results come from servers and may be nested without limit. Each level indents all
    # levels below it, and the recursion limit depends on the version of Python.
    if _is_deeper_than(value, _MAX_JSON_DEPTH):
        return "(too deeply nested to display)"
    return visible(json.dumps(value, indent=2, ensure_ascii=False, default=str)[:max_characters], spaces=True)


def _is_deeper_than(value: object, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        children: list[object] = []
        for each in level:
            if isinstance(each, dict):
                children += cast("dict[str, object]", each).values()
            elif isinstance(each, list | tuple):
                children += cast("list[object]", each)
        if not children:
            return False
        level = children
    return True


def size(number: int) -> str:
    """Return a size in bytes for people: ``812 bytes``, ``4 KB``, ``5.2 MB``."""
    if number < 1_000:
        return count(number, "byte")
    return f"{number / 1_000:,.0f} KB" if number < 999_500 else f"{number / 1_000_000:,.1f} MB"


def compact(number: float) -> str:
    """Return a large number in few characters: ``99,999``, ``140K``, ``2.1M``, ``3.4B``."""
    if number < 100_000:
        return f"{number:,.0f}"
    if number < 999_500:
        return f"{number / 1_000:,.0f}K"
    return f"{number / 1e6:,.1f}M" if number < 999_950_000 else f"{number / 1e9:,.1f}B"


def money(dollars: float | Decimal) -> str:
    """Return an amount, with more digits if it is small: ``$0.00``, ``< $0.0001``, ``$0.0025``, ``$1.50``,
    ``$12,346``."""
    if dollars >= 10_000:
        return f"${dollars:,.0f}"
    if not dollars or dollars >= 1:
        return f"${dollars:,.2f}"
    return f"${dollars:.4f}" if dollars >= 0.0001 else "< $0.0001"


def seconds(number: float) -> str:
    """Return a duration: ``< 0.01 s``, ``0.04 s``, ``12 s``, ``3 min 20 s``."""
    if 0 <= number < 0.005:
        return "< 0.01 s"
    if number < 10:
        return f"{number:.2f} s"
    if number < 60:
        return f"{number:.0f} s"
    minutes, rest = divmod(round(number), 60)
    return f"{minutes:,} min {rest} s"


TEMPLATE_FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "capitalize_first": capitalize_first,
    "code_spans": code_spans,
    "compact": compact,
    "count": count,
    "date": date,
    "iso": iso,
    "money": money,
    "one_line": one_line,
    "pretty_json": pretty_json,
    "seconds": seconds,
    "sentence": sentence,
    "size": size,
    "visible": visible,
}
"""The functions above as template filters."""
