"""The tables that a benchmark prints and writes into the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bars import Medians, Verdict

__all__ = ["Column", "Section", "peer_table", "replace_between", "table", "verdict_table"]


@dataclass(frozen=True, slots=True)
class Column:
    """One measure as a column: its heading, what to multiply by, its decimals, and whether to compare."""

    measure: str
    heading: str
    scale: float = 1000.0
    decimals: int = 2
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the report: one line a peer, one column a measure."""

    title: str
    columns: tuple[Column, ...]


def peer_table(section: Section, peers: Sequence[str], medians: Medians, base: str = "mcp") -> str:
    """Every peer's number, with its ratio to the base in brackets."""
    lines = [["", *(column.heading for column in section.columns)]]
    lines += [[peer, *(_cell(column, peer, medians, base) for column in section.columns)] for peer in peers]
    return table(lines)


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Every bar with its limit, what was measured and whether it was met."""
    lines = [["what", "bar", "measured", ""]]
    for verdict in verdicts:
        ratio_text = "—" if verdict.ratio is None else f"{verdict.ratio:.2f} ×"
        bar = f"{verdict.bar.side} {verdict.bar.limit:g} ×"
        lines.append([verdict.bar.says, bar, ratio_text, _word(verdict)])
    return table(lines)


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that also reads well on a terminal: first column left, the others right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def replace_between(text: str, start: str, end: str, inner: str) -> str:
    """The text with what stands between two markers replaced; raises ValueError if a marker is missing."""
    before, marker, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if not marker or not found_end:
        raise ValueError(f"no {start} … {end} to write between")
    return f"{before}{start}\n\n{inner.strip()}\n\n{end}{after}"


def _word(verdict: Verdict) -> str:
    if verdict.ratio is None:
        return "not measured"
    return "met" if verdict.met else "missed"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if not index else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join([first, *others]) + " |"


def _cell(column: Column, peer: str, medians: Medians, base: str) -> str:
    row = medians.get(column.measure, {})
    if peer not in row:
        return "—"
    cell_text = f"{row[peer] * column.scale:,.{column.decimals}f}"
    return f"{cell_text} ({row[peer] / row[base]:.2f} ×)" if column.compared and row.get(base) else cell_text
