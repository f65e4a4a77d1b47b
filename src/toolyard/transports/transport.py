"""Interface between a session and its transport, with helpers that all transports share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from toolyard.errors import ServerError
from toolyard.protocol.framing import Line, MessageBytes
from toolyard.protocol.incremental_decoder import MessageLimitExceeded
from toolyard.protocol.jsonrpc import Message

__all__ = [
    "MAX_MESSAGE_BYTES",
    "NOT_MCP_HINT",
    "NOT_MCP_URL_HINT",
    "STREAMABLE_HTTP_HINT",
    "Receiver",
    "Transport",
    "TransportInfo",
    "describe_decode_error",
    "find_failure_line",
    "to_single_line",
]


MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Default maximum size of one message, in bytes."""

NOT_MCP_HINT = "is it an MCP server? It must write MCP messages to its stdout, and nothing else"
NOT_MCP_URL_HINT = "is this the address of an MCP server? Many end in /mcp"
STREAMABLE_HTTP_HINT = 'if it is a Streamable HTTP server, set "type": "http"'

_ANSI_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def to_single_line(text: str, width: int = 200) -> str:
    """Format server text for use within a message of ours: one line, printable, at most ``width``
    characters."""
    line = " ".join(_ANSI_ESCAPE.sub("", text[: width * 4]).split())
    return "".join(char if char.isprintable() else "\ufffd" for char in line[:width])


def describe_decode_error(data: MessageBytes, error: ValueError) -> str:
    """Describe why a response could not be decoded, with its beginning if it is not JSON."""
    if isinstance(error, MessageLimitExceeded):
        return f"sent a response that {error}"
    return f"sent a response that is not JSON: {to_single_line(str(data[:800], 'utf-8', 'replace'))}"


class Receiver(Protocol):
    """The session's side of a transport. Methods run in the event loop; they must not block or raise."""

    def on_message(self, message: object, size: int = 0) -> None:
        """Handle one decoded JSON value of any shape. ``size`` is its length in bytes. None stands for a
        message that could not be decoded."""
        ...

    def should_decode(self, undecoded: Line) -> bool:
        """Return whether to decode a large message of a stream. A refused one has been counted already."""
        ...

    def on_stray_lines(self, number: int, size: int, kind: Literal["line", "stderr"] = "line") -> None:
        """Count lines with ``size`` bytes in total that are not messages, such as blank lines, comments of an
        event stream, or logs."""
        ...

    def on_lost(self, error: ServerError) -> None:
        """Handle the end of the transport. Called at most once, and not after ``close``."""
        ...


@dataclass(slots=True)
class TransportInfo:
    """Information about the server's end of a transport, for the status."""

    pid: int | None = None
    stderr: tuple[str, ...] = ()
    skipped_lines: int = 0
    """Number of lines on stdout that were not messages."""
    stream_reconnects: int = 0
    """Number of times that the notification stream was lost and re-established without a session id, so that
    the server may be another process since."""


class Transport(Protocol):
    """Connection to one server.

    Over HTTP, ``send`` of a request returns when the response has been delivered to the receiver or the
    stream has ended. Over a shared channel it returns once the message is written.
    """

    @property
    def cancels_on_disconnect(self) -> bool:
        """True if cancelling ``send`` is visible to the server, so that no cancellation need be sent."""
        ...

    @property
    def mirrors_headers(self) -> bool:
        """True if requests mirror parts of their body into headers."""
        ...

    async def open(self, receiver: Receiver) -> None:
        """Connect. Raise Unreachable, with all resources released, if that fails."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send one message. The ServerError that it raises tells whether the server may have received it:
        Unreachable (no), OutcomeUnknown (perhaps), others (yes, and this was its response)."""
        ...

    def set_protocol_version(self, version: str) -> None:
        """Use the negotiated protocol version from now on."""
        ...

    def start_listening(self) -> None:
        """Start to receive unsolicited messages, if that needs a separate stream."""
        ...

    def get_info(self) -> TransportInfo:
        """Return current information about the server's end."""
        ...

    async def close(self) -> None:
        """Close in bounded time, leaving no process, task or descriptor behind. May be called twice."""
        ...


@dataclass(slots=True)
class LogTail:
    """The last lines of a text stream, each cut to ``max_line_chars``."""

    max_lines: int = 100
    max_line_chars: int = 2000
    lines: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        self.lines.append(line[: self.max_line_chars])
        if len(self.lines) > self.max_lines:
            del self.lines[0]


_IGNORED_LINE = re.compile(
    r"hint: |Node\.js v\d|note: run with `RUST_BACKTRACE|npm (?:error|ERR!) A complete log of this run"
    r"|(?:Run|See|Try|For more information, try) .*--help\b"
)
"""Advice and version lines, which do not explain the failure."""
_NPM_ERROR_LINE = re.compile(r"npm (?:error|ERR!)")
_NPM_REASON_LINE = re.compile(r"npm (?:error|ERR!)(?: +\S+){5}")
"""npm, which starts most servers, prints its reason first, after lines of one- or two-word codes."""
_UV_REASON_LINE = re.compile(r"\s+(?:cause: |[├╰]─▶ )(?=\S)")
"""uv prints its reasons, which may take several lines, below a summary; the last one is the most precise."""
_CONTINUATION_LINE = re.compile(r"\s|[\])}]+[,;]?$|[^:]*:$")
"""A line that continues an earlier one (of a stack trace, an object or a usage text), or a heading."""
_ERROR_LINE = re.compile(r"\W*(?:\w+\W+)?\w*(?:error|exception|fatal)\b", re.IGNORECASE)


def find_failure_line(lines: Sequence[str], width: int = 300) -> str:
    """Return the last line. If that is only a continuation, return the last line that names an error, or else
    the last that is not a continuation. Return "" without output."""
    candidates = [line for line in lines if to_single_line(line) and not _IGNORED_LINE.match(line)]
    if candidates and _NPM_ERROR_LINE.match(candidates[-1]):
        candidates = [line for line in candidates if _NPM_REASON_LINE.match(line)][:1] or candidates
    if candidates and _CONTINUATION_LINE.match(candidates[-1]):
        if reason := _find_uv_reason(candidates):
            return to_single_line(reason, width)
        complete = [line for line in candidates if not _CONTINUATION_LINE.match(line)]
        errors = [line for line in complete if _ERROR_LINE.match(line)]
        candidates = errors or complete or candidates
    return to_single_line(candidates[-1], width) if candidates else ""


def _find_uv_reason(lines: Sequence[str]) -> str:
    """Return the last reason of uv and the indented lines after it; "" if the output ends otherwise."""
    reason: list[str] = []
    for line in reversed(lines):
        if not line[:1].isspace():
            break
        if prefix := _UV_REASON_LINE.match(line):
            return " ".join([line[prefix.end() :], *reversed(reason)])
        reason.append(line)
    return ""
