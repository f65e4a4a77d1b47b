"""Servers: their definitions (transport, trust, limits, OAuth), bundles of their tools, the configuration
made of both, and the state of connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from toolyard.errors import Problem
from toolyard.types.tool import JsonObject

__all__ = [
    "NATIVE_SERVER_ID",
    "URL_TRANSPORT_LABELS",
    "Bundle",
    "Configuration",
    "HttpSpec",
    "InstanceRef",
    "OAuthSpec",
    "ProtocolEra",
    "Provenance",
    "RestartPolicy",
    "Server",
    "ServerProcess",
    "SessionPolicy",
    "State",
    "Status",
    "StdioSpec",
    "Timeouts",
    "TransportName",
    "TransportSpec",
    "Trust",
    "UrlTransportName",
]


NATIVE_SERVER_ID = "@native"
"""Id of the built-in server of read-only tools; the tools have the ids ``@native/tool``.

Configured servers and instances cannot have this id."""


class Trust(StrEnum):
    """Trust in the text that a server sends: names, descriptions, annotations, results."""

    TRUSTED = "trusted"
    """Its annotations are believed, and models may receive its tool definitions directly."""
    UNTRUSTED = "untrusted"
    """Its text is treated as hostile: an allowlist is required, and models use it through meta mode only."""


class ProtocolEra(StrEnum):
    """Generation of the MCP protocol to use."""

    AUTO = "auto"
    """Probe the server once and cache the result."""
    MODERN = "modern"
    """2026-07-28: no handshake, no session."""
    LEGACY = "legacy"
    """2025-11-25 and older: initialize first."""


class SessionPolicy(StrEnum):
    """Use of one process of a stdio server by the clients of one principal."""

    SHARED = "shared"
    """One process for all of them."""
    PER_CLIENT = "per-client"
    """A process for each, which is told exactly what that client can do."""


class RestartPolicy(StrEnum):
    """Reaction to the unexpected exit of a server that was ready."""

    NEVER = "never"
    """Calls fail as unreachable until the server is restarted by hand."""
    ON_FAILURE = "on-failure"
    """Restart with increasing delays, until it crashes too often in a row."""


UrlTransportName: TypeAlias = Literal["http", "sse"]
"""Transports to a server at a URL."""
URL_TRANSPORT_LABELS: Mapping[UrlTransportName, str] = {
    "http": "Streamable HTTP",
    "sse": "HTTP with SSE (older servers)",
}
"""Labels for people."""
TransportName: TypeAlias = Literal["stdio", "http", "sse"]
"""All transports; ``transports/transport_table.py`` has an entry for each."""


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """Child process that is connected through its standard streams."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    type: Literal["stdio"] = "stdio"
    inherited: Mapping[str, str] | None = field(default=None, repr=False)
    """Environment from which the child inherits some variables; None: that of this process."""
    folder: str | None = None
    """Folder to run in if ``cwd`` is not set, created if missing; None: that of this process."""


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """Server at a URL, over Streamable HTTP or the older HTTP with SSE."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth_provider_id: str | None = None
    type: UrlTransportName = "http"
    query: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Query parameters added to the URL of every request, e.g. an API key. Secret, like ``headers``."""


TransportSpec: TypeAlias = StdioSpec | HttpSpec


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    ``silence`` is the longest time without a response or progress, ``call`` the absolute limit of a call.
    """

    connect: float = 30.0
    silence: float = 60.0
    call: float = 600.0

    def within(self, seconds: float) -> Timeouts:
        """Return these limits, lowered so that a call takes at most ``seconds``."""
        return replace(self, silence=min(self.silence, seconds), call=min(self.call, seconds))


@dataclass(frozen=True, slots=True)
class OAuthSpec:
    """OAuth options of a server, entered by the operator."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    resource: str | None = None
    callback_port: int = 0
    legacy_discovery: bool = False
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    private_key_file: str | None = None
    issuer: str | None = None
    """Authorization server at which the client was registered manually."""
    issuer_redirect: bool = False
    """Whether the entered client is registered with the issuer-specific redirect URI only, not with the
    redirect URI common to all issuers."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of an entry: a file and line, the environment, the caller's overrides, the registry, or code."""

    source: Literal["file", "environment", "overrides", "registry", "code"]
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.source
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class InstanceRef:
    """Owner and slug of an instance, one user's connection to a registry server.

    Raises ValueError for an empty slug or one with '/', because two instances could then have the same id.
    """

    owner: str
    """Id of the principal. The instance is invisible to all others."""
    slug: str
    tool_filter: tuple[str, ...] | None = None
    """Tools enabled by the owner, by the server's own names. None: all; empty: none."""
    id: str = ""
    """Id of the instance, under which its OAuth tokens are stored. A later instance with the same slug has
    another id, so it does not inherit them."""
    registered: str = ""
    """Id of the registry server."""

    def __post_init__(self) -> None:
        if not self.slug or "/" in self.slug:
            raise ValueError(f"the slug of an instance must not be empty or contain '/': {self.slug!r}")

    @property
    def server_id(self) -> str:
        """Id of the instance's ``Server``; its tools have the ids ``@owner/slug/tool``."""
        return f"@{self.owner}/{self.slug}"


