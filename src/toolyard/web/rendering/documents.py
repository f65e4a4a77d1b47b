"""Rendering of our own documentation. Its texts are trusted, unlike those that ``markdown.py`` renders.

Headings have anchors as GitHub makes them, and links between pages are resolved by the caller. HTML in a page
(comments for the tests, pictures) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from toolyard.web.rendering.markdown import align_cells, render_code_block

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

__all__ = ["RenderedDocument", "render_document"]

_LINKED_ROW_PATTERN = re.compile(r"^\| \[[^\]]*\]\(([^)]*)\).*\n", re.MULTILINE)
_COPY_BUTTON = (
    '<button type="button" class="button quiet small" data-copy data-needs-script aria-label="Copy">'
    '<svg class="icon" aria-hidden="true"><use href="#i-copy"/></svg></button>'
)


@dataclass(frozen=True, slots=True)
class RenderedDocument:
    """A page: its first heading, the rest as HTML, and its headings of the second level by anchor."""

    title: str
    html: Markup
    sections: tuple[tuple[str, str], ...]
    anchors: frozenset[str]


def render_document(text: str, resolve_link: Callable[[str], str | None]) -> RenderedDocument:
    """Render a page. ``resolve_link`` returns the address of a relative link or picture, or None if its
    target is not served: the link becomes text, and a table row that begins with it is left out."""
    text = _LINKED_ROW_PATTERN.sub(lambda row: row[0] if resolve_link(row[1]) else "", text)
    parser = _build_parser()
    tokens = parser.parse(text)
    title, sections, anchors = "", list[tuple[str, str]](), set[str]()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            heading = _extract_text(inline)
            if opening.tag == "h1":
                title = heading
            anchor = _create_anchor(heading, anchors)
            anchors.add(anchor)
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                sections.append((anchor, heading))
        elif opening.type == "table_open":
            # On a narrow screen it scrolls, also by keyboard.
            opening.attrSet("tabindex", "0")
        elif opening.type == "inline":
            _resolve_links(opening.children or [], resolve_link)
    body = tokens[3:] if tokens and tokens[0].tag == "h1" else tokens
    html = cast("str", parser.renderer.render(body, parser.options, {}))
    return RenderedDocument(title, Markup(html), tuple(sections), frozenset(anchors))


@cache
def _build_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # imported late: slow to load

    parser = MarkdownIt("commonmark", {"html": True}).enable("table").disable("html_inline")
    parser.core.ruler.push("align_cells", align_cells)
    parser.add_render_rule("html_block", lambda *_: "")
    parser.add_render_rule("fence", _render_code_with_button)
    return parser


def _create_anchor(heading: str, taken: set[str]) -> str:
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    number, unique = 0, anchor
    while unique in taken:
        number += 1
        unique = f"{anchor}-{number}"
    return unique


def _extract_text(inline: Token) -> str:
    return "".join(each.content for each in inline.children or [])


def _resolve_links(children: Sequence[Token], resolve_link: Callable[[str], str | None]) -> None:
    resolved: str | None = None
    for token in children:
        name = "href" if token.type == "link_open" else "src"
        if token.type in ("link_open", "image"):
            resolved = resolve_link(str(token.attrGet(name)))
            token.attrs = {**token.attrs, name: resolved} if resolved else {}
        if token.type in ("link_open", "link_close") and resolved is None:
            token.tag = "span"


def _render_code_with_button(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    code = render_code_block(renderer, tokens, index, options, env)
    return f'<div class="code-frame">{_COPY_BUTTON}{code}</div>'
