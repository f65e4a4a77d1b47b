"""A call that failed, as a model sees it: the turn goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolyard.errors import HttpStatus, RpcError, ServerError, ToolyardError, Unreachable
from toolyard.results.limits import ResultLimits
from toolyard.results.readable_json import to_readable_json
from toolyard.results.redaction import redact_secrets
from toolyard.results.truncation import truncate_middle
from toolyard.results.untrusted_text import fence_length, fence_untrusted_text
from toolyard.types.result import Result
from toolyard.types.server import Trust

__all__ = ["UNREACHABLE_TEXT", "error_to_result", "format_error_details"]

UNREACHABLE_TEXT = "MCP server unreachable"


def error_to_result(
    error: ToolyardError, limits: ResultLimits, trust: Trust, *, secrets: Iterable[str] = ()
) -> Result:
    """The result that stands for an error: all that it says, without secrets and within the limit.

    What an untrusted server had a say in is fenced. A server that could not be reached has its own words in
    ``text``, and the reason in ``cause``.
    """
    words = format_error_details(error)
    told = redact_secrets(f"{words}\nhint: {error.hint}" if error.hint else words, secrets)
    room = limits.characters
    if trust is Trust.UNTRUSTED and isinstance(error, ServerError):
        room -= fence_length(error.server)
        words = fence_untrusted_text(truncate_middle(told, room, None), error.server)
    else:
        words = truncate_middle(told, room, None)
    truncated = len(told) > room
    if isinstance(error, Unreachable):
        return Result(None, UNREACHABLE_TEXT, is_error=True, truncated=truncated, cause=words)
    return Result(None, words, is_error=True, truncated=truncated)


def format_error_details(error: ToolyardError) -> str:
    """What happened, with all that the server said about it; not what to do next."""
    return "\n".join(_iter_error_lines(error))


def _iter_error_lines(error: ToolyardError) -> Iterator[str]:
    yield error.cause
    if isinstance(error, RpcError) and error.data is not None:
        yield to_readable_json(error.data)
    if isinstance(error, HttpStatus):
        body = error.body.decode("utf-8", "replace").strip()
        if body and body not in error.cause:
            yield body
