"""Results of the handshake with a server, in both eras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from toolyard.protocol.constants import (
    LEGACY_VERSIONS,
    MODERN_ERROR_CODES,
    MODERN_VERSIONS,
    SERVER_INFO_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.eras import Era, era_of_version
from toolyard.protocol.jsonrpc import RpcFailure
from toolyard.types.json_values import object_or_empty

__all__ = [
    "HandshakeResult",
    "InconclusiveProbe",
    "interpret_probe",
    "parse_initialize_result",
]


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
        return "sent an initialize result without a valid protocolVersion"
    if version not in LEGACY_VERSIONS and version not in MODERN_VERSIONS:
        return f"uses protocol version {version[:40]!r}, which Toolyard does not support"
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
