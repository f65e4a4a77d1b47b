"""Tables of results as CSV files."""

from __future__ import annotations

import csv
import io

from toolyard.types.visible_text import escape_formulas
from toolyard.web.rendering.result_view import (
    Number,
    ResultQuery,
    find_rows,
    list_columns,
    parse_result,
    write_compact,
)

__all__ = ["write_csv"]

_MAX_COLUMNS = 1_000
_MAX_CELLS = 2_000_000
_MAX_CELL_CHARACTERS = 32_767
"""Maximum length of a cell in common spreadsheets. Longer lists and objects are cut."""
_MAX_CELL_LEVELS = 100


def write_csv(query: ResultQuery) -> str | None:
    """Return the table of a result as CSV; None if it has none, or too many columns or cells.

    Spreadsheets run texts that begin like a formula, so these are escaped.
    """
    rows = find_rows(parse_result(query))
    if rows is None:
        return None
    columns = list_columns(rows, _MAX_COLUMNS + 1)
    if len(columns) > _MAX_COLUMNS or len(columns) * len(rows) > _MAX_CELLS:
        return None
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(map(escape_formulas, columns))
    for row in rows:
        writer.writerow([_format_cell(row.get(name)) for name in columns])
    return written.getvalue()


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Number) and value.lstrip("-")[:1].isdigit():
        return value
    return escape_formulas(
        value if isinstance(value, str) else write_compact(value, _MAX_CELL_CHARACTERS, _MAX_CELL_LEVELS)
    )
