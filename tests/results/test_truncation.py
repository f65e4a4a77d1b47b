"""Over the limit: head and tail, a note, a handle."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.results.model_result import shape_and_store, shape_result
from toolyard.results.result_store import MemoryResultStore, StoredResult, make_handle
from toolyard.results.truncation import truncate_middle
from toolyard.types.server import Trust
from toolyard.types.tool import ResultLimits

NOTE = re.compile(r"\n\n\[([\d,]+) of ([\d,]+) characters are omitted here; (.*?)\]\n\n")

# Letters, marks that join the letter before them, joiners, flags and line ends.
awkward = st.text(
    alphabet="ab\u0301\u200d\U0001f469\U0001f3fd\U0001f1e9\r\n\ud83d\udc69", min_size=1, max_size=20
)
long_texts = st.builds(lambda piece, times: piece * times, awkward, st.integers(1, 400))


def answer(text: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}]}


def parts(short: str) -> tuple[str, str, int]:
    match = NOTE.search(short)
    assert match is not None
    return short[: match.start()], short[match.end() :], int(match[1].replace(",", ""))


@given(text=long_texts, limit=st.integers(200, 3_000), handle=st.none() | st.just("r0123456789abcdef0123"))
def test_a_shortened_text_fits_and_is_a_head_a_note_and_a_tail(
    text: str, limit: int, handle: str | None
) -> None:
    short = truncate_middle(text, limit, handle)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
        return
    head, tail, missing = parts(short)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + missing + len(tail) == len(text)


@given(text=st.text(max_size=300), limit=st.integers(0, 200))
def test_the_limit_holds_even_where_the_note_does_not_fit(text: str, limit: int) -> None:
    assert len(truncate_middle(text, limit, None)) <= limit


@pytest.mark.parametrize(
    "cluster",
    [
        "e\u0301",
        "\U0001f469\U0001f3fd",
        "\U0001f469\u200d\U0001f4bb",
        "\u1100\u1161\u11a8",
        "\r\n",
        "\ud83d\udc69",
    ],
    ids=["accent", "skin tone", "joined", "Hangul", "line end", "surrogates"],
)
@pytest.mark.parametrize("shift", range(4))
def test_combined_characters_are_not_split(cluster: str, shift: int) -> None:
    text = "x" * shift + cluster * 2_000
    head, tail, _ = parts(truncate_middle(text, 1_000, None))
    assert (len(head) - shift) % len(cluster) == 0
    assert len(tail) % len(cluster) == 0


def test_a_cut_does_not_move_for_ever_through_endless_marks() -> None:
    head, tail, _ = parts(truncate_middle("a" + "\u0301" * 100_000, 1_000, None))
    assert len(head) + len(tail) > 800
    assert unicodedata.combining(head[-1])


def test_a_result_within_the_limit_is_whole() -> None:
    result = shape_result(answer("x" * 64_000), ResultLimits(), Trust.TRUSTED)
    assert result.text == "x" * 64_000
    assert not result.truncated


def test_one_character_over_the_limit_is_cut_with_a_note() -> None:
    result = shape_result(answer("x" * 64_001), ResultLimits(), Trust.TRUSTED)
    assert result.truncated
    assert result.handle is None
    assert len(result.text) <= 64_000
    match = NOTE.search(result.text)
    assert match is not None
    assert match[2] == "64,001"
    assert match[3] == "the whole text was not stored"


async def test_with_a_store_the_note_names_the_handle_under_which_the_whole_text_is_kept() -> None:
    handles = MemoryResultStore()
    text = "".join(f"line {number}\n" for number in range(20_000))
    result = await shape_and_store(answer(text), ResultLimits(), Trust.TRUSTED, handles, server="repo")
    assert result.truncated
    assert result.handle is not None
    assert f'result_read with handle "{result.handle}" reads them' in result.text
    assert await handles.read(result.handle) == StoredResult(text, Trust.TRUSTED, "repo")


async def test_a_result_that_fits_is_not_kept() -> None:
    handles = MemoryResultStore()
    result = await shape_and_store(answer("short"), ResultLimits(), Trust.TRUSTED, handles)
    assert result == shape_result(answer("short"), ResultLimits(), Trust.TRUSTED)


async def test_stored_errors_have_no_secrets() -> None:
    handles = MemoryResultStore()
    raw = answer("?key=hunter2222 " * 30_000) | {"isError": True}
    result = await shape_and_store(raw, ResultLimits(), Trust.TRUSTED, handles)
    assert result.handle is not None
    assert await handles.read(result.handle) == StoredResult("?key=*** " * 30_000, Trust.TRUSTED)
    assert "hunter2222" not in result.text


async def test_the_same_result_is_the_same_bytes_and_the_same_handle() -> None:
    texts = {
        (
            await shape_and_store(
                answer("y" * 70_000), ResultLimits(), trust, MemoryResultStore(), server="s"
            )
        ).text
        for trust in (Trust.UNTRUSTED, Trust.UNTRUSTED)
    }
    assert len(texts) == 1


def test_trust_is_part_of_a_handle_so_that_no_text_changes_its_fence() -> None:
    stored_result, untrusted_result = (
        StoredResult("text", Trust.TRUSTED),
        StoredResult("text", Trust.UNTRUSTED),
    )
    assert make_handle(stored_result) != make_handle(untrusted_result)


async def test_memory_keeps_the_newest_and_forgets_the_oldest() -> None:
    handles = MemoryResultStore(max_chars=10)
    first, second = StoredResult("a" * 6, Trust.TRUSTED), StoredResult("b" * 6, Trust.TRUSTED)
    await handles.save("first", first)
    await handles.save("second", second)
    assert await handles.read("first") is None
    assert await handles.read("second") == second
    await handles.save("fits", StoredResult("c" * 4, Trust.TRUSTED))
    assert await handles.read("second") == second
    await handles.save("second", second)
    await handles.save("third", StoredResult("c" * 100, Trust.TRUSTED))
    assert await handles.read("second") is None
    assert await handles.read("third") is not None


def test_a_limit_too_small_for_the_notes_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least 1000 characters"):
        ResultLimits(999)
