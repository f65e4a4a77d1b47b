"""Our words as a server: which era a request speaks, whether it is well formed, how it is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_LEGACY_VERSION,
    LEGACY_VERSIONS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
    MODERN_ERROR_CODES,
    MODERN_VERSIONS,
    PARSE_ERROR,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.mirrored_headers import HeaderParam, find_header_mismatch
from toolyard.protocol.pending import Message, RpcFailure, build_notification

__all__ = [
    "CACHEABLE_METHODS",
    "INPUT_REQUIRED_METHODS",
    "RequestMetadata",
    "RequestRejection",
    "build_complete_result",
    "build_discover_result",
    "build_initialize_result",
    "build_input_required_result",
    "build_subscription_notification",
    "http_status",
    "is_modern_request",
    "parse_modern_request",
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
"""Methods whose modern results carry ``ttlMs`` and ``cacheScope``."""
INPUT_REQUIRED_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods that may be answered with ``input_required``."""
_BAD_REQUEST_CODES = MODERN_ERROR_CODES | {PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS}


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Who asks, as a modern request tells with every message."""

    version: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log_level: str | None = None
    progress_token: int | str | None = None


@dataclass(frozen=True, slots=True)
class RequestRejection:
    """A request that is answered with this failure before anyone looks at what it wants."""

    failure: RpcFailure
    status: int = 400


def is_modern_request(message: Message) -> bool:
    """Whether a request opens in the modern way: a version in its ``_meta``, or a modern-only method."""
    meta = _read_meta(message)
    return PROTOCOL_VERSION_KEY in meta or message.get("method") in (
        "server/discover",
        "subscriptions/listen",
    )


def parse_modern_request(
    message: Message,
    *,
    headers: Mapping[str, str] | None = None,
    header_params: Sequence[HeaderParam] = (),
    versions: Sequence[str] = MODERN_VERSIONS,
) -> RequestMetadata | RequestRejection:
    """The caller of a modern request, or why it must be rejected.

    ``headers`` is given over HTTP and checked against the body; ``params`` are the parameters that
    the called tool mirrors into headers.
    """
    meta = _read_meta(message)
    version, capabilities = meta.get(PROTOCOL_VERSION_KEY), meta.get(CLIENT_CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        key = CLIENT_CAPABILITIES_KEY if isinstance(version, str) else PROTOCOL_VERSION_KEY
        return RequestRejection(RpcFailure(INVALID_PARAMS, f"_meta lacks {key}"))
    if (
        headers is not None
        and (reason := find_header_mismatch(headers, message, version, header_params)) is not None
    ):
        return RequestRejection(RpcFailure(HEADER_MISMATCH, f"Header mismatch: {reason}"))
    if version not in versions:
        data = {"supported": [*versions], "requested": version}
        return RequestRejection(RpcFailure(UNSUPPORTED_VERSION, "Unsupported protocol version", data))
    level, info, token = meta.get(LOG_LEVEL_KEY), meta.get(CLIENT_INFO_KEY), meta.get("progressToken")
    if level is not None and level not in LOG_LEVELS:
        return RequestRejection(RpcFailure(INVALID_PARAMS, "logLevel is none of the known levels"))
    return RequestMetadata(
        version,
        cast("dict[str, Any]", capabilities),
        cast("dict[str, Any]", info) if isinstance(info, dict) else {},
        level,
        token if isinstance(token, int | str) and not isinstance(token, bool) else None,
    )


def http_status(failure: RpcFailure) -> int:
    """The HTTP status that goes with a failure of a modern request."""
    if failure.code == METHOD_NOT_FOUND:
        return 404
    return 400 if failure.code in _BAD_REQUEST_CODES else 200


def build_discover_result(
    info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    *,
    instructions: str | None = None,
    versions: Sequence[str] = (*MODERN_VERSIONS, *LEGACY_VERSIONS),
    ttl_ms: int = 0,
) -> dict[str, Any]:
    """What ``server/discover`` answers."""
    result: dict[str, Any] = {"supportedVersions": [*versions], "capabilities": dict(capabilities)}
    if instructions is not None:
        result["instructions"] = instructions
    return build_complete_result(result, "server/discover", info, ttl_ms=ttl_ms, scope="private")


def build_initialize_result(
    requested_version: object,
    info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    instructions: str | None = None,
) -> dict[str, Any]:
    """What ``initialize`` answers: the version asked for where we speak it, else our newest legacy one."""
    version = (
        requested_version
        if isinstance(requested_version, str) and requested_version in LEGACY_VERSIONS
        else LATEST_LEGACY_VERSION
    )
    result: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": dict(capabilities),
        "serverInfo": dict(info),
    }
    if instructions is not None:
        result["instructions"] = instructions
    return result


def build_complete_result(
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
        "_meta": _set_meta_key(result.get("_meta"), SERVER_INFO_KEY, dict(info)),
    }
    if method in CACHEABLE_METHODS:
        stamped.setdefault("ttlMs", ttl_ms)
        stamped.setdefault("cacheScope", scope)
    return stamped


def build_input_required_result(requests: Mapping[str, Any], state: str | None) -> dict[str, Any]:
    """The interim result that asks the client for input; one of the two must be there."""
    if not requests and state is None:
        raise ValueError("input_required needs requests or a state")
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = dict(requests)
    if state is not None:
        result["requestState"] = state
    return result


def build_subscription_notification(
    method: str, subscription_id: int | str, params: Mapping[str, Any] | None = None
) -> Message:
    """A notification on the stream of a ``subscriptions/listen`` request."""
    given = params or {}
    return build_notification(
        method, {**given, "_meta": _set_meta_key(given.get("_meta"), SUBSCRIPTION_ID_KEY, subscription_id)}
    )


def _set_meta_key(meta: object, key: str, value: object) -> dict[str, Any]:
    return {**(cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}), key: value}


def _read_meta(message: Message) -> dict[str, Any]:
    params = message.get("params")
    meta = cast("dict[str, Any]", params).get("_meta") if isinstance(params, dict) else None
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
