"""Markdown of models: nothing in it can do anything, and its blocks are the same whatever its pieces."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.web.rendering import markdown_blocks
from toolyard.web.rendering.highlighting import highlight_code, resolve_language
from toolyard.web.rendering.markdown import render_markdown
from toolyard.web.rendering.markdown_blocks import MarkdownBlockSplitter, split_blocks

ATTACKS = Path(__file__).with_name("markdown_attacks.txt").read_text("utf-8").split("\n%%%\n")
TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "span", "blockquote", "a", "ul", "ol", "li"),
    *("h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {
    "a": {"href", "title", "rel", "target"},
    "ol": {"start"},
    "pre": {"tabindex", "data-language"},
    "span": {"class"},
    "th": {"class"},
    "td": {"class"},
}
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


class AllowedMarkupParser(HTMLParser):
    """Every element and attribute must be one of the few that there are."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.links: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        attributes = dict(attrs)
        assert set(attributes) <= ATTRIBUTES.get(tag, set()), (tag, attrs)
        if tag == "a" and "href" in attributes:
            href = attributes["href"] or ""
            assert re.match(r"(?i)https?://|mailto:", href), href
            self.links.append(href)
        if tag == "a":
            assert attributes["rel"] == "noopener noreferrer nofollow"
        for name in (attributes.get("class") or "").split():
            assert re.fullmatch(r"h-[a-z0-9]{1,4}|to-(left|center|right)", name)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError("a declaration")

    def handle_pi(self, data: str) -> None:
        raise AssertionError("an instruction")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError("a declaration")

    def handle_data(self, data: str) -> None:
        self.text += data


def check(text: str) -> AllowedMarkupParser:
    html = str(render_markdown(text))
    parser = AllowedMarkupParser(html)
    assert not UNSEEN.search(parser.text), ascii(parser.text)
    return parser


# Nothing can do anything.

