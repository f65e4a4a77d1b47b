"""States of servers: a table, and hints for those that do not work. For local and remote servers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from toolyard.cli.output import console
from toolyard.types.server import ServerProcess

__all__ = [
    "ServerSummary",
    "describe_process",
    "describe_server_info",
    "servers_json",
    "show_processes",
    "show_server_hints",
    "show_servers",
]

_COLUMNS = (
    console.Column("server", style="cyan", never_truncate=True),
    console.Column("state"),
    console.Column("tools", align_right=True),
    console.Column("~tokens", align_right=True),
    console.Column("protocol"),
    console.Column("about", wraps=True),
)
_STATE_STYLES = {
    "ready": "green",
    "failed": "red",
    "needs_auth": "yellow",
    "needs_reauth": "yellow",
    "pending": "yellow",
    "disabled": "dim",
}


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """One server in the list. ``about`` is its description if nothing is wrong."""

    server: str
    state: str
    enabled: bool
    transport: str
    trust: str
    origin: str
    about: str
    is_broken: bool = False
    cause: str | None = None
    hint: str | None = None
    protocol_version: str | None = None
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tool_count: int | None = None
    hidden_count: int = 0
    """Number of its tools that policy hides."""
    token_count: int | None = None
    quarantined_tools: tuple[str, ...] = ()
    listed_seconds_ago: float | None = None
    """Seconds since its tools were listed."""
    stderr_lines: tuple[str, ...] = ()
    processes: tuple[ServerProcess, ...] = ()


def show_servers(summaries: Sequence[ServerSummary]) -> None:
    """Print the table."""
    console.show_table(_COLUMNS, [_make_row(line) for line in summaries])


def show_server_hints(summaries: Sequence[ServerSummary]) -> None:
    """Print hints for servers that do not work, on standard error, so that a pipe gets only the table."""
    for line in summaries:
        if not line.is_broken or not (line.hint or line.stderr_lines):
            continue
        if console.is_terminal(sys.stderr):
            print(file=sys.stderr)
        name = console.style_text(f"{line.server}:", "cyan", sys.stderr)
        for words in line.stderr_lines:
            print(f"{name} {console.style_text(f'stderr: {words}', 'dim', sys.stderr)}", file=sys.stderr)
        if line.hint:
            console.show_message("hint", f"{line.server}: {line.hint}", None, sys.stderr)


def show_processes(summaries: Sequence[ServerSummary]) -> None:
    """Print the processes of stdio servers, with the clients that use them; a pipe gets only the table."""
    for line in summaries if console.is_terminal(sys.stdout) else ():
        for process in line.processes:
            print(describe_process(line.server, process))


def describe_process(server_id: str, process: ServerProcess) -> str:
    """Return a line with the id of a process, its users, and its launch if there are several."""
    users = f", used by {', '.join(process.users)}" if process.users else ""
    launch = f" ({process.launch})" if process.launch else ""
    return console.one_line(f"{server_id}: process {process.pid}{users}{launch}", 400)


def servers_json(summaries: Sequence[ServerSummary]) -> list[dict[str, Any]]:
    """Return the servers as JSON."""
    return [
        {
            "server": line.server,
            "state": line.state,
            "cause": line.cause,
            "hint": line.hint,
            "transport": line.transport,
            "trust": line.trust,
            "origin": line.origin,
            "protocol_version": line.protocol_version,
            "server_info": dict(line.server_info),
            "tools": line.tool_count,
            "hidden": line.hidden_count,
            "tokens_estimated": line.token_count,
            "set_aside": list(line.quarantined_tools),
            "listed_seconds_ago": line.listed_seconds_ago,
            "stderr": list(line.stderr_lines) if line.is_broken else [],
            "processes": [asdict(process) for process in line.processes],
        }
        for line in summaries
    ]


def describe_server_info(info: Mapping[str, Any]) -> str:
    """Return the name that a server reports for itself."""
    words = (info.get("title") or info.get("name"), info.get("version"))
    return console.one_line(" ".join(word for word in words if isinstance(word, str)), 60)


def _make_row(summary: ServerSummary) -> console.Row:
    style = _STATE_STYLES.get(summary.state, "")
    about: str | console.StyledCell = summary.about
    if summary.cause is not None:
        about = console.StyledCell(summary.cause, style)
    elif not summary.enabled:
        about = console.StyledCell("turned off in its entry", "dim")
    return (
        summary.server,
        console.StyledCell(summary.state, style),
        "-" if summary.tool_count is None else str(summary.tool_count),
        "-" if summary.token_count is None else str(summary.token_count),
        summary.protocol_version or "-",
        about,
    )
