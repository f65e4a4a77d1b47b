"""The visible text of a page, decoded with the page's encoding."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.loop_watch import LoopWatch

from toolyard.agents.builtin_tools.html_text_worker import extract_page_text
from toolyard.agents.builtin_tools.web_fetch import WEB_ENCODINGS, decode_body

HERE = "https://example.org/docs/"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one<p>two", "one\n\ntwo"),
        ("<h1>A  B</h1><h2>C</h2>text", "# A B\n\n## C\ntext"),
        ("a<br>b", "a\nb"),
        ("<ul><li>x<li>y<ul><li>z</ul></ul>", "- x\n- y\n  - z"),
        ("<a href='/a?b=1'>words</a>", "[words](https://example.org/a?b=1)"),
        ("<a href=x><h2>t</h2></a>", "## t"),
        ("<a href='javascript:alert(1)'>j</a> <a href='#x'>h</a> <a href='data:x'>d</a>", "j h d"),
        ("<base href='https://other.org/'><a href=x>w</a>", "[w](https://other.org/x)"),
        ("<table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>", "a | b\n1 | 2"),
        ("<pre>x\n  y</pre>z", "```\nx\n  y\n```\nz"),
        ("a <code>b</code> c", "a `b` c"),
        ("<img alt='a dog' src=x>", "a dog"),
        ("a &amp; b &lt;c&gt; &#228;", "a & b <c> ä"),
        ("<script>if (a < b) document.write('</p>')</script>seen", "seen"),
        ("<style>p { color: red }</style><noscript>no</noscript><svg><text>no</text></svg>seen", "seen"),
        ("<div hidden>no<div>no</div>no</div>seen", "seen"),
        ("<div style='DISPLAY : none'>no</div><span aria-hidden=true>no</span>seen", "seen"),
        ("<p hidden>no<p>seen", "seen"),
        ("<input hidden>seen", "seen"),
        ("<p>unclosed <b>bold <a href=x>link", "unclosed bold [link](https://example.org/docs/x)"),
        ("</p></div></ul></pre></code>x", "`x"),
        ("<!-- <p>no</p> -->seen", "seen"),
        ("plain text", "plain text"),
        ("", ""),
    ],
)
def test_a_page_reads_as_it_is_seen(page: str, text: str) -> None:
    assert extract_page_text(page, HERE)[1] == text


def test_the_title_is_told_apart() -> None:
    assert extract_page_text("<title>One\n &amp; two</title><p>x", HERE) == ("One & two", "x")


@given(st.text("<>/!-=\"'abp h1&;#x[]\n", max_size=60))
def test_no_page_is_too_broken(page: str) -> None:
    assert all(isinstance(each, str) for each in extract_page_text(page, HERE))


def test_a_page_of_a_million_tags_keeps_its_text() -> None:
    assert extract_page_text("<div>" * 100_000 + "seen", HERE)[1] == "seen"
    assert len(extract_page_text("x " * 3_000_000, HERE)[1]) < 2_100_000 * 3


@pytest.mark.parametrize(
    ("body", "declared_encoding", "text"),
    [
        ("grüße".encode(), None, "grüße"),
        ("grüße".encode("latin-1"), None, "grüße"),
        ("grüße".encode("latin-1"), "ISO-8859-1", "grüße"),
        ("“x”".encode("cp1252"), "latin1", "“x”"),
        ("漢字".encode("shift-jis"), "Shift_JIS", "漢字"),
        ("漢字".encode("utf-16"), "utf-8", "漢字"),
        ("\ufeffgrüße".encode(), "latin-1", "grüße"),
        (b"<meta charset='koi8-r'>" + "привет".encode("koi8-r"), None, "<meta charset='koi8-r'>привет"),
        (
            b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">'
            + "я".encode("cp1251"),
            None,
            '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">я',
        ),
        (
            b'<?xml version="1.0" encoding="gbk"?>' + "中".encode("gbk"),
            None,
            '<?xml version="1.0" encoding="gbk"?>中',
        ),
        (b"x", "nobody-knows", "x"),
        ("gr\u00fc".encode()[:-1], None, "gr\ufffd"),
        *(
            (b"abc", name, "abc")
            for name in ("idna", "punycode", "base64", "zip", "utf-7", "unicode_escape", "undefined")
        ),
        (b"abc", "x" * 1000 + "\0", "abc"),
    ],
)
def test_bytes_are_decoded_with_the_declared_encoding(
    body: bytes, declared_encoding: str | None, text: str
) -> None:
    assert decode_body(body, declared_encoding) == text


@pytest.mark.parametrize("encoding", sorted(WEB_ENCODINGS))
def test_a_long_page_of_any_bytes_is_decoded_as_in_one_step(encoding: str) -> None:
    body = b"x" + random.Random(0).randbytes(200_000)
    assert decode_body(body, encoding) == body.decode(encoding, "replace")


@pytest.mark.parametrize(("letters", "encoding"), [(b"\x81", "cp1252"), (b"\x00\xd8", "utf-16")])
async def test_a_thread_that_decodes_a_page_lets_the_loop_run(letters: bytes, encoding: str) -> None:
    before = time.process_time()
    async with LoopWatch() as watch:
        await asyncio.to_thread(decode_body, letters * 2_000_000, encoding)
    assert watch.longest_seconds < (time.process_time() - before) / 2
