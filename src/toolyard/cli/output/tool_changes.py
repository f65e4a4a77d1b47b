"""What is not as it was accepted, a line each."""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.cli.output.messages import note
from toolyard.cli.output.safe_text import count, one_line, plain

__all__ = ["show_change", "tell_left"]


def show_change(kind: str, id: str, was: str | None, diff: Iterable[str] = ()) -> None:
    """One change, and to the letter what it is where ``diff`` says."""
    print(f"{kind:<12} {one_line(id)}{f' (was {one_line(was)})' if was else ''}")
    for line in diff:
        print(f"    {one_line(line) if line[:1] != ' ' else plain(line)}")


def tell_left(number: int) -> None:
    """How many wait, and what to do."""
    hint = "see them with `toolyard lock --diff`, accept with `toolyard lock --accept NAME` or --all"
    note(f"{count(number, 'change')} not accepted", hint)
