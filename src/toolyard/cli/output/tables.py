"""Rows: a table on a terminal, tab-separated lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from toolyard.cli.output.safe_text import one_line
from toolyard.cli.output.terminal import has_colour, is_terminal

__all__ = ["Column", "Row", "StyledCell", "show_table"]


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
    if is_terminal(sys.stdout):
        _show_on_terminal(columns, list(rows))
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
