"""How servers are: a table, and what helps with those that cannot be used. For ours and a remote's alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolyard.cli.output.messages import show_finding
from toolyard.cli.output.safe_text import one_line
from toolyard.cli.output.tables import Cell, Column, Row, show_table
from toolyard.cli.output.terminal import is_terminal, paint

__all__ = ["ServerLine", "named", "servers_json", "show_servers", "tell_more"]

_COLUMNS = (
    Column("server", style="cyan", whole=True),
    Column("state"),
    Column("tools", right=True),
    Column("~tokens", right=True),
    Column("protocol"),
    Column("about", wraps=True),
)
_STYLES = {
    "ready": "green",
    "failed": "red",
    "needs_auth": "yellow",
    "needs_reauth": "yellow",
    "pending": "yellow",
    "disabled": "dim",
}


@dataclass(frozen=True, slots=True)
class ServerLine:
    """One server as it is shown. ``about`` is what to say where nothing is wrong."""

    server: str
    state: str
    enabled: bool
    transport: str
    trust: str
    origin: str
    about: str
    broken: bool = False
    cause: str | None = None
    hint: str | None = None
    protocol: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: int | None = None
    tokens: int | None = None
    set_aside: tuple[str, ...] = ()
    age: float | None = None
    """Seconds since its tools were listed."""
    stderr: tuple[str, ...] = ()


def show_servers(lines: Sequence[ServerLine]) -> None:
    """The table."""
    show_table(_COLUMNS, [_row(line) for line in lines])


def tell_more(lines: Sequence[ServerLine]) -> None:
    """What helps with a server that cannot be used: on standard error, so that a pipe keeps its lines."""
    for line in lines:
        if not line.broken or not (line.hint or line.stderr):
            continue
        if is_terminal(sys.stderr):
            print(file=sys.stderr)
        name = paint(f"{line.server}:", "cyan", sys.stderr)
        for words in line.stderr:
            print(f"{name} {paint(f'stderr: {words}', 'dim', sys.stderr)}", file=sys.stderr)
        if line.hint:
            show_finding("hint", f"{line.server}: {line.hint}", None, sys.stderr)


def servers_json(lines: Sequence[ServerLine]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "server": line.server,
            "state": line.state,
            "cause": line.cause,
            "hint": line.hint,
            "transport": line.transport,
            "trust": line.trust,
            "origin": line.origin,
            "protocol_version": line.protocol,
            "server_info": dict(line.info),
            "tools": line.tools,
            "tokens_estimated": line.tokens,
            "set_aside": list(line.set_aside),
            "listed_seconds_ago": line.age,
            "stderr": list(line.stderr) if line.broken else [],
        }
        for line in lines
    ]


def named(info: Mapping[str, Any]) -> str:
    """What a server calls itself."""
    words = (info.get("title") or info.get("name"), info.get("version"))
    return one_line(" ".join(word for word in words if isinstance(word, str)), 60)


def _row(line: ServerLine) -> Row:
    style = _STYLES.get(line.state, "")
    about: str | Cell = line.about
    if line.cause is not None:
        about = Cell(line.cause, style)
    elif not line.enabled:
        about = Cell("switched off in its entry", "dim")
    return (
        line.server,
        Cell(line.state, style),
        "-" if line.tools is None else str(line.tools),
        "-" if line.tokens is None else str(line.tokens),
        line.protocol or "-",
        about,
    )
