"""Errors, hints and notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from toolyard.cli.output.safe_text import make_printable, one_line
from toolyard.cli.output.terminal import style_text
from toolyard.errors import AgentsError, ConfigError, Problem, RpcError, ServerError, ToolyardError

__all__ = [
    "Notice",
    "error_json",
    "format_problem",
    "problem_json",
    "problem_notice",
    "show_error",
    "show_message",
    "show_note",
    "show_notices",
    "show_problems",
]

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


def format_problem(problem: Problem) -> str:
    """Return a problem as one line, without its hint: file, line, path, message."""
    return one_line(problem.headline)


def problem_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as a JSON object."""
    return asdict(problem)


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
        found["problems"] = [problem_json(problem) for problem in error.problems]
    return found
