"""Conversion of errors into results for a model, so that a failed call does not end the model's turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolyard.errors import HttpStatus, RpcError, ServerError, ToolyardError, Unreachable
from toolyard.results.readable_json import to_readable_json
from toolyard.results.redaction import redact_secrets
from toolyard.results.truncation import truncate_middle
from toolyard.results.untrusted_text import fence_length, fence_untrusted_text
from toolyard.types.server import Trust
from toolyard.types.tool import Result, ResultLimits

__all__ = ["UNREACHABLE_TEXT", "error_to_result", "format_error_details"]

UNREACHABLE_TEXT = "MCP server unreachable"


def error_to_result(
    error: ToolyardError, limits: ResultLimits, trust: Trust, *, secrets: Iterable[str] = ()
) -> Result:
    """Return the result for an error: its full text without secrets, within the limit.

    Errors of an untrusted server are fenced, since they may contain its text. If the server was unreachable,
    ``text`` is a fixed sentence and ``cause`` has the reason.
    """
    details = format_error_details(error)
    full_text = redact_secrets(f"{details}\nhint: {error.hint}" if error.hint else details, secrets)
    max_chars = limits.characters
    if trust is Trust.UNTRUSTED and isinstance(error, ServerError):
        max_chars -= fence_length(error.server)
        text = fence_untrusted_text(truncate_middle(full_text, max_chars, None), error.server)
    else:
        text = truncate_middle(full_text, max_chars, None)
    truncated = len(full_text) > max_chars
    if isinstance(error, Unreachable):
        return Result(None, UNREACHABLE_TEXT, is_error=True, truncated=truncated, cause=text)
    return Result(None, text, is_error=True, truncated=truncated)


def format_error_details(error: ToolyardError) -> str:
    """Return the cause of an error with all data that the server sent about it, without the hint."""
    return "\n".join(_iter_error_lines(error))


def _iter_error_lines(error: ToolyardError) -> Iterator[str]:
    yield error.cause
    if isinstance(error, RpcError) and error.data is not None:
        yield to_readable_json(error.data)
    if isinstance(error, HttpStatus):
        body = error.body.decode("utf-8", "replace").strip()
        # Some causes already quote the body.
        if body and body not in error.cause:
            yield body
