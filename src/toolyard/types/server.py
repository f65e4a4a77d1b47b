"""A server as it is defined, and a bundle of its tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, TypeAlias

__all__ = [
    "NATIVE_SERVER_ID",
    "Bundle",
    "HttpSpec",
    "InstanceSpec",
    "OAuthSpec",
    "ProtocolEra",
    "Provenance",
    "RestartPolicy",
    "Server",
    "StdioSpec",
    "Timeouts",
    "TransportSpec",
    "Trust",
]

NATIVE_SERVER_ID = "@native"
"""The id of our own server of read-only tools, in this process: theirs are ``@native/tool``. No entry of a
configuration and no instance can have it."""


class Trust(StrEnum):
    """How far the words of a server are believed."""

    TRUSTED = "trusted"
    """Its annotations count and its tools may be shown to a model directly."""
    UNTRUSTED = "untrusted"
    """Everything it says is hostile: an allowlist is required and models reach it through meta mode only."""


class ProtocolEra(StrEnum):
    """Which era of MCP to speak."""

    AUTO = "auto"
    """Ask once, remember the answer."""
    MODERN = "modern"
    """2026-07-28: no handshake, no session."""
    LEGACY = "legacy"
    """2025-11-25 and older: initialize first."""


class RestartPolicy(StrEnum):
    """What happens after a server exits that was ready."""

    NEVER = "never"
    """Its calls answer unreachable until someone restarts it."""
    ON_FAILURE = "on-failure"
    """Started again with growing pauses, until it crashes too often in a row."""


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """A child process that speaks over its standard streams."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    type: Literal["stdio"] = "stdio"


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """A server behind a URL: Streamable HTTP, or the older HTTP with SSE."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth_provider_id: str | None = None
    type: Literal["http", "sse"] = "http"
    query: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Parameters that go with the URL of every request, e.g. a key. As secret as ``headers``."""


TransportSpec: TypeAlias = StdioSpec | HttpSpec


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. ``silence`` is neither answer nor progress; ``call`` is the absolute cap."""

    connect: float = 30.0
    silence: float = 60.0
    call: float = 600.0

    def within(self, seconds: float) -> Timeouts:
        """The same for a call that may take no longer than this."""
        return replace(self, silence=min(self.silence, seconds), call=min(self.call, seconds))


@dataclass(frozen=True, slots=True)
class OAuthSpec:
    """What the operator entered about signing in to a server."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    resource: str | None = None
    callback_port: int = 0
    legacy_discovery: bool = False
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    private_key_file: str | None = None
    issuer: str | None = None
    """The authorization server at which the client was registered by hand."""
    issuer_redirect: bool = False
    """Whether the entered client is registered with the redirect address of its issuer alone, not with the
    one that all issuers share."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an entry came from: a file and line, the environment, or the caller's overrides."""

    source: Literal["file", "environment", "overrides", "registry", "code"]
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.source
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """Whose connection to a registry server this is, and what its owner calls it.

    Raises ValueError for a slug that would make the ids of two instances the same.
    """

    owner: str
    """The principal's id. For everyone else the instance does not exist."""
    slug: str
    tool_filter: tuple[str, ...] | None = None
    """The server's own names of the tools that its owner wants. None: all; empty: none."""
    id: str = ""
    """The instance's own id, under which its sign-in is kept: a later one of the same slug is another."""
    registered: str = ""
    """The id of the registry server that it is an instance of."""

    def __post_init__(self) -> None:
        if not self.slug or "/" in self.slug:
            raise ValueError(f"an instance's slug must not be empty or hold '/': {self.slug!r}")

    @property
    def server_id(self) -> str:
        """The id of the instance's ``Server``, so that its tools are ``@owner/slug/tool``."""
        return f"@{self.owner}/{self.slug}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server's definition, complete and validated.

    Raises ValueError where ``instance`` is given and ``id`` is not the instance's.
    """

    id: str
    transport: TransportSpec
    trust: Trust = Trust.TRUSTED
    enabled: bool = True
    disabled_reason: str | None = None
    """Why it is disabled though its entry says otherwise, e.g. a missing variable."""
    label: str | None = None
    description: str | None = None
    shared: bool = False
    protocol: ProtocolEra = ProtocolEra.AUTO
    timeouts: Timeouts = Timeouts()
    stop_when_idle: float | None = None
    restart: RestartPolicy = RestartPolicy.NEVER
    cache_ttl: float = 60.0
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    private_addresses: bool | None = None
    oauth: OAuthSpec | None = None
    provenance: Provenance = Provenance("code")
    instance: InstanceSpec | None = None
    """Set where this is one user's own connection."""

    def __post_init__(self) -> None:
        if self.instance is not None and self.id != self.instance.server_id:
            raise ValueError(f"the id of an instance is '{self.instance.server_id}', not '{self.id}'")

    def is_visible_to(self, principal_id: str) -> bool:
        """Whether it exists at all for this principal."""
        return self.instance is None or self.instance.owner == principal_id


@dataclass(frozen=True, slots=True)
class Bundle:
    """A named selection of one server's tools. It applies only where it is selected."""

    id: str
    server_id: str
    mode: Literal["direct", "meta"]
    label: str | None = None
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    provenance: Provenance = Provenance("code")
