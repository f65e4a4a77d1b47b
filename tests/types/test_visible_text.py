"""Hidden characters are shown as escapes; the characters that people read stay."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import unicodedata

import pytest
from tests.loop_watch import LoopWatch

from toolyard.types.visible_text import visible


@pytest.mark.parametrize(
    ("text", "visible_text"),
    [
        ("a\u200bb", r"a\u200bb"),
        ("rm\u202etxt", r"rm\u202etxt"),
        ("a\U000e0041\U000e0042", r"a\U000e0041\U000e0042"),
        ("a\ufe01\ufe0fb", r"a\ufe01\ufe0fb"),
        ("😀\ufe0f\ufe0f\ufe01", "😀\ufe0f\\ufe0f\\ufe01"),
        ("1\ufe0f2", r"1\ufe0f2"),
        ("ad\u200dmin", r"ad\u200dmin"),
        ("ad\u200cmin", r"ad\u200cmin"),
        ("👩\u200d\u200d👧", r"👩\u200d\u200d👧"),
        ("a\u2800b\ue000c", r"a\u2800b\ue000c"),
        ("a\x1b[2Jb\rc\x00", r"a\u001b[2Jb\u000dc\u0000"),
    ],
)
def test_hidden_characters_are_escaped(text: str, visible_text: str) -> None:
    assert visible(text) == visible_text


@pytest.mark.parametrize(
    "text",
    [
        "naïve",
        "日本語",
        "עברית",
        "👩‍👩‍👧",
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "葛\U000e0100城",
        "می\u200cخواهم",
        "क्\u200dष",
        "a\tb\nc",
        "à\u00a0la",
    ],
)
def test_ordinary_text_of_any_script_stays(text: str) -> None:
    assert visible(text) == text


def test_no_control_or_format_character_is_left_alone() -> None:
    hidden = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    hidden_codes = [
        f"U+{code:04X}"
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in hidden
        and chr(code) not in "\t\n"
        and visible(chr(code)) == chr(code)
    ]
    assert hidden_codes == []


def test_text_that_is_read_to_the_letter_shows_unusual_spaces() -> None:
    assert visible("a\xa0b\u3000c d", spaces=True) == r"a\u00a0b\u3000c d"


_ALPHABET = "a1#é\u0627\u65e5\u2764\u20e3\u200c\u200d\ufe0f\ufe01\u200b\x00\u3000\ud800\U0001f600\U000e0101"


@pytest.mark.parametrize("spaces", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_escaped_in_steps_as_in_one_step(seed: int, spaces: bool) -> None:
    text = "".join(random.Random(seed).choices(_ALPHABET, k=10_000))
    assert visible(text, spaces=spaces, step_characters=7) == visible(text, spaces=spaces)


@pytest.mark.parametrize("letter", ["\ufe0f", "\u200d", "\x00", "\U000e0041"])
async def test_a_thread_that_escapes_a_long_text_lets_the_loop_run(letter: str) -> None:
    before = time.process_time()
    async with LoopWatch() as watch:
        await asyncio.to_thread(visible, letter * 1_000_000)
    assert watch.longest_seconds < (time.process_time() - before) / 2
