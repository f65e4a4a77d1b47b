"""Our words as a server: which era a request speaks, whether it is well formed, how it is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LEGACY,
    LEGACY_LATEST,
    LOG_LEVEL,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
    MODERN,
    MODERN_CODES,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.mirrored_headers import HeaderParam, mismatch
from toolyard.protocol.pending import Failure, Message, notification

__all__ = [
    "CACHEABLE",
    "INPUT_METHODS",
    "Caller",
    "Rejected",
    "complete",
    "discover_result",
    "http_status",
    "initialize_result",
    "input_required",
    "is_modern",
    "read_modern",
    "subscription_note",
]

CACHEABLE = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""Methods whose modern results carry ``ttlMs`` and ``cacheScope``."""
INPUT_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods that may be answered with ``input_required``."""
_BAD_REQUEST = MODERN_CODES | {PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as a modern request tells with every message."""

    version: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log_level: str | None = None
    progress_token: int | str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that is answered with this failure before anyone looks at what it wants."""

    failure: Failure
    status: int = 400


def is_modern(message: Message) -> bool:
    """Whether a request opens in the modern way: a version in its ``_meta``, or a modern-only method."""
    meta = _meta(message)
    return PROTOCOL_VERSION in meta or message.get("method") in ("server/discover", "subscriptions/listen")


def read_modern(
    message: Message,
    *,
    headers: Mapping[str, str] | None = None,
    params: Sequence[HeaderParam] = (),
    versions: Sequence[str] = MODERN,
) -> Caller | Rejected:
    """The caller of a modern request, or why it must be rejected.

    ``headers`` is given over HTTP and checked against the body; ``params`` are the parameters that
    the called tool mirrors into headers.
    """
    meta = _meta(message)
    version, capabilities = meta.get(PROTOCOL_VERSION), meta.get(CLIENT_CAPABILITIES)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        key = CLIENT_CAPABILITIES if isinstance(version, str) else PROTOCOL_VERSION
        return Rejected(Failure(INVALID_PARAMS, f"_meta lacks {key}"))
    if headers is not None and (reason := mismatch(headers, message, version, params)) is not None:
        return Rejected(Failure(HEADER_MISMATCH, f"Header mismatch: {reason}"))
    if version not in versions:
        data = {"supported": [*versions], "requested": version}
        return Rejected(Failure(UNSUPPORTED_VERSION, "Unsupported protocol version", data))
    level, info, token = meta.get(LOG_LEVEL), meta.get(CLIENT_INFO), meta.get("progressToken")
    if level is not None and level not in LOG_LEVELS:
        return Rejected(Failure(INVALID_PARAMS, "logLevel is none of the known levels"))
    return Caller(
        version,
        cast("dict[str, Any]", capabilities),
        cast("dict[str, Any]", info) if isinstance(info, dict) else {},
        level,
        token if isinstance(token, int | str) and not isinstance(token, bool) else None,
    )


def http_status(failure: Failure) -> int:
    """The HTTP status that goes with a failure of a modern request."""
    if failure.code == METHOD_NOT_FOUND:
        return 404
    return 400 if failure.code in _BAD_REQUEST else 200


def discover_result(
    info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    *,
    instructions: str | None = None,
    versions: Sequence[str] = (*MODERN, *LEGACY),
    ttl_ms: int = 0,
) -> dict[str, Any]:
    """What ``server/discover`` answers."""
    result: dict[str, Any] = {"supportedVersions": [*versions], "capabilities": dict(capabilities)}
    if instructions is not None:
        result["instructions"] = instructions
    return complete(result, "server/discover", info, ttl_ms=ttl_ms, scope="private")


def initialize_result(
    requested: object,
    info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    instructions: str | None = None,
) -> dict[str, Any]:
    """What ``initialize`` answers: the version asked for where we speak it, else our newest legacy one."""
    version = requested if isinstance(requested, str) and requested in LEGACY else LEGACY_LATEST
    result: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": dict(capabilities),
        "serverInfo": dict(info),
    }
    if instructions is not None:
        result["instructions"] = instructions
    return result


def complete(
    result: Mapping[str, Any],
    method: str,
    info: Mapping[str, Any],
    *,
    ttl_ms: int = 0,
    scope: str = "private",
) -> dict[str, Any]:
    """A result in the modern shape: its type, who we are, and cache hints where the method has them."""
    stamped: dict[str, Any] = {
        **result,
        "resultType": "complete",
        "_meta": _with(result.get("_meta"), SERVER_INFO, dict(info)),
    }
    if method in CACHEABLE:
        stamped.setdefault("ttlMs", ttl_ms)
        stamped.setdefault("cacheScope", scope)
    return stamped


def input_required(requests: Mapping[str, Any], state: str | None) -> dict[str, Any]:
    """The interim result that asks the client for input; one of the two must be there."""
    if not requests and state is None:
        raise ValueError("input_required needs requests or a state")
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = dict(requests)
    if state is not None:
        result["requestState"] = state
    return result


def subscription_note(
    method: str, subscription: int | str, params: Mapping[str, Any] | None = None
) -> Message:
    """A notification on the stream of a ``subscriptions/listen`` request."""
    given = params or {}
    return notification(method, {**given, "_meta": _with(given.get("_meta"), SUBSCRIPTION_ID, subscription)})


def _with(meta: object, key: str, value: object) -> dict[str, Any]:
    return {**(cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}), key: value}


def _meta(message: Message) -> dict[str, Any]:
    params = message.get("params")
    meta = cast("dict[str, Any]", params).get("_meta") if isinstance(params, dict) else None
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
