"""Syntax highlighting by CSS classes. Inline styles are forbidden by our content security policy."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType as TokenType  # pyright: ignore[reportPrivateUsage]

__all__ = ["CSS_CLASS_PREFIX", "highlight_code", "resolve_language"]

CSS_CLASS_PREFIX = "h-"
_MAX_HIGHLIGHTED_CHARACTERS = 20_000
"""Maximum length of highlighted code, in characters. Longer code is shown without colours."""
_BASE_CPU_SECONDS, _CPU_SECONDS_PER_CHARACTER = 0.02, 10e-6
"""CPU time allowed for a text and for each of its characters: several times the need of ordinary code. Code
that takes longer is probably hostile, and is shown without colours."""
_LANGUAGES_BY_ALIAS = {
    **dict.fromkeys(("sh", "shell", "zsh", "bash"), "bash"),
    **dict.fromkeys(("console", "shell-session", "shellsession"), "console"),
    **dict.fromkeys(("js", "javascript", "mjs", "cjs", "node"), "javascript"),
    **dict.fromkeys(("ts", "typescript"), "typescript"),
    **dict.fromkeys(("py", "python", "python3"), "python"),
    **dict.fromkeys(("yml", "yaml"), "yaml"),
    **dict.fromkeys(("c++", "cpp", "cc", "hpp"), "cpp"),
    **dict.fromkeys(("c#", "cs", "csharp"), "csharp"),
    **dict.fromkeys(("rs", "rust"), "rust"),
    **dict.fromkeys(("rb", "ruby"), "ruby"),
    **dict.fromkeys(("kt", "kotlin"), "kotlin"),
    **dict.fromkeys(("md", "markdown"), "markdown"),
    **dict.fromkeys(("docker", "dockerfile"), "docker"),
    **dict.fromkeys(("make", "makefile"), "make"),
    **dict.fromkeys(("ps1", "powershell", "pwsh"), "powershell"),
    **dict.fromkeys(("golang", "go"), "go"),
    **dict.fromkeys(("patch", "diff"), "diff"),
    **dict.fromkeys(("jsonc", "json5", "json"), "json"),
    **{name: name for name in ("c", "css", "dart", "elixir", "erlang", "graphql", "haskell", "hcl", "html")},
    **{name: name for name in ("http", "ini", "java", "jsx", "lua", "nginx", "nix", "ocaml", "perl", "php")},
    **{name: name for name in ("protobuf", "pycon", "r", "scala", "scss", "sql", "swift", "toml")},
    **{name: name for name in ("tsx", "vue", "xml", "zig")},
}
"""Highlighted languages by name. A selection: some lexers take very long on text in another language."""


def resolve_language(info: str) -> str:
    """Return the canonical language of a code fence's info string, or an empty string if unknown."""
    words = info.split(None, 1)
    return _LANGUAGES_BY_ALIAS.get(words[0].strip("{}.").lower(), "") if words else ""


def highlight_code(code: str, language: str, clock: Callable[[], float] = time.thread_time) -> str:
    """Return the code as HTML. Highlighting never changes the text.

    ``clock`` measures the CPU time of this thread, so that the result does not depend on the load of the
    machine.
    """
    if not language or len(code) > _MAX_HIGHLIGHTED_CHARACTERS:
        return html.escape(code, quote=False)
    if language == "json":
        return _highlight_json(code)
    lexer, spans = _load_lexer(language), list[str]()
    deadline = clock() + _BASE_CPU_SECONDS + _CPU_SECONDS_PER_CHARACTER * len(code)
    for kind, text in lexer.get_tokens(code):
        spans.append(_format_span(kind, text))
        if clock() > deadline:
            return html.escape(code, quote=False)
    return "".join(spans)


def _highlight_json(code: str) -> str:
    """Highlight JSON by one regular expression, ten times as fast as a lexer: pages show much JSON."""
    spans: list[str] = []
    at = 0
    for match in _JSON_TOKEN_PATTERN.finditer(code):
        name = match.lastgroup or ""
        escaped = html.escape(match[0], quote=False)
        spans += (
            html.escape(code[at : match.start()], quote=False),
            _JSON_SPAN_TEMPLATE.format(name, escaped),
        )
        at = match.end()
    return "".join((*spans, html.escape(code[at:], quote=False)))


_JSON_TOKEN_PATTERN = re.compile(
    r"""(?P<nt>"(?:[^"\\]|\\.)*+"(?=\s*:))|(?P<s2>"(?:[^"\\]|\\.)*+")"""
    r"|(?P<mf>-?\d++(?:\.\d++(?:[eE][+-]?\d++)?|[eE][+-]?\d++))|(?P<mi>-?\d++)|(?P<kc>\b(?:true|false|null)\b)"
)
_JSON_SPAN_TEMPLATE = f'<span class="{CSS_CLASS_PREFIX}{{}}">{{}}</span>'


@cache
def _load_lexer(language: str) -> Lexer:
    # Imported late: slow to load, and needed for code other than JSON only.
    from pygments.lexer import default, include
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
    from pygments.lexers.c_cpp import CLexer, CppLexer  # pyright: ignore[reportMissingTypeStubs]

    options = {"stripnl": False, "ensurenl": False}
    base_class = {"c": CLexer, "cpp": CppLexer}.get(language)
    if base_class is None:
        return get_lexer_by_name(language, **options)
    # Without the rules for function names, whose backtracking may take minutes.
    rules = {"root": [include("whitespace"), include("keywords"), include("types"), default("statement")]}
    lexer_class = cast("type[Lexer]", type("LexerWithoutFunctions", (base_class,), {"tokens": rules}))
    return lexer_class(**options)


def _format_span(kind: TokenType, text: str) -> str:
    escaped = html.escape(text, quote=False)
    name = _find_css_class(kind)
    return (
        f'<span class="{CSS_CLASS_PREFIX}{name}">{escaped}</span>' if name and not text.isspace() else escaped
    )


@cache
def _find_css_class(kind: TokenType) -> str:
    """Return the short name of a token type, or of its nearest ancestor with one."""
    from pygments.token import STANDARD_TYPES  # loaded by now

    return next(STANDARD_TYPES[each] for each in reversed(kind.split()) if each in STANDARD_TYPES)
