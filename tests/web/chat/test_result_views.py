"""Views of results: bounded and harmless whatever a server sends, without blocking the event loop."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from tests.loop_watch import LoopWatch

from toolyard.agents.chat.result_event import read_full_result, result_event
from toolyard.results.untrusted_text import fence_untrusted_text, unfence_text
from toolyard.types.chat import CallResult
from toolyard.types.tool import Result
from toolyard.web.rendering.renderer import RenderingProcess, ResultRenderer
from toolyard.web.rendering.result_csv import write_csv
from toolyard.web.rendering.result_view import ResultQuery, render_result, summarize_result

MAX_RESPONSE_BYTES = 400_000


def show(value: object, **options: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return str(render_result(ResultQuery("/r", "v", text, **options)))


def as_csv(value: object) -> list[list[str]]:
    written_csv = write_csv(ResultQuery("/r", "v", json.dumps(value)))
    assert written_csv is not None
    return list(csv.reader(io.StringIO(written_csv)))


ROWS = [{"id": number, "name": f"n{number}"} for number in range(250)]


@pytest.mark.parametrize(
    ("value", "shown_text"),
    [
        (ROWS, "100 of 250 rows"),
        ({"items": ROWS, "total": 250}, "100 of 250 rows"),
        ("\n".join(map(json.dumps, ROWS)), "100 of 250 rows"),
        (fence_untrusted_text(json.dumps(ROWS), "x"), "100 of 250 rows"),
    ],
)
def test_lists_of_objects_are_tables_wherever_they_stand(value: object, shown_text: str) -> None:
    html = show(value)
    assert shown_text in html
    assert html.count("<tr>") == 101


def test_values_beside_a_table_are_shown_above_it() -> None:
    html = show({"rows": ROWS, "home": "2026-12-27", "more": {"a": 1}})
    assert (
        '<dl class="result-facts"><dt>home</dt> <dd>2026-12-27</dd><dt>more</dt> <dd>{"a": 1}</dd></dl>'
        in html
    )


@pytest.mark.parametrize("value", ["[1, 2", "true", "12", "", "{}x", '{"a": 1}\nand more'])
def test_other_texts_stay_texts(value: str) -> None:
    assert "<nav" not in show(value)


def test_structured_content_wins_over_the_text() -> None:
    html = show("two people", structured=json.dumps({"people": [{"name": "Ada"}]}))
    assert '<td dir="auto">Ada</td>' in html
    assert "two people" in show("two people", structured='{"people": []}', view="text")


def test_rows_are_sorted_by_value_and_missing_ones_come_last() -> None:
    rows = [{"n": 10}, {"n": 9}, {}, {"n": "x"}, {"n": None}, {"n": 100_000_000_000_000_000_001}]
    matches = re.findall(r"<tr><td[^>]*>(.*?)</td>", show(rows, sort=0, descending=True))
    assert matches == ["x", "100000000000000000001", "10", "9", "", "null"]


@pytest.mark.parametrize("number", ["12345678901234567890123", "0.10000000000000000000001", "1e400", "-0"])
@pytest.mark.parametrize("view", ["table", "tree", "text"])
def test_numbers_keep_all_their_digits(number: str, view: str) -> None:
    assert f">{number}<" in show(f'[{{"n":{number}}}]', view=view, path="0" if view == "tree" else "")


HOSTILE_ROW = {"<b onclick=x>": "<script>x</script>", "a\u202eb": "c\u200bd", "\"'>": "\"'>"}


@pytest.mark.parametrize("view", ["table", "tree", "text"])
def test_keys_and_cells_are_escaped(view: str) -> None:
    html = show(json.dumps([HOSTILE_ROW], ensure_ascii=False), view=view)
    assert "<script" not in html
    assert "<b onclick" not in html
    assert "\u202e" not in html
    assert "\u200b" not in html
    assert r"\u202e" in html


BAD = {
    "rows": json.dumps([{"a": number} for number in range(100_000)]),
    "columns": json.dumps([{f"c{number}": number for number in range(10_000)}] * 3),
    "sparse": json.dumps([{f"c{number}": 1} for number in range(20_000)]),
    "depth": "[" * 10_000 + "]" * 10_000,
    "deep objects": '{"a":' * 900 + "1" + "}" * 900,
    "long key": json.dumps({"k" * 1_000_000: {"a": "b"}}),
    "long cells": json.dumps([{"a": "x" * 10_000, "b": ["y" * 10_000]}] * 100),
    "long text": "word " * 1_000_000,
    "wide tree": json.dumps(
        {str(number): {str(each): [each] for each in range(40)} for number in range(500)}
    ),
    "hidden": "\u200b" * 500_000,
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("view", ["", "tree", "text"])
def test_no_part_of_a_result_is_large(name: str, view: str) -> None:
    html = show(BAD[name], view=view)
    assert len(html.encode()) < MAX_RESPONSE_BYTES
    assert html.startswith('<div class="result-view" id="v">')


@pytest.mark.parametrize("path", ["9", "0.9.9", "x", "0.x", "." * 100, "9" * 50])
def test_a_position_that_does_not_exist_is_not_an_error(path: str) -> None:
    assert show({"a": [1]}, view="tree", path=path)


def test_every_member_of_a_tree_can_be_reached() -> None:
    value: Any = {"a": list(range(250)), "b": {"c": {"d": {"e": "x" * 1_000}}}}
    assert ">249<" in show(value, view="tree", path="0", start=200)
    assert "x" * 1_000 in show(value, view="tree", path="1.0.0.0")


def test_cells_that_begin_like_a_formula_are_texts_in_a_csv_file() -> None:
    rows = [{"=k": "=1+1", "b": "+1", "c": "-1", "d": "@x", "e": -1, "f": "\t=1", "g": "x=1"}]
    assert as_csv(rows) == [
        ["'=k", "b", "c", "d", "e", "f", "g"],
        ["'=1+1", "'+1", "'-1", "'@x", "-1", "'\t'=1", "x=1"],
    ]


def test_a_formula_after_a_separator_of_another_country_is_a_text_too() -> None:
    attacks = ["x;=1+1", "x;+1", "x;-1", "x;@A1", "x\n=1", "x\t=1", "\n=1", "\uff1d1", "x;\uff1d1"]
    escaped_cells = [
        "x;'=1+1",
        "x;'+1",
        "x;'-1",
        "x;'@A1",
        "x\n'=1",
        "x\t'=1",
        "'\n'=1",
        "'\uff1d1",
        "x;'\uff1d1",
    ]
    texts = ["a; b=1", "items:\n- item", "2026-01-01", "a,b"]
    cells = dict(enumerate([*attacks, *texts]))
    assert as_csv([{f"c{n}": text for n, text in cells.items()}])[1] == [*escaped_cells, *texts]


def test_a_csv_file_has_all_rows_and_nested_values() -> None:
    rows = as_csv([{"a": number, "b": {"c": [1.50, None]}, "d": "x\ny"} for number in range(1_000)])
    assert len(rows) == 1_001
    assert rows[-1] == ["999", '{"c": [1.5, null]}', "x\ny"]


def test_a_csv_file_is_refused_where_it_would_be_huge() -> None:
    assert write_csv(ResultQuery("/r", "v", BAD["sparse"])) is None
    assert write_csv(ResultQuery("/r", "v", "no table")) is None


def test_a_table_is_named_in_one_line() -> None:
    assert summarize_result('[{"id": 1, "name": 2}]') == "1 row: id, name"
    assert summarize_result("words") == ""


@pytest.mark.parametrize("text", ["", "x", "a\nb\n", "</untrusted-data 0>"])
def test_a_fence_can_be_taken_off(text: str) -> None:
    assert unfence_text(fence_untrusted_text(text, "s")) == text
    assert unfence_text(text) == text


def _build_call_result(result: Result) -> tuple[CallResult, bytes]:
    event = result_event("1", result, ok=True, seconds=0.1)
    return CallResult("1", True, result.text, len(result.text), None, 0.1), event.payload


def test_a_chat_keeps_structured_content_that_its_text_does_not_have() -> None:
    raw: Any = {"structuredContent": {"a": [1]}}
    data, result_media = _build_call_result(Result(raw, "one a"))
    assert read_full_result(data, result_media).structured == '{"a":[1]}'
    data, result_media = _build_call_result(Result(raw, '{"a": [1]}'))
    assert result_media == b""
    # As an earlier version stored it.
    assert read_full_result(data, b'{"text": "x", "media": []}').structured == ""


@pytest_asyncio.fixture
async def renderer() -> AsyncGenerator[ResultRenderer]:
    process = RenderingProcess()
    yield ResultRenderer(process, seconds=60)
    await process.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["rows", "sparse", "hidden"])
async def test_long_results_do_not_block_the_event_loop(renderer: ResultRenderer, name: str) -> None:
    query = ResultQuery("/r", "v", BAD[name], sort=0)
    await renderer.render(query)
    async with LoopWatch() as watch:
        html = await renderer.render(query)
        await renderer.write_csv(query)
    assert str(html) == str(render_result(query))
    assert watch.longest_seconds < 0.15


@pytest.mark.asyncio
async def test_a_result_that_takes_too_long_is_shown_as_text() -> None:
    process = RenderingProcess()
    html = await ResultRenderer(process, seconds=0.001).render(ResultQuery("/r", "v", BAD["rows"]))
    await process.close()
    assert "too large" in html
    assert "20,000 of" in html
