"""The interface between commands and the Toolyard that they work on, with its requests and reports.

Requests and reports consist of values that JSON has, so they can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from toolyard.cli.output.console import Notice
from toolyard.cli.output.servers import ServerSummary
from toolyard.types.call import HiddenTool
from toolyard.types.tool import Result, Tool

__all__ = [
    "Approve",
    "Backend",
    "CommandCall",
    "EarlyServersReport",
    "OnCallProgress",
    "PartialTools",
    "SearchReport",
    "SearchRequest",
    "ServersReport",
    "ServersRequest",
    "ToolsReport",
    "ToolsRequest",
]

Approve: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[bool]]
"""Asks a person whether a call with these arguments may be made."""
OnCallProgress: TypeAlias = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ToolsRequest:
    """Which tools to list, and for which caller."""

    agent: str | None = None
    server: str | None = None
    bundles: tuple[str, ...] = ()
    mode: Literal["direct", "meta"] | None = None
    fresh: bool = False
    provider: Any = None
    """Name of the API in whose format the definitions are returned."""
    has_notices: bool = True
    """Whether the report has notices. Some appear once only, so they must be shown."""
    shows_hidden: bool = False


@dataclass(frozen=True, slots=True)
class PartialTools:
    """The tools that are known while other servers are still being listed."""

    tools: list[Tool]
    awaited_servers: list[str]


@dataclass(frozen=True, slots=True)
class ToolsReport:
    """The tools of a caller."""

    tools: list[Tool] = field(default_factory=list[Tool])
    provider_tools: list[dict[str, Any]] | None = None
    """The definitions for the requested provider, in place of ``tools``."""
    listed_seconds_ago: dict[str, float] = field(default_factory=dict[str, float])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """Causes by server."""
    set_aside: list[str] = field(default_factory=list[str])
    hidden: list[HiddenTool] = field(default_factory=list[HiddenTool])
    notices: list[Notice] = field(default_factory=list[Notice])


@dataclass(frozen=True, slots=True)
class ServersRequest:
    """Request for the states of all servers."""

    connects: bool = True
    retries: bool = False
    """Whether servers that timed out a minute ago are tried again."""
    has_notices: bool = True


@dataclass(frozen=True, slots=True)
class EarlyServersReport:
    """The servers that are done while others are still connecting."""

    servers: list[ServerSummary]
    awaited_servers: list[str]


@dataclass(frozen=True, slots=True)
class ServersReport:
    """The states of all servers."""

    servers: list[ServerSummary]
    notices: list[Notice] = field(default_factory=list[Notice])


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search among the stored listings."""

    query: str
    limit: int
    agent: str | None = None
    bundles: tuple[str, ...] = ()
    has_notices: bool = True


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The tools that match, the best first."""

    tools: list[Tool]
    unlisted_servers: list[str] = field(default_factory=list[str])
    notices: list[Notice] = field(default_factory=list[Notice])


@dataclass(frozen=True, slots=True)
class CommandCall:
    """The tool to call, its arguments, and the caller."""

    name: str
    arguments: dict[str, Any] | None
    """None: ``argument_words`` are to be converted by the schema of the tool."""
    argument_words: tuple[str, ...] = ()
    agent: str | None = None
    bundles: tuple[str, ...] = ()
    timeout: float | None = None


class Backend(Protocol):
    """A Toolyard that commands work on. Methods raise ToolyardError."""

    outlives_command: bool
    """Whether it, and the processes of its servers, run on after the command."""

    async def list_tools(
        self, request: ToolsRequest, on_early: Callable[[PartialTools], None] | None = None
    ) -> ToolsReport:
        """Return the tools. ``on_early`` gets the known ones if servers take long to answer."""
        ...

    async def list_servers(
        self, request: ServersRequest, on_early: Callable[[EarlyServersReport], None] | None = None
    ) -> ServersReport:
        """Return the states of the servers. ``on_early`` gets those that are done if others take long."""
        ...

    async def search(self, request: SearchRequest) -> SearchReport: ...

    async def call(
        self, request: CommandCall, on_progress: OnCallProgress, approve: Approve | None = None
    ) -> Result:
        """Call a tool, and return its whole result. Without ``approve`` nobody can be asked."""
        ...

    async def restart(self, server: str) -> ServerSummary:
        """Close the connections of a server, connect again, and return its state."""
        ...
