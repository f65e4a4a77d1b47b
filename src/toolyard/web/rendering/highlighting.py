"""Code in colours: by classes, since pages have no styles within."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Mapping
from functools import cache

from pygments.lexer import Lexer, default, include
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.lexers.c_cpp import CLexer, CppLexer  # pyright: ignore[reportMissingTypeStubs]
from pygments.token import STANDARD_TYPES
from pygments.token import _TokenType as TokenType  # pyright: ignore[reportPrivateUsage]

__all__ = ["CSS_CLASS_PREFIX", "highlight_code", "resolve_language"]

CSS_CLASS_PREFIX = "h-"
_MAX_HIGHLIGHTED_CHARACTERS = 20_000
"""Characters. Longer code is shown in one colour: colouring takes longer than reading it."""
_BASE_CPU_SECONDS, _CPU_SECONDS_PER_CHARACTER = 0.02, 10e-6
"""Of the processor's time, for a text and for each of its characters: several times what a program takes. One
that takes longer was made to, and is shown in one colour."""
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
"""Languages that are coloured, by what they are called. Not all that there are: some lexers take very long
over what is not their language."""


def resolve_language(info: str) -> str:
    """The language that a block of code names, as we call it; empty where it names none that we know."""
    words = info.split(None, 1)
    return _LANGUAGES_BY_ALIAS.get(words[0].strip("{}.").lower(), "") if words else ""


def highlight_code(code: str, language: str) -> str:
    """HTML of the code. The text is the same, whatever the language."""
    if not language or len(code) > _MAX_HIGHLIGHTED_CHARACTERS:
        return html.escape(code, quote=False)
    if language == "json":
        return _highlight_json(code)
    lexer, spans = _load_lexer(language), list[str]()
    ends = time.thread_time() + _BASE_CPU_SECONDS + _CPU_SECONDS_PER_CHARACTER * len(code)
    for kind, text in lexer.get_tokens(code):
        spans.append(_format_span(kind, text))
        if time.thread_time() > ends:
            return html.escape(code, quote=False)
    return "".join(spans)


def _highlight_json(code: str) -> str:
    """Colour JSON in one pass. Pages show much of it, and a lexer takes ten times as long."""
    spans: list[str] = []
    at = 0
    for found in _JSON_TOKEN_PATTERN.finditer(code):
        name = found.lastgroup or ""
        escaped = html.escape(found[0], quote=False)
        spans += (
            html.escape(code[at : found.start()], quote=False),
            _JSON_SPAN_TEMPLATE.format(name, escaped),
        )
        at = found.end()
    return "".join((*spans, html.escape(code[at:], quote=False)))


_JSON_TOKEN_PATTERN = re.compile(
    r"""(?P<nt>"(?:[^"\\]|\\.)*+"(?=\s*:))|(?P<s2>"(?:[^"\\]|\\.)*+")"""
    r"|(?P<mf>-?\d++(?:\.\d++(?:[eE][+-]?\d++)?|[eE][+-]?\d++))|(?P<mi>-?\d++)|(?P<kc>\b(?:true|false|null)\b)"
)
_JSON_SPAN_TEMPLATE = f'<span class="{CSS_CLASS_PREFIX}{{}}">{{}}</span>'


@cache
def _load_lexer(language: str) -> Lexer:
    made = _LEXERS_WITHOUT_FUNCTIONS.get(language)
    options = {"stripnl": False, "ensurenl": False}
    return get_lexer_by_name(language, **options) if made is None else made(**options)


_LEXER_RULES_WITHOUT_FUNCTIONS = {
    "root": [include("whitespace"), include("keywords"), include("types"), default("statement")]
}


class _CLexerWithoutFunctions(CLexer):
    """Without the rules that tell functions from other names: one look of theirs may take minutes."""

    tokens = _LEXER_RULES_WITHOUT_FUNCTIONS


class _CppLexerWithoutFunctions(CppLexer):
    """The same for C++."""

    tokens = _LEXER_RULES_WITHOUT_FUNCTIONS


_LEXERS_WITHOUT_FUNCTIONS: Mapping[str, Callable[..., Lexer]] = {
    "c": _CLexerWithoutFunctions,
    "cpp": _CppLexerWithoutFunctions,
}


def _format_span(kind: TokenType, text: str) -> str:
    said = html.escape(text, quote=False)
    name = _find_css_class(kind)
    return f'<span class="{CSS_CLASS_PREFIX}{name}">{said}</span>' if name and not text.isspace() else said


@cache
def _find_css_class(kind: TokenType) -> str:
    """The short name of a kind of token, or of the nearest kind above it that has one."""
    return next(STANDARD_TYPES[each] for each in reversed(kind.split()) if each in STANDARD_TYPES)
