"""A text that is too long: its head, a note about what is missing, its tail."""

from __future__ import annotations

import unicodedata

__all__ = ["format_read_hint", "truncate_middle"]

ZERO_WIDTH_JOINER = "\u200d"
MAX_CUT_SHIFT_CHARS = 64
"""How far a cut moves to keep a character whole. Longer sequences are no language's, and are cut."""


def format_read_hint(handle: str | None) -> str | None:
    """How the rest is read of what has a handle; None without one."""
    return None if handle is None else f'result_read with handle "{handle}" reads them'


def truncate_middle(text: str, limit: int, read_hint: str | None) -> str:
    """The text in at most ``limit`` characters; the note says how much is missing and ``where`` it can be
    read, if anywhere.

    Two thirds of the room go to the head, since an answer begins there, the rest to the tail, where errors
    and totals stand.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - len(_format_omission_note(len(text), len(text), read_hint)))
    end = _find_cut_before(text, room * 2 // 3)
    start = _find_cut_after(text, len(text) - room // 3)
    note = _format_omission_note(start - end, len(text), read_hint)
    return f"{text[:end]}{note}{text[start:]}"[:limit]


def _format_omission_note(missing: int, total: int, read_hint: str | None) -> str:
    told = read_hint or "the whole text was not kept"
    return f"\n\n[{missing:,} of {total:,} characters are left out here; {told}]\n\n"


def _find_cut_before(text: str, at: int) -> int:
    for cut in range(at, max(at - MAX_CUT_SHIFT_CHARS, 0), -1):
        if not _is_one_character(text[cut - 1], text[cut]):
            return cut
    return at if at > MAX_CUT_SHIFT_CHARS else 0


def _find_cut_after(text: str, at: int) -> int:
    last = min(at + MAX_CUT_SHIFT_CHARS, len(text))
    for cut in range(at, last):
        if not _is_one_character(text[cut - 1], text[cut]):
            return cut
    return at if last < len(text) else len(text)


def _is_one_character(left: str, right: str) -> bool:
    """Whether a cut between the two would tear one visible character, or a pair of halves, apart."""
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