PIECES = st.sampled_from(
    [
        *(
            "<",
            ">",
            "</",
            "<!--",
            "-->",
            "script",
            "<script>",
            "<img src=x onerror=hacked()>",
            "<svg/onload=x>",
        ),
        *(
            "[",
            "]",
            "(",
            ")",
            "![",
            "](",
            "javascript:",
            "JaVaScRiPt:",
            "data:text/html,",
            "vbscript:",
            "//e.x",
        ),
        *(
            "https://e.x/",
            "mailto:a@b.c",
            "&#106;",
            "&#x6a;",
            "&lt;",
            "&colon;",
            "&Tab;",
            "&newline;",
            "&#x202e;",
            "&#8203;",
            "\\",
            '"',
        ),
        *(
            "'",
            "`",
            "```",
            "~~~html\n",
            "*",
            "**",
            "_",
            "~~",
            "\n",
            "\n\n",
            "    ",
            "\t",
            "- ",
            "1. ",
            "> ",
            "| ",
        ),
        *(
            "|-|-|\n",
            "# ",
            "---\n",
            "===\n",
            "[a]: javascript:x\n",
            "[a]",
            "<a:b>",
            "<https://x.y>",
            "style=",
            "a",
        ),
        *(
            "\u202e",
            "\u200b",
            "\x00",
            "\x0b",
            "\u2066",
            "\ufeff",
            "\r",
            "\r\n",
            "\U000e0041",
            "é",
            "日",
            "👩‍👩‍👧",
        ),
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_every_text_renders_only_harmless_elements(text: str) -> None:
    check(text)


@given(st.text(max_size=300))
def test_any_text_at_all_can_be_shown(text: str) -> None:
    check(text)


@pytest.mark.parametrize("number", range(len(ATTACKS)))
def test_known_attacks_are_only_words(number: int) -> None:
    checked_markup = check(ATTACKS[number])
    assert not any(
        "hacked" in link and not link.startswith(("http", "mailto")) for link in checked_markup.links
    )


def test_there_are_attacks() -> None:
    assert len(ATTACKS) > 60


def test_pictures_from_elsewhere_are_links() -> None:
    html = str(render_markdown("![a *cat*](https://elsewhere.test/cat.png)"))
    assert "<img" not in html
    assert ">Picture: a cat</a>" in html
    assert 'href="https://elsewhere.test/cat.png"' in html


def test_links_show_their_target_and_send_no_referrer() -> None:
    html = str(render_markdown("[https://bank.test](https://evil.test/x)"))
    assert 'title="https://evil.test/x"' in html
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html


@pytest.mark.parametrize(
    "address", ["/ui/admin", "../x", "//evil.test", "#top", "javascript:x", "data:x", "x:y"]
)
def test_other_addresses_are_not_links(address: str) -> None:
    checked_markup = check(f"[words]({address}) <{address}>")
    assert checked_markup.links == []
    assert "words" in checked_markup.text


def test_addresses_in_plain_text_lead_there() -> None:
    checked_markup = check(
        "See (https://a.test/x_(y)), http://b.test. `https://c.test` and [https://d.test](https://d.test)."
    )
    assert checked_markup.links == ["https://a.test/x_(y)", "http://b.test", "https://d.test"]


@pytest.mark.parametrize(
    "nested_text", ["> " * 500 + "deep", "- " * 500 + "deep", "*" * 4000 + "deep", "[" * 9000 + "deep"]
)
def test_too_deeply_nested_markup_is_shown_as_text(nested_text: str) -> None:
    assert "deep" in check(nested_text).text


@pytest.mark.parametrize(
    "unit", ["![", "[", "*a ", "_a", "~~a", "<a:", "&#", "***a", "`a``", "](", "[a](<", "\\"]
)
def test_a_long_line_of_marks_is_shown_whole(unit: str) -> None:
    text = unit * (60_000 // len(unit))
    shown_text = check(text).text
    assert len(shown_text) > 20_000


# What is meant is shown.


def test_typical_markdown_of_models_is_rendered() -> None:
    words = "# One\n\nSome *words*, **strong** and ~~gone~~.\n\n1. a\n2. b\n\n> said\n\n"
    html = str(render_markdown(f"{words}| x | y |\n|:-:|--:|\n| 1 | 2 |"))
    for part in (
        *("<h3>One</h3>", "<em>words</em>", "<strong>strong</strong>", "<s>gone</s>", "<li>a</li>"),
        *("<blockquote>", '<th class="to-center">x</th>', '<td class="to-right">2</td>'),
    ):
        assert part in html


def test_headings_are_below_those_of_the_page_and_skip_no_level() -> None:
    html = str(render_markdown("# One\n\n## Two\n\n### Three\n\n#### Four\n\n##### Five\n\n###### Six"))
    assert re.findall(r"<(h\d)>", html) == ["h3", "h3", "h4", "h5", "h6", "h6"]


def test_code_is_coloured_by_classes() -> None:
    # The first use of a lexer takes longer, which does not count here.
    highlight_code("def f(): return 1", "python", clock=lambda: 0.0)
    html = str(render_markdown("```py\ndef f():\n    return '<b>'\n```"))
    assert '<pre data-language="python" tabindex="0">' in html
    assert '<span class="h-k">def</span>' in html
    assert "style=" not in html
    assert "&lt;b&gt;" in html


@pytest.mark.parametrize(
    ("language", "piece"), [("c", "\n"), ("cpp", "\n"), ("csharp", "a\n"), ("java", "\n"), ("hcl", "a-")]
)
def test_code_that_was_made_to_take_long_is_shown_in_one_colour(language: str, piece: str) -> None:
    code, looks = f"a{piece * 20_000}"[:20_000], count()
    # A processor that spends five milliseconds on each piece.
    assert highlight_code(code, language, clock=lambda: next(looks) / 200) == code
    assert next(looks) < 60


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_no_single_piece_of_c_takes_minutes(language: str) -> None:
    code, looks = "a" + "\n" * 19_000, count()
    before = time.thread_time()
    assert highlight_code(code, language, clock=lambda: next(looks) / 10) == code
    assert time.thread_time() - before < 5


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_c_is_coloured_all_the_same(language: str) -> None:
    code = "static int f(char *a) { return 1; } // why\n" * 400
    html = highlight_code(code, language, clock=lambda: 0.0)
    assert html.count('<span class="h-kt">int</span>') == html.count('<span class="h-k">return</span>') == 400


@given(st.text(max_size=200), st.sampled_from(["python", "js", "html", "bash", "json", "", "nothing"]))
def test_colours_change_no_character(code: str, language: str) -> None:
    html = highlight_code(code.replace("\r", ""), resolve_language(language))
    assert AllowedMarkupParser(f"<code>{html}</code>").text.replace("\x00", "") == code.replace(
        "\r", ""
    ).replace("\x00", "")


# Blocks.

LINES = st.sampled_from(
    [
        *(
            "words",
            "more *words*",
            "Ärger",
            "# head",
            "- item",
            "  - inner",
            "1. one",
            "2. two",
            "   indented",
        ),
        *(
            "    code",
            "```",
            "```py",
            "~~~",
            "> quoted",
            "| a | b |",
            "|---|---|",
            "---",
            "===",
            "",
            "",
            "",
            "  ",
        ),
        *(
            "- ```",
            "  ```",
            "> ```",
            "\t- x",
            "*",
            "+ y",
            "10) z",
            "<b>",
            "[a]: /x",
            "#",
            "#tag",
            "1",
            "\\",
            "日本",
        ),
    ]
)
DOCUMENTS = st.builds(
    lambda lines, end: "\n".join(lines) + end,
    st.lists(LINES, max_size=14),
    st.sampled_from(["", "\n", "\r\n"]),
)


def cut(text: str, places: list[int]) -> list[str]:
    marks = sorted({min(place, len(text)) for place in places})
    return [text[a:b] for a, b in zip([0, *marks], [*marks, len(text)], strict=True)]


@given(DOCUMENTS, st.lists(st.integers(0, 200), max_size=12))
def test_blocks_do_not_depend_on_the_pieces(text: str, places: list[int]) -> None:
    blocks = MarkdownBlockSplitter()
    for piece in cut(text, places):
        before = list(blocks.finished_blocks)
        blocks.add(piece)
        assert blocks.finished_blocks[: len(before)] == before
    assert blocks.all_blocks == split_blocks(text)
    assert "".join(blocks.all_blocks) == text


@given(DOCUMENTS)
def test_blocks_one_by_one_look_like_the_whole(text: str) -> None:
    apart = "".join(str(render_markdown(block)) for block in split_blocks(text))
    assert re.sub(r"\s+", " ", apart).strip() == re.sub(r"\s+", " ", str(render_markdown(text))).strip()


def test_paragraphs_are_finished_as_soon_as_the_next_begins() -> None:
    blocks = MarkdownBlockSplitter()
    blocks.add("One paragraph.\n\n")
    assert blocks.finished_blocks == []
    blocks.add("T")
    assert blocks.finished_blocks == ["One paragraph.\n\n"]
    assert blocks.tail == "T"


def test_a_model_that_repeats_short_paragraphs_makes_few_blocks() -> None:
    text = "word word word\n\n" * 100_000 + "```py\nx\n\ny\n```\n\nend"
    blocks = split_blocks(text)
    assert blocks[:2] == ["word word word\n\n"] * 2
    assert len(blocks) < 1_100
    # A fence begins a block, so that its end is found without the parser.
    assert blocks[-1] == "```py\nx\n\ny\n```\n\nend"
    in_pieces = MarkdownBlockSplitter()
    for at in range(0, len(text), 777):
        in_pieces.add(text[at : at + 777])
    assert in_pieces.all_blocks == blocks


def test_code_with_blank_lines_is_one_block() -> None:
    text = "Look:\n\n```py\na\n\nb\n\nc\n```\n\nDone"
    assert split_blocks(text) == ["Look:\n\n", "```py\na\n\nb\n\nc\n```\n\n", "Done"]


@pytest.mark.parametrize(
    "paragraph",
    ["word " * 40 + "\n\n", "- item of a list\n\n", "```\ncode\n\nmore\n```\n\n", "x\n", "```\n\n\nx\n\n"],
)
def test_the_work_grows_with_the_length_and_not_with_its_square(
    paragraph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = markdown_blocks._is_top_level_block_start
    read = 0

    def count_read(text: str, start: int) -> bool:
        nonlocal read
        read += len(text)
        return real(text, start)

    monkeypatch.setattr(markdown_blocks, "_is_top_level_block_start", count_read)
    costs: list[float] = []
    for length in (20_000, 80_000):
        read = 0
        text = paragraph * (length // len(paragraph))
        blocks = MarkdownBlockSplitter()
        for at in range(0, len(text), 7):
            blocks.add(text[at : at + 7])
        costs.append(read / length)
    assert costs[1] < 2 * costs[0] + 1


@pytest.mark.parametrize("unit", ["- ```\n\na", "> ```\n\na\n\n", "- a ```\n\n* b\n\n+ c\n\n"])
def test_splitting_parses_little_more_than_the_text_however_often_it_is_in_doubt(unit: str) -> None:
    blocks = MarkdownBlockSplitter()
    text = unit * (200_000 // len(unit))
    blocks.add(text)
    assert "".join(blocks.all_blocks) == text
    assert blocks.parsed_characters <= 60_000 + len(text)
