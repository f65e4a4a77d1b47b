"""Errors as MCP clients receive them: code and message, without internal details."""

from __future__ import annotations

import logging

from toolyard.errors import RpcError, ServerError, ToolRefused, ToolyardError
from toolyard.protocol.constants import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.jsonrpc import RpcFailure
from toolyard.store.errors import DatabaseUnavailable

__all__ = ["RpcErrorResponse", "error_to_failure", "method_not_found", "resource_not_found"]

log = logging.getLogger("toolyard.gateway")

_GATEWAY_FAULT_CODES = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})
"""Codes by which a server complains about our own messages; its client could not correct those."""


class RpcErrorResponse(Exception):
    """Raised when a request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.failure = RpcFailure(code, message, data)


def method_not_found(method: str) -> RpcErrorResponse:
    return RpcErrorResponse(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")


def resource_not_found(uri: str) -> RpcErrorResponse:
    """Return the same error for a missing resource and for one that the caller may not see."""
    return RpcErrorResponse(INVALID_PARAMS, "Resource not found", {"uri": uri})


def error_to_failure(error: ToolyardError) -> RpcFailure:
    """Return the JSON-RPC failure for an error of ours or of a server."""
    if isinstance(error, RpcError) and error.code not in _GATEWAY_FAULT_CODES:
        return RpcFailure(error.code, error.message, error.data)
    if isinstance(error, ToolRefused):
        return RpcFailure(INVALID_PARAMS, f"Unknown tool: {error}")
    if isinstance(error, DatabaseUnavailable):
        log.warning("%s", error.cause)
        data = {"cause": error.public_cause, "hint": error.public_hint}
        return RpcFailure(INTERNAL_ERROR, error.public_cause, data)
    data: dict[str, object] = {"cause": error.cause}
    if isinstance(error, ServerError):
        data = {"kind": error.kind, "server": error.server, **data}
    if error.hint:
        data["hint"] = error.hint
    return RpcFailure(INTERNAL_ERROR, str(error), data)
