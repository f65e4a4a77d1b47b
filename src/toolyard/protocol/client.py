"""Our words as a client: how each era opens a conversation, and what every request carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LEGACY,
    LEGACY_LATEST,
    LOG_LEVEL,
    MODERN,
    MODERN_CODES,
    MODERN_LATEST,
    PROTOCOL_VERSION,
    SERVER_INFO,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.pending import Failure

__all__ = ["Facts", "Speaker", "Verdict", "judge_probe", "read_initialize"]

_RESERVED = frozenset({"progressToken", PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL})
"""Keys of ``_meta`` that tell who speaks and how; only the speaker sets them."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server said about itself when the conversation began."""

    version: str
    modern: bool
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None


class Verdict(Enum):
    """What the answer to a probe says about a server's era, where it is not modern facts."""

    LEGACY = "legacy"
    """It does not know the modern era: begin with initialize."""
    INCOMPATIBLE = "incompatible"
    """It is modern, but of no revision that we speak."""


class Speaker:
    """Stamps requests for one server: version, identity and capabilities, in the way of its era."""

    __slots__ = ("_meta", "capabilities", "info", "modern", "version")

    def __init__(
        self, info: Mapping[str, Any], capabilities: Mapping[str, Any], version: str = MODERN_LATEST
    ) -> None:
        self.info = dict(info)
        self.capabilities = dict(capabilities)
        self.adopt(version)

    def adopt(self, version: str) -> None:
        """Speak this revision from now on."""
        self.version = version
        self.modern = version not in LEGACY
        self._meta: dict[str, Any] = {}
        if self.modern:
            self._meta = {
                PROTOCOL_VERSION: version,
                CLIENT_INFO: self.info,
                CLIENT_CAPABILITIES: self.capabilities,
            }

    def params(
        self,
        params: Mapping[str, Any] | None,
        *,
        progress_token: int | None = None,
        log_level: str | None = None,
        meta: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """The parameters with the ``_meta`` that they must carry. What the caller gave is not altered.

        The caller's own keys, in ``meta`` or in ``_meta`` of the parameters, go along; what the protocol
        reserves cannot be overruled by them. ``capabilities`` are those of whoever this one request is for,
        which only the modern era can say.
        """
        stamp = dict(self._meta)
        if self.modern and capabilities is not None:
            stamp[CLIENT_CAPABILITIES] = capabilities
        if progress_token is not None:
            stamp["progressToken"] = progress_token
        if self.modern and log_level is not None:
            stamp[LOG_LEVEL] = log_level
        own: object = params.get("_meta") if params else None
        for keys in (meta, own):
            if isinstance(keys, Mapping):
                given = cast("Mapping[str, Any]", keys)
                stamp = {**{key: given[key] for key in given if key not in _RESERVED}, **stamp}
        if stamp:
            return {**(params or {}), "_meta": stamp}
        return {key: params[key] for key in params if key != "_meta"} if params is not None else None

    def initialize_params(self) -> dict[str, Any]:
        """The handshake of the legacy era."""
        return {
            "protocolVersion": self.version if self.version in LEGACY else LEGACY_LATEST,
            "capabilities": legacy_capabilities(self.capabilities),
            "clientInfo": self.info,
        }


def legacy_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The same capabilities in the words of the legacy era, which has no extensions."""
    return {key: value for key, value in capabilities.items() if key != "extensions"}


def judge_probe(result: Mapping[str, Any] | None, failure: Failure | None) -> Facts | Verdict | str:
    """What ``server/discover`` tells: facts of a modern server, a verdict, or a version to ask again with.

    Only positive evidence counts as modern. Anything else is a legacy server.
    """
    if result is not None:
        versions = _strings(result.get("supportedVersions"))
        if versions is None or not isinstance(result.get("capabilities"), dict):
            return Verdict.LEGACY
        shared = next((version for version in MODERN if version in versions), None)
        if shared is None:
            return Verdict.LEGACY if any(v in LEGACY for v in versions) else Verdict.INCOMPATIBLE
        meta = result.get("_meta")
        info = cast("dict[str, Any]", meta).get(SERVER_INFO) if isinstance(meta, dict) else None
        return _facts(shared, True, info or result.get("serverInfo"), result)
    if failure is None or failure.code not in MODERN_CODES:
        return Verdict.LEGACY
    if failure.code != UNSUPPORTED_VERSION:
        # It knows the codes of the modern era, so it is modern; it dislikes something else about us.
        return Verdict.INCOMPATIBLE
    data: object = failure.data
    supported = _strings(cast("dict[str, Any]", data).get("supported")) if isinstance(data, dict) else None
    if supported is None:
        return Verdict.LEGACY
    shared = next((version for version in MODERN if version in supported), None)
    if shared is not None:
        return shared
    return Verdict.LEGACY if any(v in LEGACY for v in supported) else Verdict.INCOMPATIBLE


def read_initialize(result: Mapping[str, Any]) -> Facts | str:
    """The facts in an ``initialize`` result, or a sentence that says why it is none."""
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        return "its answer to initialize has no protocolVersion"
    if version not in LEGACY and version not in MODERN:
        return f"it speaks protocol version {version[:40]!r}, which we do not"
    return _facts(version, version in MODERN, result.get("serverInfo"), result)


def _facts(version: str, modern: bool, info: object, result: Mapping[str, Any]) -> Facts:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return Facts(
        version,
        modern,
        cast("dict[str, Any]", info) if isinstance(info, dict) else {},
        cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {},
        instructions if isinstance(instructions, str) else None,
    )


def _strings(value: object) -> list[str] | None:
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    return [item for item in items if isinstance(item, str)]
