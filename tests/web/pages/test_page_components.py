"""The small parts that pages are made with: words, ways, messages."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from tests.loop_watch import LoopWatch

from toolyard.accounts.errors import NameTaken
from toolyard.agents.chat.result_event import result_event
from toolyard.errors import Problem
from toolyard.registry.errors import Invalid, Taken
from toolyard.types.tool import Result
from toolyard.web.ui.components.formatting import (
    ago,
    code_spans,
    compact,
    count,
    one_line,
    pretty_json,
    visible,
)
from toolyard.web.ui.components.forms import field_errors, safe_redirect_path
from toolyard.web.ui.components.lists import paginate
from toolyard.web.ui.components.responses import (
    STATIC_FOLDER,
    read_flash,
    redirect_to,
    static_url,
)

# Ways.


@pytest.mark.parametrize("path", ["/ui/", "/ui/mcp", "/ui/mcp/new?server=1&x=%2F", "/ui/a#b"])
def test_a_page_of_ours_is_gone_to(path: str) -> None:
    assert safe_redirect_path(path, "/ui/") == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "https://evil.test/ui/",
        "//evil.test/ui/",
        "/\\evil.test",
        "/ui/\\..\\",
        "/ui/\r\nSet-Cookie: x",
        "/ui/ x",
        "javascript:alert(1)",
        "/api/v1/me",
        "/uix",
        "ui/",
    ],
)
def test_nothing_else_is(path: str) -> None:
    assert safe_redirect_path(path, "/ui/home") == "/ui/home"


# Messages that survive a redirect.


def request_with_cookie(cookie: str) -> Request:
    return Request({"type": "http", "headers": [(b"cookie", cookie.encode("latin-1"))]})


def cookie_of(response: Any) -> str:
    return response.headers["set-cookie"].split(";")[0]


@given(st.text(min_size=1, max_size=3000), st.text(max_size=3000))
def test_a_message_arrives_and_fits_into_a_cookie(text: str, hint: str) -> None:
    response = redirect_to("/ui/", text, kind="bad", hint=hint)
    flash = read_flash(request_with_cookie(cookie_of(response)))
    assert flash is not None
    assert flash.kind == "bad"
    assert flash.text[:100] == text.encode("utf-8", "replace").decode()[:100]
    assert len(cookie_of(response)) < 4000


@pytest.mark.parametrize("char", ["x", "日", "\x01", "👩"])
def test_a_long_message_is_cut_to_the_cookie_limit_of_browsers(char: str) -> None:
    response = redirect_to("/ui/", char * 5000, hint=char * 5000)
    flash = read_flash(request_with_cookie(cookie_of(response)))
    assert flash is not None
    assert flash.text.endswith(" …")
    assert 1000 < len(cookie_of(response)) < 4000


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters=';", \\')))
def test_a_foreign_cookie_is_not_a_message(text: str) -> None:
    assert read_flash(request_with_cookie(f"toolyard_flash={text}")) is None


@pytest.mark.parametrize("value", [[], "text", {}, {"text": "x"}, {"text": 1, "kind": "good"}])
def test_a_cookie_with_other_values_is_not_a_message(value: object) -> None:
    text = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    assert read_flash(request_with_cookie(f"toolyard_flash={text}")) is None


# Words.


def test_moments_are_told_as_distances() -> None:
    now = 1_800_000_000.0
    for at, words in (
        (now, "just now"),
        (now - 59, "59 s ago"),
        (now - 60, "1 min ago"),
        (now - 7300, "2 h ago"),
        (now - 86_400 * 3, "3 d ago"),
        (now + 86_400 * 3, "in 3 d"),
        (now + 86_399, "in 24 h"),
        (now - 86_400 * 400, "11 Dec 2025"),
    ):
        assert ago(at, now) == words


def test_counts_have_their_word() -> None:
    assert count(1, "tool") == "1 tool"
    assert count(0, "tool") == "0 tools"
    assert count(1204, "person", "people") == "1,204 people"


def test_large_numbers_are_short() -> None:
    assert compact(99_999) == "99,999"
    assert compact(140_400) == "140K"
    assert compact(999_900_000) == "999.9M"
    assert compact(999_960_000) == "1.0B"


@given(st.text())
def test_invisible_characters_are_made_visible(text: str) -> None:
    visible_text = visible(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", visible_text)
    assert len(one_line(text, 20)) <= 20
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    "hidden", ["\xad", "\u115f", "\u2028", "\u3164", "\ufff9", "\U000e0041", "\U000e0131", "\U000e0fff"]
)
def test_text_cannot_hide_in_invisible_characters(hidden: str) -> None:
    code = ord(hidden)
    escape = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    assert visible(f"a{hidden}{hidden}b") == f"a{escape}{escape}b"


def test_other_scripts_and_emoji_stay() -> None:
    for text in ("naïve", "日本語", "עברית", "👩‍👩‍👧", "❤\ufe0f", "葛\U000e0100城", "a\tb\nc"):
        assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


def test_json_of_any_depth_can_be_shown() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert "deeply" in pretty_json(deep)
    assert pretty_json({"a": "\u202e"}) == '{\n  "a": "\\u202e"\n}'


async def test_other_tasks_run_while_the_beginning_of_a_large_value_is_formatted() -> None:
    async with LoopWatch() as watch:
        shown_json = await asyncio.to_thread(pretty_json, {"a": "\n" * 50_000_000}, 1_000)
    assert shown_json.startswith('{"a": "')
    assert len(shown_json) <= 2_000
    assert watch.longest_seconds < 0.05


def test_the_event_of_a_large_structured_result_is_made_at_once() -> None:
    result = Result({"structuredContent": {"a": "\n" * 100_000_000}}, "text")
    before = time.process_time()
    event = result_event("c", result, ok=True, seconds=1.0)
    assert time.process_time() - before < 0.05
    assert event.payload == b""


def test_addresses_of_files_name_their_contents() -> None:
    for file in STATIC_FOLDER.iterdir():
        assert re.fullmatch(rf"/static/{file.name}\?v=[0-9a-f]{{12}}", static_url(file.name))


# Pages of lists.


@given(st.integers(0, 1000), st.text(max_size=12))
def test_every_entry_is_on_one_page(entries: int, requested_page: str) -> None:
    everything = list(range(entries))
    shown_page, pages = paginate(everything, str, "/x", "", requested_page)
    assert 1 <= pages.number <= pages.last
    assert bool(shown_page) == bool(entries)
    numbers = [paginate(everything, str, "/x", "", str(number + 1))[0] for number in range(pages.last)]
    assert [each for part in numbers for each in part] == everything


# Errors beside fields.


def test_errors_find_their_fields() -> None:
    labels = {"url": "URL", "allow_tools": "Allowed tools", "choices-1-key": "Name"}
    error = Invalid(
        [
            Problem("is no URL", path="url", hint="write it like this"),
            Problem("must not be blank", path="url"),
            Problem("is too long", path="allow_tools[2]"),
            Problem("must not be empty", path="choices[1].key"),
            Problem("is odd", path="elsewhere"),
        ]
    )
    assert field_errors(error, labels) == {
        "url": "URL is no URL. Write it like this.\nURL must not be blank.",
        "allow_tools": "Allowed tools (entry 3) is too long.",
        "choices-1-key": "Name must not be empty.",
        "": "elsewhere: is odd.",
    }
    assert field_errors(Taken("the slug is in use", field="slug"), {}) == {"slug": "The slug is in use."}
    assert field_errors(NameTaken("it is taken"), {}) == {"name": "It is taken."}


def test_words_between_backticks_are_code_and_nothing_else_is_html() -> None:
    assert code_spans("Run `toolyard import`.") == "Run <code>toolyard import</code>."
    assert code_spans("`<b>` & `") == "<code>&lt;b&gt;</code> &amp; `"
    assert code_spans("a ` b\nc ` d") == "a ` b\nc ` d"
