"""Printing of tool changes that are not accepted yet."""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.cli.output.messages import show_note
from toolyard.cli.output.safe_text import format_count, make_printable, one_line

__all__ = ["show_change", "show_unaccepted_changes_notice"]


def show_change(kind: str, id: str, was: str | None, diff: Iterable[str] = ()) -> None:
    """Print one change, with its ``diff`` if there is one."""
    print(f"{kind:<12} {one_line(id)}{f' (was {one_line(was)})' if was else ''}")
    for line in diff:
        print(f"    {one_line(line) if line[:1] != ' ' else make_printable(line)}")


def show_unaccepted_changes_notice(number: int) -> None:
    """Print how many changes are not accepted, and how to accept them."""
    hint = "see them with `toolyard lock --diff`, accept with `toolyard lock --accept NAME` or --all"
    show_note(f"{format_count(number, 'change')} not accepted", hint)
