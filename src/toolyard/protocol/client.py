"""The client role: handshake messages of both eras, and the metadata that every request carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LATEST_LEGACY_VERSION,
    LEGACY_VERSIONS,
    LOG_LEVEL_KEY,
    MODERN_ERROR_CODES,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.eras import ERAS, Era, era_of_version
from toolyard.protocol.jsonrpc import RpcFailure
from toolyard.types.json_values import object_or_empty

__all__ = [
    "HandshakeResult",
    "InconclusiveProbe",
    "RequestBuilder",
    "interpret_probe",
    "parse_initialize_result",
]

_RESERVED_META_KEYS = frozenset(
    {"progressToken", PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY}
)
"""Keys of ``_meta`` reserved for the client's identity and the protocol; callers cannot set them."""


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """Version, identity and capabilities of a server, as negotiated in the handshake."""

    version: str
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None
    era: Era = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "era", era_of_version(self.version))


class InconclusiveProbe(Enum):
    """Result of a ``server/discover`` probe that did not yield a HandshakeResult."""

    OLDER = "older"
    """The server does not support this era: try an older one."""
    INCOMPATIBLE = "incompatible"
    """The server supports this era, but no version that we support."""


class RequestBuilder:
    """Adds protocol version, client identity and capabilities to requests, in the way of the server's era."""

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


def interpret_probe(
    result: Mapping[str, Any] | None, failure: RpcFailure | None
) -> HandshakeResult | InconclusiveProbe | str:
    """Interpret the answer to ``server/discover``: a HandshakeResult, an InconclusiveProbe, or a version to
    retry with.

    A server counts as modern only with positive evidence; everything else is a legacy server.
    """
    if result is not None:
        versions = _filter_strings(result.get("supportedVersions"))
        if versions is None or not isinstance(result.get("capabilities"), dict):
            return InconclusiveProbe.OLDER
        choice = _choose_version(versions)
        if isinstance(choice, InconclusiveProbe):
            return choice
        info = object_or_empty(result.get("_meta")).get(SERVER_INFO_KEY)
        return _build_handshake_result(choice, info or result.get("serverInfo"), result)
    if failure is None or failure.code not in MODERN_ERROR_CODES:
        return InconclusiveProbe.OLDER
    if failure.code != UNSUPPORTED_VERSION:
        # An error code of the modern era proves that the server is modern; it rejects something else.
        return InconclusiveProbe.INCOMPATIBLE
    versions = _filter_strings(object_or_empty(failure.data).get("supported"))
    return InconclusiveProbe.OLDER if versions is None else _choose_version(versions)


def _choose_version(versions: list[str]) -> str | InconclusiveProbe:
    """Return our newest version that a modern server supports too, or what follows if there is none."""
    for version in MODERN_VERSIONS:
        if version in versions:
            return version
    is_older = any(version in LEGACY_VERSIONS for version in versions)
    return InconclusiveProbe.OLDER if is_older else InconclusiveProbe.INCOMPATIBLE


def parse_initialize_result(result: Mapping[str, Any]) -> HandshakeResult | str:
    """Return the data of an ``initialize`` result, or a sentence that says why it is invalid."""
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        return "its answer to initialize has no protocolVersion"
    if version not in LEGACY_VERSIONS and version not in MODERN_VERSIONS:
        return f"it uses protocol version {version[:40]!r}, which Toolyard does not support"
    return _build_handshake_result(version, result.get("serverInfo"), result)


def _build_handshake_result(version: str, info: object, result: Mapping[str, Any]) -> HandshakeResult:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return HandshakeResult(
        version,
        object_or_empty(info),
        object_or_empty(capabilities),
        instructions if isinstance(instructions, str) else None,
    )


def _filter_strings(value: object) -> list[str] | None:
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    return [item for item in items if isinstance(item, str)]
