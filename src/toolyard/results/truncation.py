"""A text that is too long: its head, a note about what is missing, its tail."""

from __future__ import annotations

import unicodedata

__all__ = ["by_handle", "shorten"]

JOINER = "\u200d"
FARTHEST = 64
"""How far a cut moves to keep a character whole. Longer sequences are no language's, and are cut."""


def by_handle(handle: str | None) -> str | None:
    """How the rest is read of what has a handle; None without one."""
    return None if handle is None else f'result_read with handle "{handle}" reads them'


def shorten(text: str, limit: int, where: str | None) -> str:
    """The text in at most ``limit`` characters; the note says how much is missing and ``where`` it can be
    read, if anywhere.

    Two thirds of the room go to the head, since an answer begins there, the rest to the tail, where errors
    and totals stand.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - len(_note(len(text), len(text), where)))
    end = _whole_before(text, room * 2 // 3)
    start = _whole_after(text, len(text) - room // 3)
    note = _note(start - end, len(text), where)
    return f"{text[:end]}{note}{text[start:]}"[:limit]


def _note(missing: int, total: int, where: str | None) -> str:
    told = where or "the whole text was not kept"
    return f"\n\n[{missing:,} of {total:,} characters are left out here; {told}]\n\n"


def _whole_before(text: str, at: int) -> int:
    for cut in range(at, max(at - FARTHEST, 0), -1):
        if not _belong_together(text[cut - 1], text[cut]):
            return cut
    return at if at > FARTHEST else 0


def _whole_after(text: str, at: int) -> int:
    last = min(at + FARTHEST, len(text))
    for cut in range(at, last):
        if not _belong_together(text[cut - 1], text[cut]):
            return cut
    return at if last < len(text) else len(text)


def _belong_together(left: str, right: str) -> bool:
    """Whether a cut between the two would tear one visible character, or a pair of halves, apart."""
    if right < "\u0300":
        return left == "\r" and right == "\n"
    return (
        left == JOINER
        or right == JOINER
        or unicodedata.category(right)[0] == "M"
        or ("\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff")
        or "\u1160" <= right <= "\u11ff"  # Hangul vowels and finals that join the consonant before them
        or "\U0001f3fb" <= right <= "\U0001f3ff"  # skin tones
        or ("\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff")  # flags
        or "\U000e0020" <= right <= "\U000e007f"  # tags of regional flags
    )
