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
from toolyard.web.rendering.highlighting import CLASS_PREFIX, highlighted, language_of

__all__ = ["as_written", "markdown", "parser"]

_DEEPEST = 40
"""Levels. What is nested deeper is shown as it was written."""
_LONGEST = 200_000
"""Characters of one table, list or the like that are still looked at as Markdown."""
_LONGEST_LINE = 8_000
"""Characters of one paragraph or cell that are. The parser may take the square of the length for them."""
_WEB = re.compile(r"(?i)(?:https?://[^/\s]|mailto:[^\s])")
_BARE = re.compile(r"(?i)\bhttps?://[^\s<>\"'`]+")
_TRAILING = ".,;:!?)]}*_~"
_TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "span", "blockquote", "a"),
    *("ul", "ol", "li", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ALIGNED = {"class": {"to-left", "to-center", "to-right"}}


def markdown(text: str) -> Markup:
    """The HTML of one text, or of one block of it. Never raises, whatever the text is."""
    shown = visible(text)
    if len(shown) > _LONGEST and not shown.lstrip().startswith(("```", "~~~")):
        return as_written(shown)
    tokens = parser().parse(shown)
    if any(token.level >= _DEEPEST for token in tokens):
        # The parser leaves out what is deeper, and nobody shall hide anything.
        return as_written(shown)
    made = cast("str", parser().renderer.render(tokens, parser().options, {}))
    # Once more: entities may have stood for what cannot be seen.
    return Markup(visible(_cleaner().clean(made)))


@cache
def parser() -> MarkdownIt:
    """The parser: CommonMark with tables and strikethrough, without HTML, references and pictures."""
    made = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST + 10})
    made.enable(["table", "strikethrough"])
    # Blocks are shown one by one, so that none can name what another one refers to.
    made.disable(["html_block", "html_inline", "reference"])
    made.core.ruler.at("inline", _inline)
    made.core.ruler.push("lower_headings", _lower_headings)
    made.core.ruler.push("name_links", _name_links)
    made.core.ruler.push("align_cells", _align_cells)
    made.validateLink = lambda url: bool(_WEB.match(url))
    made.add_render_rule("image", _picture_as_link)
    made.add_render_rule("fence", _code)
    made.add_render_rule("code_block", _code)
    return made


@cache
def _cleaner() -> nh3.Cleaner:
    """The last step. It knows nothing of the ones before."""
    return nh3.Cleaner(
        tags=_TAGS,
        # With a tag goes only the tag: the words in it are somebody's words.
        clean_content_tags=set(),
        attributes={"a": {"href", "title"}, "ol": {"start"}, "pre": {"data-language"}},
        allowed_classes={
            "span": {CLASS_PREFIX + name for name in STANDARD_TYPES.values() if name},
            "th": _ALIGNED["class"],
            "td": _ALIGNED["class"],
        },
        set_tag_attribute_values={"a": {"target": "_blank"}, "pre": {"tabindex": "0"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )


def as_written(text: str) -> Markup:
    """Return a text as preformatted HTML, where it is not rendered."""
    return Markup('<pre tabindex="0"><code>{}</code></pre>').format(visible(text))


# What the parser's tokens become.


def _inline(state: StateCore) -> None:
    """What stands within lines, where they are not too long."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        if len(token.content) > _LONGEST_LINE:
            token.children = [_text(token.content)]
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


def _name_links(state: StateCore) -> None:
    """Addresses in plain text lead somewhere, and every link says where it leads."""
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = _with_links(token.children)


def _with_links(children: Sequence[Token]) -> list[Token]:
    found: list[Token] = []
    within = 0
    for token in children:
        if token.type in ("link_open", "link_close"):
            within += token.nesting
            if token.type == "link_open":
                token.attrSet("title", str(token.attrGet("href") or ""))
        if token.type == "text" and not within:
            found += _linked(token)
        else:
            found.append(token)
    return found


def _linked(token: Token) -> list[Token]:
    found: list[Token] = []
    at = 0
    for match in _BARE.finditer(token.content):
        address = match[0].rstrip(_TRAILING)
        if "(" in address and match[0][len(address) :].startswith(")"):
            address += ")"
        if not _WEB.match(address):
            continue
        found += [_text(token.content[at : match.start()]), *_link(address)]
        at = match.start() + len(address)
    return [*found, _text(token.content[at:])] if found else [token]


def _link(address: str) -> list[Token]:
    href = parser().normalizeLink(address)
    opened = Token("link_open", "a", 1, attrs={"href": href, "title": href})
    return [opened, _text(address), Token("link_close", "a", -1)]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _picture_as_link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[index]
    source = html.escape(str(token.attrGet("src") or ""))
    words = html.escape(renderer.renderInlineAsText(token.children or [], options, env).strip())
    named = f"Picture: {words}" if words else "Picture"
    return f'<a href="{source}" title="{source}">{named}</a>'


def _code(
    _: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    token = tokens[index]
    language = language_of(token.info)
    named = f' data-language="{html.escape(language)}"' if language else ""
    return f"<pre{named}><code>{highlighted(token.content, language)}</code></pre>\n"
