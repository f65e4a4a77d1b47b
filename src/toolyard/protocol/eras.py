"""Eras of the protocol: everything that one era does differently from another.

An era is a series of protocol versions that open a conversation in the same way. Other modules ask the era of
a connection or request for its behaviour, and compare neither eras nor versions. A third era is another
``Era`` in ``ERAS``; SSE is a transport of an era, not an era.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    INVALID_PARAMS,
    LATEST_LEGACY_VERSION,
    LEGACY_VERSIONS,
    LOG_LEVEL_KEY,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    RESOURCE_NOT_FOUND,
    SERVER_INFO_KEY,
)
from toolyard.protocol.jsonrpc import Message

__all__ = [
    "CACHEABLE_METHODS",
    "ERAS",
    "LEGACY",
    "MODERN",
    "Era",
    "RequestBuilder",
    "detect_era",
    "era_of_version",
    "find_era",
]

CACHEABLE_METHODS = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""Methods with ``ttlMs`` and ``cacheScope`` in their modern results."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Era(ABC):
    """One era, without state; compared by identity."""

    name: str
    """Name in configuration, in ``eras.json`` and for people."""
    versions: tuple[str, ...]
    """Protocol versions, newest first."""
    assumed_version: str
    """Version of a request that names none."""
    handshake_method: str
    own_methods: frozenset[str]
    """Methods of servers that no other era has."""
    mirrors_headers: bool
    """HTTP headers mirror parts of each request."""
    structured_content_is_object: bool
    """Structured content is always an object, and output schemas describe objects."""
    resource_not_found_code: int

    has_sessions: ClassVar[bool]
    """The handshake begins a session, which knows the client's capabilities and log level. Servers send
    messages that belong to no request, and requests are cancelled by a notification. Without sessions every
    request stands alone: it names its client, and is cancelled by closing its response."""
    asks_in_results: ClassVar[bool]
    """Servers ask questions with an ``input_required`` result, and the client repeats its request with the
    answers. Otherwise servers send requests of their own."""
    subscribes_by_request: ClassVar[bool]
    """One long ``subscriptions/listen`` request names everything that is subscribed to."""

    @property
    def latest_version(self) -> str:
        return self.versions[0]

    def has_method(self, method: str) -> bool:
        """Return False for a method that only other eras have."""
        return method in self.own_methods or not any(method in era.own_methods for era in ERAS)

    @abstractmethod
    def build_request_meta(
        self, version: str, info: Mapping[str, Any], capabilities: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the ``_meta`` that every request of a client carries."""

    @abstractmethod
    def declare_client(
        self, meta: dict[str, Any], capabilities: Mapping[str, Any] | None, log_level: str | None
    ) -> None:
        """Add the client of one request to its ``_meta``, if it differs from that of the connection."""

    @abstractmethod
    def finish_result(self, result: dict[str, Any], method: str, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return a complete result of a server in the form of this era. ``info`` describes the server."""

    @abstractmethod
    def add_cache_hint(self, result: dict[str, Any], ttl_ms: int) -> None:
        """Declare how long a list stays valid."""


class _StatelessEra(Era):
    has_sessions = False
    asks_in_results = True
    subscribes_by_request = True

    def build_request_meta(
        self, version: str, info: Mapping[str, Any], capabilities: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            PROTOCOL_VERSION_KEY: version,
            CLIENT_INFO_KEY: info,
            CLIENT_CAPABILITIES_KEY: capabilities,
        }

    def declare_client(
        self, meta: dict[str, Any], capabilities: Mapping[str, Any] | None, log_level: str | None
    ) -> None:
        if capabilities is not None:
            meta[CLIENT_CAPABILITIES_KEY] = capabilities
        if log_level is not None:
            meta[LOG_LEVEL_KEY] = log_level

    def finish_result(self, result: dict[str, Any], method: str, info: Mapping[str, Any]) -> dict[str, Any]:
        meta = result.get("_meta")
        own = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
        complete = {**result, "resultType": "complete", "_meta": {**own, SERVER_INFO_KEY: dict(info)}}
        if method in CACHEABLE_METHODS:
            complete.setdefault("ttlMs", 0)
            complete.setdefault("cacheScope", "private")
        return complete

    def add_cache_hint(self, result: dict[str, Any], ttl_ms: int) -> None:
        result["ttlMs"] = ttl_ms


class _SessionEra(Era):
    has_sessions = True
    asks_in_results = False
    subscribes_by_request = False

    def build_request_meta(
        self, version: str, info: Mapping[str, Any], capabilities: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {}

    def declare_client(
        self, meta: dict[str, Any], capabilities: Mapping[str, Any] | None, log_level: str | None
    ) -> None:
        pass

    def finish_result(self, result: dict[str, Any], method: str, info: Mapping[str, Any]) -> dict[str, Any]:
        if "resultType" in result:
            return {key: value for key, value in result.items() if key != "resultType"}
        return result

    def add_cache_hint(self, result: dict[str, Any], ttl_ms: int) -> None:
        pass


MODERN = _StatelessEra(
    name="modern",
    versions=MODERN_VERSIONS,
    assumed_version=MODERN_VERSIONS[0],
    handshake_method="server/discover",
    own_methods=frozenset({"server/discover", "subscriptions/listen"}),
    mirrors_headers=True,
    structured_content_is_object=False,
    resource_not_found_code=INVALID_PARAMS,
)
LEGACY = _SessionEra(
    name="legacy",
    versions=LEGACY_VERSIONS,
    assumed_version="2025-03-26",
    handshake_method="initialize",
    own_methods=frozenset(
        {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    ),
    mirrors_headers=False,
    structured_content_is_object=True,
    resource_not_found_code=RESOURCE_NOT_FOUND,
)
ERAS: tuple[Era, ...] = (MODERN, LEGACY)
"""All eras, newest first."""

_ERAS_BY_NAME = {era.name: era for era in ERAS}
_ERAS_BY_VERSION = {version: era for era in ERAS for version in era.versions}


def find_era(name: str | None) -> Era | None:
    """Return the era with this name, or None."""
    return None if name is None else _ERAS_BY_NAME.get(name)


def era_of_version(version: str) -> Era:
    """Return the era of a protocol version; an unknown version counts as newest."""
    return _ERAS_BY_VERSION.get(version, ERAS[0])


def detect_era(message: Message, header_version: str | None = None) -> Era:
    """Return the era of a client's message: by the version in its ``_meta`` or HTTP header, or by a method
    that only one era has."""
    params: object = message.get("params")
    meta = cast("dict[str, Any]", params).get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta:
        return MODERN
    if message.get("method") in MODERN.own_methods:
        return MODERN
    return LEGACY if header_version is None else era_of_version(header_version)


_RESERVED_META_KEYS = frozenset(
    {"progressToken", PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY}
)
"""Keys of ``_meta`` reserved for the client's identity and the protocol; callers cannot set them."""


class RequestBuilder:
    """Adds protocol version, client identity and capabilities to requests, as the server's era requires."""

    __slots__ = ("_meta", "capabilities", "era", "info", "version")

    def __init__(
        self, info: Mapping[str, Any], capabilities: Mapping[str, Any], version: str = ERAS[0].latest_version
    ) -> None:
        self.info = dict(info)
        self.capabilities = dict(capabilities)
        self.set_version(version)

    def set_version(self, version: str) -> None:
        """Use this protocol version from now on."""
        self.version = version
        self.era = era_of_version(version)
        self._meta = self.era.build_request_meta(version, self.info, self.capabilities)

    def build_params(
        self,
        params: Mapping[str, Any] | None,
        *,
        progress_token: int | None = None,
        log_level: str | None = None,
        meta: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return the params with the required ``_meta``. The caller's mapping is not modified.

        The caller's own keys, in ``meta`` or in ``_meta`` of the params, are included, but cannot override
        reserved ones. ``capabilities`` and ``log_level`` are those of the client of this one request, in an
        era without sessions.
        """
        merged_meta = dict(self._meta)
        # Keys set here take precedence over those of the caller, which are merged in below.
        self.era.declare_client(merged_meta, capabilities, log_level)
        if progress_token is not None:
            merged_meta["progressToken"] = progress_token
        params_meta: object = params.get("_meta") if params else None
        for source in (meta, params_meta):
            if isinstance(source, Mapping):
                extra = cast("Mapping[str, Any]", source)
                merged_meta = {
                    **{key: extra[key] for key in extra if key not in _RESERVED_META_KEYS},
                    **merged_meta,
                }
        if merged_meta:
            return {**(params or {}), "_meta": merged_meta}
        return {key: params[key] for key in params if key != "_meta"} if params is not None else None

    def initialize_params(self) -> dict[str, Any]:
        """Return the params of the ``initialize`` request, which knows no extensions."""
        return {
            "protocolVersion": self.version if self.era.has_sessions else LATEST_LEGACY_VERSION,
            "capabilities": {key: value for key, value in self.capabilities.items() if key != "extensions"},
            "clientInfo": self.info,
        }
