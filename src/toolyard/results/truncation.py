"""Truncation of long texts in the middle, with a note about the omitted part."""

from __future__ import annotations

import unicodedata

__all__ = ["format_read_hint", "truncate_middle"]

ZERO_WIDTH_JOINER = "\u200d"
MAX_CUT_SHIFT_CHARS = 64
"""Maximum distance that a cut is moved to keep a visible character whole. No language has longer
sequences."""


def format_read_hint(handle: str | None) -> str | None:
    """Return the sentence that tells a model how to read the omitted part; None without a handle."""
    return None if handle is None else f'result_read with handle "{handle}" reads them'


def truncate_middle(text: str, limit: int, read_hint: str | None) -> str:
    """Return the text in at most ``limit`` characters, with a note about the omitted part and ``read_hint``.

    Two thirds of the length go to the start, where answers begin, the rest to the end, where errors and
    totals usually are.
    """
    if len(text) <= limit:
        return text
    # The final note has at most as many digits as this one, so the result fits.
    max_chars = max(0, limit - len(_format_omission_note(len(text), len(text), read_hint)))
    end = _find_cut_before(text, max_chars * 2 // 3)
    start = _find_cut_after(text, len(text) - max_chars // 3)
    note = _format_omission_note(start - end, len(text), read_hint)
    return f"{text[:end]}{note}{text[start:]}"[:limit]


def _format_omission_note(missing: int, total: int, read_hint: str | None) -> str:
    hint = read_hint or "the whole text was not stored"
    return f"\n\n[{missing:,} of {total:,} characters are omitted here; {hint}]\n\n"


def _find_cut_before(text: str, position: int) -> int:
    for cut in range(position, max(position - MAX_CUT_SHIFT_CHARS, 0), -1):
        if not _is_one_character(text[cut - 1], text[cut]):
            return cut
    return position if position > MAX_CUT_SHIFT_CHARS else 0


def _find_cut_after(text: str, position: int) -> int:
    last = min(position + MAX_CUT_SHIFT_CHARS, len(text))
    for cut in range(position, last):
        if not _is_one_character(text[cut - 1], text[cut]):
            return cut
    return position if last < len(text) else len(text)


def _is_one_character(left: str, right: str) -> bool:
    """Return True if a cut between both code points would split a visible character or a surrogate pair."""
    # A simplification of Unicode grapheme clusters (UAX #29), enough to avoid broken characters in texts.
    if right < "\u0300":
        return left == "\r" and right == "\n"
    return (
        left == ZERO_WIDTH_JOINER
        or right == ZERO_WIDTH_JOINER
        or unicodedata.category(right)[0] == "M"
        or ("\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff")
        or "\u1160" <= right <= "\u11ff"  # Hangul vowels and finals that join the consonant before them
        or "\U0001f3fb" <= right <= "\U0001f3ff"  # skin tones
        or ("\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff")  # flags
        or "\U000e0020" <= right <= "\U000e007f"  # tags of regional flags
    )
