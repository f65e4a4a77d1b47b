"""The server role: validation of requests without sessions, and the results of both eras."""

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
from toolyard.protocol.jsonrpc import Message, RpcFailure, build_notification
from toolyard.protocol.mirrored_headers import find_header_mismatch

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
    "parse_request_metadata",
    "read_meta",
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
INPUT_REQUIRED_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods with ``input_required`` as a possible result."""
_BAD_REQUEST_CODES = MODERN_ERROR_CODES | {PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS}


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Client data in the ``_meta`` of a modern request."""

    version: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log_level: str | None = None
    progress_token: int | str | None = None


@dataclass(frozen=True, slots=True)
class RequestRejection:
    """Failure to return for an invalid request, with its HTTP status."""

    failure: RpcFailure
    status: int = 400


def parse_request_metadata(
    message: Message,
    *,
    headers: Mapping[str, str] | None = None,
    versions: Sequence[str] = MODERN_VERSIONS,
) -> RequestMetadata | RequestRejection:
    """Return the metadata of a request that names its client, or its rejection.

    ``headers`` are those of the HTTP request, checked against the body; None for other transports. Those that
    mirror parameters of a tool are not checked here.
    """
    meta = read_meta(message)
    version, capabilities = meta.get(PROTOCOL_VERSION_KEY), meta.get(CLIENT_CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        key = CLIENT_CAPABILITIES_KEY if isinstance(version, str) else PROTOCOL_VERSION_KEY
        return RequestRejection(RpcFailure(INVALID_PARAMS, f"_meta lacks {key}"))
    if headers is not None and (reason := find_header_mismatch(headers, message, version)) is not None:
        return RequestRejection(RpcFailure(HEADER_MISMATCH, f"Header mismatch: {reason}"))
    if version not in versions:
        data = {"supported": [*versions], "requested": version}
        return RequestRejection(RpcFailure(UNSUPPORTED_VERSION, "Unsupported protocol version", data))
    # An invalid client info or progress token is ignored: nothing depends on it. A bool is not a token.
    level, info, token = meta.get(LOG_LEVEL_KEY), meta.get(CLIENT_INFO_KEY), meta.get("progressToken")
    if level is not None and level not in LOG_LEVELS:
        return RequestRejection(RpcFailure(INVALID_PARAMS, "logLevel is not a known level"))
    return RequestMetadata(
        version,
        cast("dict[str, Any]", capabilities),
        cast("dict[str, Any]", info) if isinstance(info, dict) else {},
        level,
        token if isinstance(token, int | str) and not isinstance(token, bool) else None,
    )


def http_status(failure: RpcFailure) -> int:
    """Return the HTTP status for a failure of a modern request."""
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
    """Return the result of ``server/discover``."""
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
    """Return the result of ``initialize``, with the requested version if supported, or our newest legacy
    one."""
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
    """Return a result in its modern form: with its type, the server's identity, and cache hints if any."""
    complete: dict[str, Any] = {
        **result,
        "resultType": "complete",
        "_meta": _set_meta_key(result.get("_meta"), SERVER_INFO_KEY, dict(info)),
    }
    if method in CACHEABLE_METHODS:
        complete.setdefault("ttlMs", ttl_ms)
        complete.setdefault("cacheScope", scope)
    return complete


def build_input_required_result(requests: Mapping[str, Any], state: str | None) -> dict[str, Any]:
    """Return the interim result that requests input from the client. Raise ValueError without any content."""
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
    """Return a notification on the stream of a ``subscriptions/listen`` request."""
    fields = params or {}
    return build_notification(
        method, {**fields, "_meta": _set_meta_key(fields.get("_meta"), SUBSCRIPTION_ID_KEY, subscription_id)}
    )


def _set_meta_key(meta: object, key: str, value: object) -> dict[str, Any]:
    return {**(cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}), key: value}


def read_meta(message: Message) -> dict[str, Any]:
    """Return the ``_meta`` of a message, empty if it has none."""
    params = message.get("params")
    meta = cast("dict[str, Any]", params).get("_meta") if isinstance(params, dict) else None
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
