"""Errors as MCP clients get them: the code, the words, and nothing that is not theirs to know."""

from __future__ import annotations

from toolyard.errors import RpcError, ServerError, ToolRefused, ToolyardError
from toolyard.protocol.constants import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.pending import Failure

__all__ = ["Refusal", "failure_of", "no_method", "no_resource"]

_OURS = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})
"""Codes that a server sends about the way we speak to it: nothing that its client could mend."""


class Refusal(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.failure = Failure(code, message, data)


def no_method(method: str) -> Refusal:
    return Refusal(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")


def no_resource(uri: str) -> Refusal:
    """The same for one that there is not and for one that this caller may not see."""
    return Refusal(INVALID_PARAMS, "Resource not found", {"uri": uri})


def failure_of(error: ToolyardError) -> Failure:
    """What a client is told of an error of ours, or of a server."""
    if isinstance(error, RpcError) and error.code not in _OURS:
        return Failure(error.code, error.message, error.data)
    if isinstance(error, ToolRefused):
        return Failure(INVALID_PARAMS, f"Unknown tool: {error}")
    data: dict[str, object] = {"cause": error.cause}
    if isinstance(error, ServerError):
        data = {"kind": error.kind, "server": error.server, **data}
    if error.hint:
        data["hint"] = error.hint
    return Failure(INTERNAL_ERROR, str(error), data)
