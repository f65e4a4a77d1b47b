"""Views of a tool's result as HTML: a table, a tree of JSON, and the text.

A result comes from a server and may be anything. Every view shows a bounded part of it, with links to the
rest: each link is an address of the page that shows the result, so that all of it can be reached without a
script. Positions in JSON are written as the indexes of the members on the way (``2.0.5``), because keys may
have any length.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import islice, repeat
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlencode

from markupsafe import Markup

from toolyard.results.untrusted_text import unfence_text
from toolyard.types.visible_text import visible
from toolyard.web.rendering.highlighting import highlight_code, resolve_language

__all__ = [
    "MAX_JSON_CHARACTERS",
    "Number",
    "ResultQuery",
    "find_path_hint",
    "find_rows",
    "list_columns",
    "parse_result",
    "render_result",
    "summarize_result",
    "write_compact",
]

MAX_JSON_CHARACTERS = 8_000_000
"""Maximum length of a text that is read as JSON. Longer ones are shown as text."""
_MAX_ROWS = 100
_MAX_COLUMNS = 30
"""Maximum numbers of rows and columns of a table in one response."""
_MAX_COUNTED_COLUMNS = 10_000
_MAX_CELL_CHARACTERS = 200
_MAX_FACTS = 12
_MAX_TREE_NODES = 200
"""Maximum number of values of a tree in one response."""
_MAX_TREE_MEMBERS = 50
_MAX_TREE_LEVELS = 3
_MAX_PATH_CHARACTERS = 1_000
_MAX_STRING_CHARACTERS = 300
_MAX_RESPONSE_CHARACTERS = 150_000
"""Maximum number of characters of a server in one response, apart from those of a text."""
_FIRST_TEXT_CHARACTERS, _MAX_TEXT_CHARACTERS = 20_000, 200_000
"""Maximum length of a text in one response: at its beginning, and after a request for more."""
_DIFF_PATTERN = re.compile(r"^(?:diff --git |--- [^\n]+\n\+\+\+ |@@ -\d+(?:,\d+)? \+\d)", re.MULTILINE)
_PATH_NAMES = ("path", "file", "filename", "file_path", "filepath", "uri", "url", "name")
"""Members of an object and arguments of a tool that may name a file, whose suffix tells its language."""


class Number(str):
    """Literal of a JSON number with all its digits: a float would lose some of them."""

    __slots__ = ()


_NOT_JSON: Final = object()
_Row: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ResultQuery:
    """A result, and the part of it to be shown."""

    url: str
    """URL of the page that shows the result."""
    key: str
    """Prefix of the ids of elements, unique on the page."""
    text: str
    structured: str = ""
    """Structured content as JSON. It takes precedence over the text."""
    view: str = ""
    """``table``, ``tree`` or ``text``; empty for the first that exists."""
    path: str = ""
    """Position of the value that a tree shows."""
    start: int = 0
    """First row, member or character to be shown."""
    sort: int | None = None
    """Index of the column that a table is sorted by."""
    descending: bool = False
    path_hint: str = ""
    """Name of the file that the text may be from."""
    only_text: bool = False
    """True if the result is too costly for the other views."""

    def link(self, **changes: Any) -> str:
        """Return the escaped URL of another part of the same result."""
        other = replace(self, **changes)
        values = {
            "view": other.view,
            "path": other.path,
            "from": other.start or "",
            "sort": "" if other.sort is None else other.sort,
            "order": "desc" if other.descending else "",
            "file": other.path_hint,
        }
        query = urlencode({name: value for name, value in values.items() if value != ""})
        return escape(f"{self.url}?{query}" if query else self.url)

    @property
    def id(self) -> str:
        """Id of the element that shows this part."""
        suffix = hashlib.sha256(self.path.encode()).hexdigest()[:10] if self.path else ""
        return f"{self.key}-{suffix}" if suffix else self.key


# Reading.


def _parse_json_text(text: str) -> object:
    """Return the JSON value in a text, _NOT_JSON if it is something else.

    Objects on a line each are a list. Only lists and objects count: a number or word is a text for people.
    """
    stripped = unfence_text(text).strip()
    if stripped[:1] not in ("{", "[") or len(stripped) > MAX_JSON_CHARACTERS:
        return _NOT_JSON
    try:
        return _load_json(stripped)
    except (ValueError, RecursionError):
        pass
    lines = stripped.splitlines()
    try:
        if len(lines) > 1 and all(line[:1] == "{" for line in lines if line):
            return [_load_json(line) for line in lines if line]
    except (ValueError, RecursionError):
        pass
    return _NOT_JSON


def _load_json(text: str) -> object:
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)


def parse_result(query: ResultQuery) -> object:
    """Return the JSON of a result, if there is any: its structured content, or the JSON in its text."""
    value = _parse_json_text(query.structured) if query.structured else _NOT_JSON
    return _parse_json_text(query.text) if value is _NOT_JSON else value


def find_rows(value: object) -> list[_Row] | None:
    """Return the rows of a table: a list of objects, or the only such list that is a member of an object."""
    if _is_list_of_objects(value):
        return cast("list[_Row]", value)
    if not isinstance(value, dict):
        return None
    lists = [each for each in cast("dict[str, object]", value).values() if _is_list_of_objects(each)]
    return cast("list[_Row]", lists[0]) if len(lists) == 1 else None


def _is_list_of_objects(value: object) -> bool:
    entries = _as_container(value)
    return isinstance(entries, list) and bool(entries) and all(isinstance(each, dict) for each in entries)


def _as_container(value: object) -> dict[str, object] | list[object] | None:
    """Return an object or list of JSON with its type; None for other values."""
    return cast("dict[str, object] | list[object]", value) if isinstance(value, dict | list) else None


def list_columns(rows: Sequence[_Row], max_columns: int = _MAX_COUNTED_COLUMNS) -> list[str]:
    """Return the keys of all rows in the order in which they first occur."""
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row))
        if len(columns) > max_columns:
            break
    return list(columns)[:max_columns]


def summarize_result(text: str) -> str:
    """Return a line that says what a table or JSON text contains; empty for other texts."""
    value = _parse_json_text(text)
    if value is _NOT_JSON:
        return ""
    rows = find_rows(value)
    if rows is not None:
        columns = list_columns(rows)
        names = ", ".join(_shorten(name, 30) for name in columns[:6])
        return (
            f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}: {names}{', …' if len(columns) > 6 else ''}"
        )
    return write_compact(value, 100)


# Rendering.


def render_result(query: ResultQuery) -> Markup:
    """Return the HTML of a part of a result, in an element with the id of the query."""
    value = _NOT_JSON if query.only_text else parse_result(query)
    rows = None if query.path or value is _NOT_JSON else find_rows(value)
    views = [*(["table"] if rows is not None else []), *(["tree"] if value is not _NOT_JSON else []), "text"]
    view = query.view if query.view in views else views[0]
    shown = replace(query, view=view)
    if view == "table" and rows is not None:
        body = _render_facts(value, rows) + _render_table(shown, rows)
    elif view == "tree":
        body = _render_tree(shown, value)
    else:
        body = _render_text(shown, query.text or query.structured)
    if query.only_text:
        body = f'<p class="small-text muted">{_TOO_LARGE_TEXT}</p>{body}'
    tabs = "" if len(views) == 1 or query.path else _render_tabs(replace(shown, start=0, sort=None), views)
    return Markup(f'<div class="result-view" id="{escape(query.id)}">{tabs}{body}</div>')


_TOO_LARGE_TEXT = "This result is too large to be shown as a table or tree."
_VIEW_LABELS = {"table": "Table", "tree": "Tree", "text": "Raw"}


def _render_tabs(query: ResultQuery, views: Sequence[str]) -> str:
    links = "".join(
        f'<a href="{query.link(view=each)}" data-view{" aria-current=true" if each == query.view else ""}>'
        f"{_VIEW_LABELS[each]}</a>"
        for each in views
    )
    return f'<nav class="result-tabs" aria-label="View of the result">{links}</nav>'


def _render_more(query: ResultQuery, end: int, total: int, noun: str, extra: str = "") -> str:
    """Return the line below a part that says how much there is, with a link to the next part."""
    parts = [
        f"{query.start + 1:,} to {end:,} of {total:,} {noun}"
        if query.start
        else f"{end:,} of {total:,} {noun}"
    ]
    if end < total:
        parts.append(f'<a href="{query.link(start=end)}" data-more>Show more</a>')
    return f'<p class="more-line small-text muted">{" · ".join((*parts, *filter(None, (extra,))))}</p>'


def _render_facts(value: object, rows: list[_Row]) -> str:
    """Return the first members of the object that contains a table, without the table."""
    container = _as_container(value)
    members = container.items() if isinstance(container, dict) else ()
    facts = "".join(
        f"<dt>{_escape_text(_shorten(name, 60))}</dt> <dd>{_render_fact(member)}</dd>"
        for name, member in islice(members, _MAX_FACTS)
        if member is not rows
    )
    return f'<dl class="result-facts">{facts}</dl>' if facts else ""


def _render_fact(value: object) -> str:
    text = value if isinstance(value, str) else write_compact(value, _MAX_CELL_CHARACTERS)
    return _escape_text(_shorten(text, _MAX_CELL_CHARACTERS))


def _render_table(query: ResultQuery, rows: list[_Row]) -> str:
    all_columns = list_columns(rows)
    columns = all_columns[:_MAX_COLUMNS]
    if query.sort is not None and query.sort < len(columns):
        rows = _sort_rows(rows, columns[query.sort], descending=query.descending)
    start = min(query.start, len(rows))
    cells, end = list[str](), start
    left = _MAX_RESPONSE_CHARACTERS
    for row in rows[start : start + _MAX_ROWS]:
        line = "".join(_render_cell(row.get(name, _NOT_JSON)) for name in columns)
        left -= len(line)
        if left < 0 and end > start:
            break
        cells.append(f"<tr>{line}</tr>")
        end += 1
    head = "".join(
        _render_column(query, at, name, is_number=isinstance(rows[0].get(name), Number))
        for at, name in enumerate(columns)
    )
    notes = (
        _note_hidden_columns(query, len(columns), len(all_columns)),
        f'<a href="{query.link(view="csv", start=0, sort=None)}" download>Download CSV</a>',
        '<button type="button" class="link" data-copy-table data-needs-script>Copy</button>',
    )
    more = _render_more(replace(query, start=start), end, len(rows), "rows", " · ".join(filter(None, notes)))
    return (
        '<div class="result-table" role="region" aria-label="Table" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody data-rows>{''.join(cells)}</tbody></table></div>{more}"
    )


def _note_hidden_columns(query: ResultQuery, shown: int, total: int) -> str:
    if shown == total:
        return ""
    more = "more than " if total >= _MAX_COUNTED_COLUMNS else ""
    href = query.link(view="tree", start=0, sort=None)
    return f'{shown} of {more}{total:,} columns (<a href="{href}" data-view>all as a tree</a>)'


def _render_column(query: ResultQuery, at: int, name: str, *, is_number: bool) -> str:
    is_sorted = query.sort == at
    href = query.link(sort=at, start=0, descending=is_sorted and not query.descending)
    kind = ' class="number"' if is_number else ""
    state = f' aria-sort="{"descending" if query.descending else "ascending"}"' if is_sorted else ""
    label = _escape_text(_shorten(name, 60)) or "(empty)"
    return f'<th scope="col"{kind}{state}><a href="{href}" data-view><bdi>{label}</bdi></a></th>'


def _render_cell(value: object) -> str:
    if value is _NOT_JSON:
        return "<td></td>"
    if isinstance(value, Number):
        return f'<td class="number">{_escape_text(_shorten(value, _MAX_CELL_CHARACTERS))}</td>'
    if isinstance(value, str):
        return f'<td dir="auto">{_escape_text(_shorten(value, _MAX_CELL_CHARACTERS))}</td>'
    text = write_compact(value, _MAX_CELL_CHARACTERS)
    return f'<td class="mono">{_escape_text(_shorten(text, _MAX_CELL_CHARACTERS))}</td>'


def _sort_rows(rows: list[_Row], name: str, *, descending: bool) -> list[_Row]:
    """Return the rows sorted by a column. Those without a value are always last."""
    keyed = [(_build_sort_key(row[name]), row) for row in rows if row.get(name) is not None]
    keyed.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(row for _, row in keyed), *(row for row in rows if row.get(name) is None)]


def _build_sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, Number):
        try:
            return (0, float(value), "")
        except ValueError:
            pass
    if isinstance(value, bool):
        return (2, float(value), "")
    if isinstance(value, str):
        return (1, 0.0, value[:1_000].casefold())
    return (3, 0.0, write_compact(value, 200))


# Trees.


class _Budget:
    """Number of values and characters that a tree may still show."""

    def __init__(self) -> None:
        self.nodes = _MAX_TREE_NODES
        self.characters = _MAX_RESPONSE_CHARACTERS

    @property
    def is_used_up(self) -> bool:
        return self.nodes <= 0 or self.characters <= 0

    def take(self, html: str) -> str:
        self.nodes -= 1
        self.characters -= len(html)
        return html


def _render_tree(query: ResultQuery, value: object) -> str:
    for index in _read_path(query.path):
        members = _list_members(_as_container(value) or [])
        if index >= len(members):
            return '<p class="muted">This part does not exist.</p>'
        name, value = members[index]
        if isinstance(value, str) and not isinstance(value, Number):
            hint = query.path_hint or name
            return _render_text(replace(query, path_hint=hint), value)
    container = _as_container(value)
    return _render_scalar(value) if container is None else _render_members(query, container, 0, _Budget())


def _read_path(path: str) -> Iterator[int]:
    for part in path[:_MAX_PATH_CHARACTERS].split(".") if path else ():
        if not (part.isascii() and part.isdigit() and len(part) < 12):
            return
        yield int(part)


def _list_members(value: dict[str, object] | list[object]) -> list[tuple[str, object]]:
    return list(
        value.items() if isinstance(value, dict) else ((str(at), each) for at, each in enumerate(value))
    )


def _render_members(
    query: ResultQuery, value: dict[str, object] | list[object], level: int, budget: _Budget
) -> str:
    """Return the members of a list or object from ``query.start`` on."""
    members = _list_members(value)
    start = min(query.start, len(members))
    key_class = "tree-index" if isinstance(value, list) else "tree-key"
    lines, end = list[str](), start
    for at in range(start, min(start + (_MAX_ROWS if level == 0 else _MAX_TREE_MEMBERS), len(members))):
        if budget.is_used_up and end > start:
            break
        name, member = members[at]
        label = f'<bdi class="{key_class}">{_escape_text(_shorten(name, 120)) or "(empty)"}</bdi>'
        path = f"{query.path}.{at}" if query.path else str(at)
        within = replace(query, path=path, start=0)
        lines.append(f"<li>{_render_member(within, budget.take(label), member, level, budget)}</li>")
        end += 1
    is_whole = start == 0 and end == len(members)
    more = "" if is_whole else _render_more(replace(query, start=start), end, len(members), "entries")
    return f'<ul class="tree" data-rows>{"".join(lines)}</ul>{more}'


def _render_member(query: ResultQuery, label: str, value: object, level: int, budget: _Budget) -> str:
    container = _as_container(value)
    if container:
        nouns = ("entry", "entries") if isinstance(container, list) else ("field", "fields")
        peek = budget.take(_escape_text(write_compact(container, 60)))
        summary = (
            f'{label} <span class="muted">{_count(len(container), *nouns)}</span> '
            f'<span class="tree-preview muted">{peek}</span>'
        )
        if level + 1 < _MAX_TREE_LEVELS and len(container) <= _MAX_TREE_MEMBERS and not budget.is_used_up:
            is_open = " open" if level == 0 and len(container) <= 10 else ""
            inner = _render_members(query, container, level + 1, budget)
            return f"<details{is_open}><summary>{summary}</summary>{inner}</details>"
        return f"<details><summary>{summary}</summary>{_render_later(query, 'Show')}</details>"
    if isinstance(value, str) and len(value) > _MAX_STRING_CHARACTERS:
        peek = budget.take(_escape_text(_shorten(value, _MAX_CELL_CHARACTERS)))
        length = f'<span class="muted">{len(value):,} characters</span>'
        summary = f'{label} <span class="h-s2" dir="auto">{peek}</span> {length}'
        return f"<details><summary>{summary}</summary>{_render_later(query, 'Show all')}</details>"
    return f"{label} {budget.take(_render_scalar(value))}"


def _render_later(query: ResultQuery, text: str) -> str:
    """Return a placeholder that the script replaces when it is opened."""
    if len(query.path) > _MAX_PATH_CHARACTERS:
        return '<p class="muted">Nested too deeply to be shown here. Download the result to read it.</p>'
    href = query.link(view="tree", start=0)
    link = f'<a href="{href}">{text}</a>'
    return f'<p class="result-view" id="{escape(query.id)}" data-lazy-load="{href}">{link}</p>'


def _render_scalar(value: object) -> str:
    if isinstance(value, Number):
        return f'<span class="h-mi">{_escape_text(_shorten(value, _MAX_STRING_CHARACTERS))}</span>'
    if isinstance(value, str) and value:
        return f'<span class="h-s2" dir="auto">{_escape_text(value)}</span>'
    if isinstance(value, str | dict | list):
        noun = "text" if isinstance(value, str) else "list" if isinstance(value, list) else "object"
        return f'<span class="muted">empty {noun}</span>'
    return f'<span class="h-kc">{json.dumps(value)}</span>'


# Texts.


def _render_text(query: ResultQuery, text: str) -> str:
    start = min(query.start, len(text))
    part = text[start : start + (_MAX_TEXT_CHARACTERS if start else _FIRST_TEXT_CHARACTERS)]
    end = start + len(part)
    html = highlight_code(visible(part), _guess_language(text, query.path_hint))
    is_whole = start == 0 and end == len(text)
    download = "" if query.path else f'<a href="{query.link(view="file", start=0)}" download>Download</a>'
    more = (
        "" if is_whole else _render_more(replace(query, start=start), end, len(text), "characters", download)
    )
    return _TEXT_HTML.format(html, more)


_TEXT_HTML = (
    '<div class="code"><button type="button" class="button quiet small" data-copy data-needs-script '
    'aria-label="Copy the result"><svg class="icon" aria-hidden="true"><use href="#i-copy"/></svg></button>'
    '<pre tabindex="0" aria-label="The result"><code data-rows>{}</code></pre></div>{}'
)


def _guess_language(text: str, path_hint: str) -> str:
    head = text[:5_000]
    if _DIFF_PATTERN.search(head):
        return "diff"
    if head.lstrip()[:1] in ("{", "["):
        return "json"
    if re.match(r"\s*(?:<\?xml|<!doctype html|<html)", head, re.IGNORECASE):
        return "html"
    _, dot, suffix = path_hint.rpartition("/")[2].rpartition(".")
    return resolve_language(suffix) if dot else ""


def find_path_hint(arguments: object) -> str:
    """Return the argument of a tool that names a file; empty if there is none."""
    if not isinstance(arguments, Mapping):
        return ""
    members = cast("Mapping[str, object]", arguments)
    found = (members.get(name) for name in _PATH_NAMES)
    return next((each[-200:] for each in found if isinstance(each, str) and each), "")


def _escape_text(text: str) -> str:
    return escape(visible(text), quote=False)


def _shorten(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def write_compact(value: object, left: int, levels: int = 4) -> str:
    """Return JSON in one line that ends soon after ``left`` characters, and has as many levels at most."""
    container = _as_container(value)
    if container is None:
        if isinstance(value, str):
            return value if isinstance(value, Number) else json.dumps(value[: left + 1], ensure_ascii=False)
        return json.dumps(value)
    opening, closing = "[]" if isinstance(container, list) else "{}"
    if not levels:
        return f"{opening}…{closing}"
    pairs = container.items() if isinstance(container, dict) else zip(repeat(""), container, strict=False)
    parts = list[str]()
    for name, member in pairs:
        if left <= 0:
            parts.append("…")
            break
        key = "" if isinstance(container, list) else f"{json.dumps(name[: left + 1], ensure_ascii=False)}: "
        parts.append(key + write_compact(member, left - len(key), levels - 1))
        left -= len(parts[-1]) + 2
    return f"{opening}{', '.join(parts)}{closing}"
