"""Escape invisible characters, so that a text cannot pass for another one to its reader.

Use ``visible`` for all text from servers, files or other users on which a person bases a decision: approvals,
questions, differences between definitions, configuration files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

__all__ = ["escape_formulas", "hidden_characters", "hidden_or_space", "visible"]

_IDEOGRAPH_RANGES = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SYMBOL_RANGES = r"\xa9\xae\u203c-\u3299\U0001f000-\U0001faff"
"""Emoji, and symbols that have an emoji form."""
_JOINING_SCRIPT_RANGES = (
    r"\u0600-\u109f\u1780-\u18af\u1b00-\u1bff\ufb50-\ufdff\ufe70-\ufefc\U00011000-\U00011fff"
)
"""Scripts in which a joiner between two letters changes their shape."""
_ALWAYS_HIDDEN_RANGES = (
    # Controls (not tab and line feed), format characters, surrogates, private use, line and paragraph
    # separators, and letters and marks without a glyph.
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    r"\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufeff"
    r"\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff\U000f0000-\U0010ffff"
)
_SOMETIMES_HIDDEN_RANGES = r"\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_IS_HIDDEN_HERE = (
    # Conditions after a character that is hidden in some places. A joiner is legitimate where it has a
    # visible effect: between letters of some scripts, within an emoji.
    rf"(?<=(?<![{_JOINING_SCRIPT_RANGES}])\u200c)|(?<=\u200c)(?![{_JOINING_SCRIPT_RANGES}])"
    rf"|(?<=(?<![{_JOINING_SCRIPT_RANGES}{_SYMBOL_RANGES}\ufe0f])\u200d)"
    rf"|(?<=\u200d)(?![{_JOINING_SCRIPT_RANGES}{_SYMBOL_RANGES}])"
    # Variation selectors choose the form of the one character before them.
    rf"|(?<=(?<![{_IDEOGRAPH_RANGES}])[\ufe00-\ufe0d\U000e0100-\U000e01ef])"
    rf"|(?<=(?<![{_SYMBOL_RANGES}])[\ufe0e\ufe0f])(?!(?<=[#*0-9]\ufe0f)\u20e3)"
)
_LOOKALIKE_SPACE_RANGES = r"\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"


def _compile_hidden_run(always_hidden_ranges: str) -> re.Pattern[str]:
    """Return a pattern for runs of hidden characters.

    It begins with a set of characters, so that ``re`` skips all others quickly. The length of a run is
    limited, so that it needs little memory for backtracking: with possessive quantifiers, Python before
    3.11.5 does not end for some texts.
    """
    one = (
        rf"[{always_hidden_ranges}{_SOMETIMES_HIDDEN_RANGES}]"
        rf"(?:(?<=[{always_hidden_ranges}])|{_IS_HIDDEN_HERE})"
    )
    return re.compile(rf"{one}(?:{one}){{0,{_MAX_RUN_CHARACTERS}}}")


# Compiled on first use, because that takes long.


@cache
def hidden_characters() -> re.Pattern[str]:
    """Return the pattern for runs of hidden characters."""
    return _compile_hidden_run(_ALWAYS_HIDDEN_RANGES)


@cache
def hidden_or_space() -> re.Pattern[str]:
    """Return the pattern for runs of hidden characters, and of spaces that look like U+0020."""
    return _compile_hidden_run(_ALWAYS_HIDDEN_RANGES + _LOOKALIKE_SPACE_RANGES)


_STEP_CHARACTERS = 20_000
_MAX_RUN_CHARACTERS = 1_000
_ASCII_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]++")
_LATIN_1_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x100)}
"""Escapes of characters that the codec's error handler would write as ``\\x00``."""


def visible(text: object, *, spaces: bool = False, step_characters: int = _STEP_CHARACTERS) -> str:
    r"""Return the text with invisible characters replaced by escapes (``\u200b``).

    Line feeds and tabs remain.

    With ``spaces``, spaces that look like U+0020 are escaped, too, for text in which every character counts.
    Other threads can run after each ``step_characters``.
    """
    plain = str(text).replace("\r\n", "\n")
    pattern = _ASCII_HIDDEN if plain.isascii() else hidden_or_space() if spaces else hidden_characters()
    if len(plain) <= step_characters:
        return pattern.sub(lambda match: _escape_run(match[0]), plain)
    # ``re`` holds the interpreter lock. In steps, a thread that does this lets other threads run.
    return "".join(
        part
        for start in range(0, len(plain), step_characters)
        for part in _escape_part(pattern, plain, start, min(start + step_characters, len(plain)))
    )


def _escape_part(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[str]:
    """Yield the pieces of ``text[start:end]``, escaped as in the whole text."""
    # The character after the part decides whether the last one is hidden. What is before the part can be
    # seen by the pattern anyway.
    for match in pattern.finditer(text, start, end + 1):
        yield text[start : min(match.start(), end)]
        yield _escape_run(text[match.start() : min(match.end(), end)])
        start = match.end()
    yield text[start:end]


def _escape_run(run: str) -> str:
    if len(run) == 1:
        code = ord(run)
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return run.translate(_LATIN_1_ESCAPES).encode("ascii", "backslashreplace").decode("ascii")


_FORMULA_PATTERN = re.compile(
    r"^(?=[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n])|(?<=[;\t\r\n])(?=[=+@\uff1d\uff0b\uff0d\uff20]|-(?! ))"
)
"""Beginnings of formulas, also in full-width characters."""


def escape_formulas(text: str) -> str:
    """Return the text of a cell for a spreadsheet, with an apostrophe before all that begins like a formula.

    In many countries spreadsheets divide the lines of a CSV file at semicolons, also within a quoted text.
    """
    return _FORMULA_PATTERN.sub("'", text)
