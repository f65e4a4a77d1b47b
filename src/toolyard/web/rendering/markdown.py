"""Markdown that others wrote, as HTML that can do nothing: models and tools are never trusted with HTML.

Three walls: what cannot be seen is made visible, the parser knows no HTML and no addresses but web and mail,
and a sanitiser passes only the elements that are named here. Pictures from elsewhere are links, not pictures:
loading one would tell somebody that it was read.
"""

from __future__ import annotations

import html
import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any, cast

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup
from pygments.token import STANDARD_TYPES

from toolyard.types.visible_text import visible
from toolyard.web.rendering.highlighting import CSS_CLASS_PREFIX, highlight_code, resolve_language

__all__ = ["build_parser", "render_markdown", "render_preformatted"]

_MAX_NESTING_LEVELS = 40
"""Levels. What is nested deeper is shown as it was written."""
_MAX_BLOCK_CHARACTERS = 200_000
"""Characters of one table, list or the like that are still looked at as Markdown."""
_MAX_INLINE_CHARACTERS = 8_000
"""Characters of one paragraph or cell that are. The parser may take the square of the length for them."""
_ALLOWED_URL_PATTERN = re.compile(r"(?i)(?:https?://[^/\s]|mailto:[^\s])")
_BARE_URL_PATTERN = re.compile(r"(?i)\bhttps?://[^\s<>\"'`]+")
_TRAILING_PUNCTUATION = ".,;:!?)]}*_~"
_ALLOWED_TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "span", "blockquote", "a"),
    *("ul", "ol", "li", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ALIGNMENT_CLASSES = {"class": {"to-left", "to-center", "to-right"}}


def render_markdown(text: str) -> Markup:
    """The HTML of one text, or of one block of it. Never raises, whatever the text is."""
    shown = visible(text)
    if len(shown) > _MAX_BLOCK_CHARACTERS and not shown.lstrip().startswith(("```", "~~~")):
        return render_preformatted(shown)
    tokens = build_parser().parse(shown)
    if any(token.level >= _MAX_NESTING_LEVELS for token in tokens):
        # The parser leaves out what is deeper, and nobody shall hide anything.
        return render_preformatted(shown)
    made = cast("str", build_parser().renderer.render(tokens, build_parser().options, {}))
    # Once more: entities may have stood for what cannot be seen.
    return Markup(visible(_build_sanitizer().clean(made)))


@cache
def build_parser() -> MarkdownIt:
    """The parser: CommonMark with tables and strikethrough, without HTML, references and pictures."""
    made = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING_LEVELS + 10})
    made.enable(["table", "strikethrough"])
    # Blocks are shown one by one, so that none can name what another one refers to.
    made.disable(["html_block", "html_inline", "reference"])
    made.core.ruler.at("inline", _parse_inline)
    made.core.ruler.push("lower_headings", _lower_headings)
    made.core.ruler.push("name_links", _add_links_and_titles)
    made.core.ruler.push("align_cells", _align_cells)
    made.validateLink = lambda url: bool(_ALLOWED_URL_PATTERN.match(url))
    made.add_render_rule("image", _render_image_as_link)
    made.add_render_rule("fence", _render_code_block)
    made.add_render_rule("code_block", _render_code_block)
    return made


@cache
def _build_sanitizer() -> nh3.Cleaner:
    """The last step. It knows nothing of the ones before."""
    return nh3.Cleaner(
        tags=_ALLOWED_TAGS,
        # With a tag goes only the tag: the words in it are somebody's words.
        clean_content_tags=set(),
        attributes={"a": {"href", "title"}, "ol": {"start"}, "pre": {"data-language"}},
        allowed_classes={
            "span": {CSS_CLASS_PREFIX + name for name in STANDARD_TYPES.values() if name},
            "th": _ALIGNMENT_CLASSES["class"],
            "td": _ALIGNMENT_CLASSES["class"],
        },
        set_tag_attribute_values={"a": {"target": "_blank"}, "pre": {"tabindex": "0"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )


def render_preformatted(text: str) -> Markup:
    """Return a text as preformatted HTML, where it is not rendered."""
    return Markup('<pre tabindex="0"><code>{}</code></pre>').format(visible(text))


# What the parser's tokens become.


def _parse_inline(state: StateCore) -> None:
    """What stands within lines, where they are not too long."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        if len(token.content) > _MAX_INLINE_CHARACTERS:
            token.children = [_create_text_token(token.content)]
        else:
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _lower_headings(state: StateCore) -> None:
    """A page has its own first and second headings."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"


def _align_cells(state: StateCore) -> None:
    """Cells say where their text stands by a class: pages have no styles within."""
    for token in state.tokens:
        if token.type in ("th_open", "td_open") and (style := token.attrs.pop("style", None)):
            token.attrSet("class", f"to-{str(style).rpartition(':')[2]}")


def _add_links_and_titles(state: StateCore) -> None:
    """Addresses in plain text lead somewhere, and every link says where it leads."""
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = _linkify_children(token.children)


def _linkify_children(children: Sequence[Token]) -> list[Token]:
    found: list[Token] = []
    within = 0
    for token in children:
        if token.type in ("link_open", "link_close"):
            within += token.nesting
            if token.type == "link_open":
                token.attrSet("title", str(token.attrGet("href") or ""))
        if token.type == "text" and not within:
            found += _linkify_text(token)
        else:
            found.append(token)
    return found


def _linkify_text(token: Token) -> list[Token]:
    found: list[Token] = []
    at = 0
    for match in _BARE_URL_PATTERN.finditer(token.content):
        address = match[0].rstrip(_TRAILING_PUNCTUATION)
        if "(" in address and match[0][len(address) :].startswith(")"):
            address += ")"
        if not _ALLOWED_URL_PATTERN.match(address):
            continue
        found += [_create_text_token(token.content[at : match.start()]), *_create_link_tokens(address)]
        at = match.start() + len(address)
    return [*found, _create_text_token(token.content[at:])] if found else [token]


def _create_link_tokens(address: str) -> list[Token]:
    href = build_parser().normalizeLink(address)
    opened = Token("link_open", "a", 1, attrs={"href": href, "title": href})
    return [opened, _create_text_token(address), Token("link_close", "a", -1)]


def _create_text_token(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _render_image_as_link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[index]
    source = html.escape(str(token.attrGet("src") or ""))
    words = html.escape(renderer.renderInlineAsText(token.children or [], options, env).strip())
    named = f"Picture: {words}" if words else "Picture"
    return f'<a href="{source}" title="{source}">{named}</a>'


def _render_code_block(
    _: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    token = tokens[index]
    language = resolve_language(token.info)
    named = f' data-language="{html.escape(language)}"' if language else ""
    return f"<pre{named}><code>{highlight_code(token.content, language)}</code></pre>\n"
