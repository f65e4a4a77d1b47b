"""Output of commands: text that is safe to print, styles, messages, tables and JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from toolyard.errors import AgentsError, ConfigError, Problem, RpcError, ServerError, ToolyardError
from toolyard.types.plurals import format_count
from toolyard.types.visible_text import hidden_characters, visible

__all__ = [
    "Column",
    "Notice",
    "Row",
    "StyledCell",
    "error_json",
    "format_age",
    "format_count",
    "format_duration",
    "format_problem",
    "format_timestamp",
    "has_colour",
    "is_interactive",
    "is_terminal",
    "make_printable",
    "one_line",
    "print_json",
    "print_to_stderr",
    "print_written_file",
    "problem_notice",
    "show_error",
    "show_message",
    "show_note",
    "show_notices",
    "show_problems",
    "show_table",
    "style_text",
]

_ANSI_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # It was closed.
        return False


def has_colour(stream: TextIO | None) -> bool:
    """Return whether to use colours: on a terminal that supports them, without NO_COLOR."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_interactive() -> bool:
    """Return whether a person can be asked."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def style_text(text: str, style: str, stream: TextIO | None) -> str:
    """Return ``text`` in a colour, if the stream supports colours."""
    if not text or not has_colour(stream):
        return text
    return f"\x1b[{_ANSI_CODES[style]}m{text}\x1b[0m"


_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def make_printable(text: str) -> str:
    """Replace control characters, which could rewrite the screen, and show other hidden characters."""
    return text if text.isascii() and text.isprintable() else visible(_CONTROL_CHARACTERS.sub("\ufffd", text))


def one_line(text: str, width: int | None = None) -> str:
    """Return a text on one line, escaped, and truncated to ``width``."""
    line = make_printable(" ".join(text.split()))
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def format_duration(seconds: float) -> str:
    """Format a duration."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_age(seconds: float) -> str:
    """Format an age, roughly as people say it."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{format_count(int(seconds // size), unit)} ago"
    return f"{format_count(int(seconds), 'second')} ago"


def format_timestamp(seconds: float) -> str:
    """Format a time as the API does."""
    from datetime import UTC, datetime  # most commands print no time

    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, with hidden characters escaped as JSON escapes them."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=_to_jsonable)
    sys.stdout.write(hidden_characters().sub(_escape_for_json, text) + "\n")


def _escape_for_json(match: re.Match[str]) -> str:
    # JSON escapes characters beyond the 16-bit range as two surrogates.
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _to_jsonable(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    keys = getattr(value, "keys", None)
    return {key: value[key] for key in keys()} if keys is not None else str(value)


_COLOURS_BY_KIND = {"error": "red", "problem": "red", "hint": "cyan", "note": "yellow"}


@dataclass(frozen=True, slots=True)
class Notice:
    """A note or an error beside the output of a command, which goes on."""

    text: str
    hint: str | None = None
    is_error: bool = False


def show_notices(notices: Iterable[Notice]) -> None:
    """Print notices on standard error."""
    for each in notices:
        (show_error if each.is_error else show_note)(each.text, each.hint)


def show_error(cause: str, hint: str | None = None) -> None:
    """Print ``error: …`` on standard error, with its hint."""
    show_message("error", cause, hint, sys.stderr)


def show_note(text: str, hint: str | None = None) -> None:
    """Print a note on standard error."""
    show_message("note", text, hint, sys.stderr)


def show_problems(problems: Iterable[Problem]) -> None:
    """Print every problem of a file, with its position."""
    show_notices(problem_notice(problem) for problem in problems)


def problem_notice(problem: Problem) -> Notice:
    """Return a problem of a file, with its position, as an error."""
    return Notice(format_problem(problem), problem.hint, is_error=True)


def show_message(kind: str, text: str, hint: str | None, stream: TextIO) -> None:
    """Print one message and its hint."""
    print(f"{style_text(f'{kind}:', _COLOURS_BY_KIND[kind], stream)} {make_printable(text)}", file=stream)
    if hint:
        print(f"{style_text('hint:', 'cyan', stream)} {make_printable(hint)}", file=stream)


def print_to_stderr(text: str) -> None:
    """Print a line that is not part of the output on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def print_written_file(file: Path | str, backup: Path | None, change: str = "") -> None:
    """Print that a file was written, with a description of the change, and where its previous version is."""
    print(f"{style_text('wrote', 'green', sys.stdout)} {file}{change}")
    if backup is not None:
        print(f"the previous version is in {backup}")


def format_problem(problem: Problem) -> str:
    """Return a problem as one line, without its hint: file, line, path, message."""
    return one_line(problem.headline)


def error_json(error: ToolyardError) -> dict[str, Any]:
    """Return an error as a JSON object. ``kind`` is its class name."""
    found: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": error.cause,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }
    if isinstance(error, ServerError):
        found["server"] = error.server
    if isinstance(error, RpcError):
        found["code"], found["data"] = error.code, error.data
    if isinstance(error, ConfigError | AgentsError):
        found["problems"] = [asdict(problem) for problem in error.problems]
    return found


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``wraps``: it may take several lines on a terminal. ``never_truncate``: it is always shown in
    full."""

    title: str
    align_right: bool = False
    wraps: bool = False
    never_truncate: bool = False
    style: str = ""


@dataclass(frozen=True, slots=True)
class StyledCell:
    """A text with its own style."""

    text: str
    style: str = ""


_COLUMN_GAP_CHARACTERS = 2
_MIN_LAST_COLUMN_CHARACTERS = 10

Row: TypeAlias = Sequence[str | StyledCell]


def show_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print the rows. In a pipe each is one tab-separated line, without a heading."""
    rows = list(rows)
    if rows and is_terminal(sys.stdout):
        _show_on_terminal(columns, rows)
        return
    for row in rows:
        print("\t".join(one_line(_cell_text(cell)) for cell in row))


def _cell_text(cell: str | StyledCell) -> str:
    return cell.text if isinstance(cell, StyledCell) else cell


def _show_on_terminal(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    from rich.cells import cell_len  # a pipe needs none of it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(no_color=not has_colour(sys.stdout), highlight=False)
    lines = [[one_line(_cell_text(cell)) for cell in row] for row in rows]
    widths = [
        max(cell_len(text) for text in (column.title, *(line[place] for line in lines)))
        for place, column in enumerate(columns)
    ]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _COLUMN_GAP_CHARACTERS, 0, 0))
    for place, column in enumerate(columns):
        room = console.width - sum(width + _COLUMN_GAP_CHARACTERS for width in widths[:-1])
        table.add_column(
            column.title,
            justify="right" if column.align_right else "left",
            style=column.style,
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
            min_width=widths[place] if column.never_truncate else None,
            # A last column that cannot wrap gets the remaining width.
            max_width=max(room, _MIN_LAST_COLUMN_CHARACTERS)
            if place == len(columns) - 1 and not column.wraps
            else None,
        )
    for row, line in zip(rows, lines, strict=True):
        styles = [cell.style if isinstance(cell, StyledCell) else "" for cell in row]
        # As Text, so that server text is not interpreted as markup.
        table.add_row(*(Text(text, style=style) for text, style in zip(line, styles, strict=True)))
    console.print(table)
