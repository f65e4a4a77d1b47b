"""The server role: validation of requests without sessions, and the results of both eras."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES_KEY,
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
    SUBSCRIPTION_ID_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.jsonrpc import Message, RpcFailure, build_notification
from toolyard.protocol.mirrored_headers import (
    NAME_PARAM_BY_METHOD,
    PLAIN_VALUE_PATTERN,
    HeaderParam,
    build_param_headers,
    build_standard_headers,
    decode_header_value,
    value_at,
)
from toolyard.types.json_values import object_or_empty

__all__ = [
    "RequestMetadata",
    "RequestRejection",
    "build_discover_result",
    "build_initialize_result",
    "build_input_required_result",
    "build_subscription_notification",
    "find_header_mismatch",
    "http_status",
    "parse_request_metadata",
]

_WHOLE_NUMBER_PATTERN = re.compile(r"-?[0-9]+\.0+")
_BAD_REQUEST_CODES = MODERN_ERROR_CODES | {PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS}


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Client data in the ``_meta`` of a modern request."""

    version: str
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    progress_token: int | str | None = None


@dataclass(frozen=True, slots=True)
class RequestRejection:
    """Failure to return for an invalid request, with its HTTP status."""

    failure: RpcFailure
    status: int = 400


def parse_request_metadata(
    message: Message, *, headers: Mapping[str, str] | None = None
) -> RequestMetadata | RequestRejection:
    """Return the metadata of a request that names its client, or its rejection.

    ``headers`` are those of the HTTP request, checked against the body; None for other transports. Those that
    mirror parameters of a tool are not checked here.
    """
    params: object = message.get("params")
    given: object = cast("dict[str, Any]", params).get("_meta") if isinstance(params, dict) else None
    meta = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    version, capabilities = meta.get(PROTOCOL_VERSION_KEY), meta.get(CLIENT_CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        key = CLIENT_CAPABILITIES_KEY if isinstance(version, str) else PROTOCOL_VERSION_KEY
        return RequestRejection(RpcFailure(INVALID_PARAMS, f"_meta lacks {key}"))
    if headers is not None and (reason := find_header_mismatch(headers, message, version)) is not None:
        return RequestRejection(RpcFailure(HEADER_MISMATCH, f"Header mismatch: {reason}"))
    if version not in MODERN_VERSIONS:
        data = {"supported": [*MODERN_VERSIONS], "requested": version}
        return RequestRejection(RpcFailure(UNSUPPORTED_VERSION, "Unsupported protocol version", data))
    # An invalid progress token is ignored: nothing depends on it. A bool is not a token.
    level, token = meta.get(LOG_LEVEL_KEY), meta.get("progressToken")
    if level is not None and level not in LOG_LEVELS:
        return RequestRejection(RpcFailure(INVALID_PARAMS, "logLevel is not a known level"))
    return RequestMetadata(
        version,
        cast("dict[str, Any]", capabilities),
        level,
        token if isinstance(token, int | str) and not isinstance(token, bool) else None,
    )


def find_header_mismatch(
    headers: Mapping[str, str], message: Message, version: str, params: Sequence[HeaderParam] = ()
) -> str | None:
    """Return the reason why a request's headers contradict its body, or None if they agree.

    The names of ``headers`` are in lower case, or matched in any case.
    """
    method = cast("str", message["method"])
    body = cast("dict[str, Any]", message.get("params") or {})
    if headers.get("mcp-protocol-version") != version:
        return "MCP-Protocol-Version does not match the version in _meta"
    if not params and _is_literal_match(headers, method, body):
        return None
    arguments = cast("Mapping[str, Any]", body.get("arguments") or {})
    expected = {**build_standard_headers(method, body), **build_param_headers(params, arguments)}
    numbers = {param.header for param in params if not isinstance(value_at(arguments, param.path), str)}
    for name, value in expected.items():
        actual = headers.get(name.lower())
        if actual is None:
            return f"the header {name} is missing"
        actual = actual.strip(" \t")
        if not PLAIN_VALUE_PATTERN.fullmatch(actual):
            return f"the header {name} has characters that must be encoded"
        parse = str if name == "Mcp-Method" else decode_header_value
        try:
            if not _is_equal_value(parse(actual), parse(value), name in numbers):
                return f"the header {name} does not match the body"
        except ValueError as error:
            return f"the header {name}: {error}"
    # A header without a value in the body is a contradiction, too: a proxy may have routed the request by it.
    for param in params:
        if param.header not in expected and headers.get(param.header.lower()) is not None:
            return f"the header {param.header} has no value in the body"
    return None


def _is_literal_match(headers: Mapping[str, str], method: str, body: Mapping[str, Any]) -> bool:
    """Return True if headers and body are equal without decoding, as in nearly every request. A fast path."""
    if headers.get("mcp-method") != method:
        return False
    key = NAME_PARAM_BY_METHOD.get(method)
    if key is None:
        return PLAIN_VALUE_PATTERN.fullmatch(method) is not None
    name = body.get(key)
    return (
        isinstance(name, str)
        and headers.get("mcp-name") == name
        and not name.startswith("=?")
        and PLAIN_VALUE_PATTERN.fullmatch(name) is not None
    )


def _is_equal_value(actual: str, expected: str, number: bool) -> bool:
    if actual == expected:
        return True
    # 42.0 equals 42, but only if the body has a number: in a string the two are different.
    return (
        number
        and _WHOLE_NUMBER_PATTERN.fullmatch(actual) is not None
        and actual.partition(".")[0] == expected
    )


def http_status(failure: RpcFailure) -> int:
    """Return the HTTP status for a failure of a modern request."""
    if failure.code == METHOD_NOT_FOUND:
        return 404
    return 400 if failure.code in _BAD_REQUEST_CODES else 200


def build_discover_result(capabilities: Mapping[str, Any], instructions: str | None = None) -> dict[str, Any]:
    """Return the result of ``server/discover``, which the era completes with our identity."""
    versions = [*MODERN_VERSIONS, *LEGACY_VERSIONS]
    result: dict[str, Any] = {"supportedVersions": versions, "capabilities": dict(capabilities)}
    if instructions is not None:
        result["instructions"] = instructions
    return result


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
    meta = {**object_or_empty(fields.get("_meta")), SUBSCRIPTION_ID_KEY: subscription_id}
    return build_notification(method, {**fields, "_meta": meta})
