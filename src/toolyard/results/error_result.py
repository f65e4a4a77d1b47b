"""A call that failed, as a model sees it: the turn goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolyard.errors import HttpStatus, RpcError, ServerError, ToolyardError, Unreachable
from toolyard.results.limits import Limits
from toolyard.results.readable_json import readable
from toolyard.results.redaction import redact
from toolyard.results.truncation import shorten
from toolyard.results.untrusted_text import fence, fence_length
from toolyard.types.result import Result
from toolyard.types.server import Trust

__all__ = ["UNREACHABLE", "failed", "in_full"]

UNREACHABLE = "MCP server unreachable"


def failed(error: ToolyardError, limits: Limits, trust: Trust, *, secrets: Iterable[str] = ()) -> Result:
    """The result that stands for an error: all that it says, without secrets and within the limit.

    What an untrusted server had a say in is fenced. A server that could not be reached has its own words in
    ``text``, and the reason in ``cause``.
    """
    words = in_full(error)
    told = redact(f"{words}\nhint: {error.hint}" if error.hint else words, secrets)
    room = limits.characters
    if trust is Trust.UNTRUSTED and isinstance(error, ServerError):
        room -= fence_length(error.server)
        words = fence(shorten(told, room, None), error.server)
    else:
        words = shorten(told, room, None)
    truncated = len(told) > room
    if isinstance(error, Unreachable):
        return Result(None, UNREACHABLE, is_error=True, truncated=truncated, cause=words)
    return Result(None, words, is_error=True, truncated=truncated)


def in_full(error: ToolyardError) -> str:
    """What happened, with all that the server said about it; not what to do next."""
    return "\n".join(_sentences(error))


def _sentences(error: ToolyardError) -> Iterator[str]:
    yield error.cause
    if isinstance(error, RpcError) and error.data is not None:
        yield readable(error.data)
    if isinstance(error, HttpStatus):
        body = error.body.decode("utf-8", "replace").strip()
        if body and body not in error.cause:
            yield body