@dataclass(frozen=True, slots=True)
class Server:
    """Complete and validated definition of a server.

    Raises ValueError if ``instance`` is set and ``id`` differs from its ``server_id``.
    """

    id: str
    transport: TransportSpec
    trust: Trust = Trust.TRUSTED
    enabled: bool = True
    disabled_reason: str | None = None
    """Reason why it is disabled although its entry enables it, e.g. a missing variable."""
    label: str | None = None
    description: str | None = None
    shared: bool = False
    protocol: ProtocolEra = ProtocolEra.AUTO
    timeouts: Timeouts = Timeouts()
    stop_when_idle: float | None = None
    restart: RestartPolicy = RestartPolicy.NEVER
    sessions: SessionPolicy = SessionPolicy.SHARED
    cache_ttl: float = 60.0
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    private_addresses: bool | None = None
    oauth: OAuthSpec | None = None
    provenance: Provenance = Provenance("code")
    instance: InstanceRef | None = None
    """Set if this is one user's connection to a registry server."""
    problems: tuple[Problem, ...] = ()
    """Problems of its entry under ``mcpServers``. The server is then disabled; others are not affected."""

    def __post_init__(self) -> None:
        if self.instance is not None and self.id != self.instance.server_id:
            raise ValueError(f"the id of this instance must be '{self.instance.server_id}', not '{self.id}'")

    @property
    def problem_text(self) -> str:
        """The problems of its entry with file and line, for the operator."""
        return "; ".join(problem.headline for problem in self.problems)

    @property
    def problem_hint(self) -> str:
        """Next step for the problems of its entry."""
        return "; ".join(dict.fromkeys(problem.hint for problem in self.problems if problem.hint))


@dataclass(frozen=True, slots=True)
class Bundle:
    """Named subset of one server's tools. It has an effect only for callers that select it."""

    id: str
    server_id: str
    mode: Literal["direct", "meta"]
    label: str | None = None
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    provenance: Provenance = Provenance("code")


class State(StrEnum):
    """State of a connection."""

    DISABLED = "disabled"
    """Disabled by its definition; nothing is started."""
    IDLE = "idle"
    """Not connected; the next call connects."""
    CONNECTING = "connecting"
    """Being started or probed; all calls wait for the same attempt."""
    READY = "ready"
    """Connected."""
    NEEDS_AUTH = "needs_auth"
    """Credentials are missing or no longer accepted."""
    FAILED = "failed"
    """The last attempt failed, or the server exited; ``cause`` is the reason."""
    CLOSED = "closed"
    """Closed permanently; no further calls are possible."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One running process of a stdio server."""

    pid: int
    users: tuple[str, ...] = ()
    """Names of the chats and clients that use it; clients without a session by their recent requests."""
    launch: str | None = None
    """Launch of the process, if others have different ones. Without the values of variables."""


@dataclass(slots=True)
class Status:
    """State of the connection of one principal to one server. A process has exactly one record of each.

    ``cause`` is the root cause in one sentence, ``reason`` the same as a stable identifier for programs: the
    ``kind`` of the error, or ``disabled``. ``next_retry`` and ``since`` are seconds since the epoch.
    """

    server: str
    principal: str
    state: State
    since: float
    cause: str | None = None
    reason: str | None = None
    hint: str | None = None
    protocol_version: str | None = None
    server_info: JsonObject = field(default_factory=dict[str, Any])
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    instructions: str | None = None
    tool_count: int | None = None
    token_cost: int | None = None
    pid: int | None = None
    processes: tuple[ServerProcess, ...] = ()
    """All processes of this server for this principal."""
    stderr: tuple[str, ...] = ()
    noise: int = 0
    """Number of lines on standard output that were not MCP messages."""
    connects: int = 0
    restarts: int = 0
    next_retry: float | None = None
    last_call: float | None = None
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Configuration:
    """Servers and bundles by id, merged from all sources.

    ``hints`` are warnings that do not prevent loading: ignored keys, a file that needs approval.
    ``file`` is the configuration file in use, ``waiting`` a file (or a changed version of it) that is not
    approved yet. ``unapproved`` are the ids of its servers if no version of it was approved.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    bundles: Mapping[str, Bundle] = field(default_factory=dict[str, Bundle])
    hints: tuple[Problem, ...] = ()
    file: str | None = None
    waiting: str | None = None
    unapproved: frozenset[str] = frozenset()
