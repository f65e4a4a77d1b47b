"""Tools as a table or as JSON, for local and remote tools, and their changes that are not accepted yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from toolyard.cli.output.console import (
    Column,
    Row,
    StyledCell,
    format_count,
    is_terminal,
    make_printable,
    one_line,
    show_note,
    show_table,
    style_text,
)
from toolyard.types.call import HiddenTool
from toolyard.types.tool import Tool

__all__ = ["show_change", "show_tools", "show_unaccepted_changes_notice", "tools_json"]


_COLUMNS = (Column("tool", style="cyan", never_truncate=True), Column("what it does"))


def show_tools(tools: Sequence[Tool], hidden: Sequence[HiddenTool] = ()) -> None:
    """Print each tool with the first line of its description, and each hidden one with the reason."""
    rows: list[Row] = [(tool.name, _first_line(tool)) for tool in tools]
    rows += [(each.name, StyledCell(f"hidden: {one_line(each.reason, 200)}", "dim")) for each in hidden]
    if rows or not is_terminal(sys.stdout):
        show_table(_COLUMNS, sorted(rows, key=lambda row: str(row[0])))
    if is_terminal(sys.stdout):
        of = len({tool.server for tool in tools})
        print(
            style_text(
                f"\n{format_count(len(tools), 'tool')} of {format_count(of, 'server')}", "dim", sys.stdout
            )
        )


def tools_json(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the tools as JSON."""
    return [
        {
            "name": tool.name,
            "id": tool.id,
            "server": tool.server,
            "title": tool.title,
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
            "annotations": tool.annotations,
        }
        for tool in tools
    ]


def _first_line(tool: Tool) -> str:
    text = (tool.description or tool.title or "").strip()
    return one_line(text.split("\n", 1)[0], 200)


def show_change(kind: str, id: str, was: str | None, diff: Iterable[str] = ()) -> None:
    """Print one change, with its ``diff`` if there is one."""
    print(f"{kind:<12} {one_line(id)}{f' (was {one_line(was)})' if was else ''}")
    for line in diff:
        print(f"    {one_line(line) if line[:1] != ' ' else make_printable(line)}")


def show_unaccepted_changes_notice(number: int) -> None:
    """Print how many changes are not accepted, and how to accept them."""
    hint = "review with `toolyard lock --diff`, accept with `toolyard lock --accept NAME` or --all"
    show_note(f"{format_count(number, 'change')} not accepted", hint)
