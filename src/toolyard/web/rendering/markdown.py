"""Conversion of untrusted Markdown to safe HTML.

There are three layers of defence: invisible characters are made visible, the parser supports neither HTML nor
URLs other than web and mail, and a sanitiser passes only the elements listed here. Images become links,
because loading one would reveal to its host that the text was read.
"""

from __future__ import annotations

import html
import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from toolyard.types.visible_text import visible
from toolyard.web.rendering.highlighting import CSS_CLASS_PREFIX, highlight_code, resolve_language

if TYPE_CHECKING:
    import nh3
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

__all__ = ["align_cells", "build_parser", "render_code_block", "render_markdown", "render_preformatted"]

_MAX_NESTING_LEVELS = 40
"""Maximum nesting of elements. Deeper texts are shown unrendered."""
_MAX_BLOCK_CHARACTERS = 200_000
"""Maximum length of a block, such as a table or list, to be rendered. Longer ones are shown unrendered."""
_MAX_INLINE_CHARACTERS = 8_000
"""Maximum length of a paragraph or cell to be parsed: the parser may take quadratic time for it."""
_ALLOWED_URL_PATTERN = re.compile(r"(?i)(?:https?://[^/\s]|mailto:[^\s])")
_BARE_URL_PATTERN = re.compile(r"(?i)\bhttps?://[^\s<>\"'`]+")
_TRAILING_PUNCTUATION = ".,;:!?)]}*_~"
_ALLOWED_TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "span", "blockquote", "a"),
    *("ul", "ol", "li", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ALIGNMENT_CLASSES = {"class": {"to-left", "to-center", "to-right"}}


def render_markdown(text: str) -> Markup:
    """Return the HTML of a text or of one block. Never raises, whatever the input."""
    visible_text = visible(text)
    # Code blocks are exempt, because they have no inline content to parse.
    if len(visible_text) > _MAX_BLOCK_CHARACTERS and not visible_text.lstrip().startswith(("```", "~~~")):
        return render_preformatted(visible_text)
    tokens = build_parser().parse(visible_text)
    if any(token.level >= _MAX_NESTING_LEVELS for token in tokens):
        # The parser would omit deeper content, which could be used to hide text.
        return render_preformatted(visible_text)
    rendered = cast("str", build_parser().renderer.render(tokens, build_parser().options, {}))
    # Applied again, because entities may have produced invisible characters.
    return Markup(visible(_build_sanitizer().clean(rendered)))


@cache
def build_parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables and strikethrough, without HTML and references."""
    from markdown_it import MarkdownIt  # imported late: slow to load

    # The limit of the parser is above ours, so that we notice deep nesting before it omits anything.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING_LEVELS + 10})
    parser.enable(["table", "strikethrough"])
    # Blocks are rendered one by one, so a reference could not be resolved in another block.
    parser.disable(["html_block", "html_inline", "reference"])
    parser.core.ruler.at("inline", _parse_inline)
    parser.core.ruler.push("lower_headings", _lower_headings)
    parser.core.ruler.push("name_links", _add_links_and_titles)
    parser.core.ruler.push("align_cells", align_cells)
    parser.validateLink = lambda url: bool(_ALLOWED_URL_PATTERN.match(url))
    parser.add_render_rule("image", _render_image_as_link)
    parser.add_render_rule("fence", render_code_block)
    parser.add_render_rule("code_block", render_code_block)
    return parser


@cache
def _build_sanitizer() -> nh3.Cleaner:
    """Return the sanitiser, the last layer. It does not rely on the others."""
    import nh3  # imported late: slow to load
    from pygments.token import STANDARD_TYPES

    return nh3.Cleaner(
        tags=_ALLOWED_TAGS,
        # Remove forbidden tags but keep their text, which belongs to the message.
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
    """Return a text as preformatted HTML, for texts that are not rendered."""
    return Markup('<pre tabindex="0"><code>{}</code></pre>').format(visible(text))


# Rules for the tokens of the parser.


def _parse_inline(state: StateCore) -> None:
    """Parse inline content, unless it is too long."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        if len(token.content) > _MAX_INLINE_CHARACTERS:
            token.children = [_create_text_token(token.content)]
        else:
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _lower_headings(state: StateCore) -> None:
    """Lower headings below those of the page, which has the first two levels.

    The first two become one level, because most answers begin with the second: so no level is skipped.
    """
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(max(int(token.tag[1]) + 1, 3), 6)}"


def align_cells(state: StateCore) -> None:
    """Replace inline alignment styles of cells, which the content security policy forbids, by classes."""
    for token in state.tokens:
        if token.type in ("th_open", "td_open") and (style := token.attrs.pop("style", None)):
            token.attrSet("class", f"to-{str(style).rpartition(':')[2]}")


def _add_links_and_titles(state: StateCore) -> None:
    """Turn plain URLs into links, and add the target to each link as its title."""
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = _linkify_children(token.children)


def _linkify_children(children: Sequence[Token]) -> list[Token]:
    linked: list[Token] = []
    link_depth = 0
    for token in children:
        if token.type in ("link_open", "link_close"):
            link_depth += token.nesting
            if token.type == "link_open":
                token.attrSet("title", str(token.attrGet("href") or ""))
        if token.type == "text" and not link_depth:
            linked += _linkify_text(token)
        else:
            linked.append(token)
    return linked


def _linkify_text(token: Token) -> list[Token]:
    linked: list[Token] = []
    at = 0
    for match in _BARE_URL_PATTERN.finditer(token.content):
        address = match[0].rstrip(_TRAILING_PUNCTUATION)
        # A closing parenthesis belongs to the URL if the URL contains an opening one.
        if "(" in address and match[0][len(address) :].startswith(")"):
            address += ")"
        if not _ALLOWED_URL_PATTERN.match(address):
            continue
        linked += [_create_text_token(token.content[at : match.start()]), *_create_link_tokens(address)]
        at = match.start() + len(address)
    return [*linked, _create_text_token(token.content[at:])] if linked else [token]


def _create_link_tokens(address: str) -> list[Token]:
    from markdown_it.token import Token  # loaded by now

    href = build_parser().normalizeLink(address)
    link_open = Token("link_open", "a", 1, attrs={"href": href, "title": href})
    return [link_open, _create_text_token(address), Token("link_close", "a", -1)]


def _create_text_token(content: str) -> Token:
    from markdown_it.token import Token  # loaded by now

    return Token("text", "", 0, content=content)


def _render_image_as_link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[index]
    source = html.escape(str(token.attrGet("src") or ""))
    alt_text = html.escape(renderer.renderInlineAsText(token.children or [], options, env).strip())
    label = f"Picture: {alt_text}" if alt_text else "Picture"
    return f'<a href="{source}" title="{source}">{label}</a>'


def render_code_block(
    _: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """Render rule of a code block, with colours."""
    token = tokens[index]
    language = resolve_language(token.info)
    attribute = f' data-language="{html.escape(language)}"' if language else ""
    return f'<pre{attribute} tabindex="0"><code>{highlight_code(token.content, language)}</code></pre>\n'
