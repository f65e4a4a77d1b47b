"""Recovers the request id of a response that is unreadable or not worth decoding, from its first and last
bytes.

Without it, one broken or oversize response on a shared channel would leave its call waiting for the timeout.
"""

from __future__ import annotations

import re

from toolyard.protocol.framing import Line, OversizeLine
from toolyard.protocol.jsonrpc import Message, build_error_message

__all__ = ["build_error_for_unreadable", "has_method_first", "recover_response_id"]

_EDGE_BYTES = 200
"""Number of bytes inspected at each end. Libraries write the id directly before or after the result."""
_VERSION_PATTERN = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_PATTERN = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_OUTCOME_PATTERN = rb'"(?:result|error)"'
# The forms that known libraries write: the id before the outcome, or the outcome first and the id last.
_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b"
    % (_VERSION_PATTERN, _ID_PATTERN, _VERSION_PATTERN, _OUTCOME_PATTERN)
)
_OUTCOME_FIRST = re.compile(rb"\s*\{\s*(?:%b,\s*)?%b" % (_VERSION_PATTERN, _OUTCOME_PATTERN))
_METHOD_FIRST = re.compile(
    rb'\s*\{\s*(?:%b,\s*)?(?:"id"\s*:[^,{}\[\]]{1,100},\s*)?"method"\s*:' % _VERSION_PATTERN
)
_ID_LAST = re.compile(rb",\s*%b(?:,\s*%b)?\}\s*$" % (_ID_PATTERN, _VERSION_PATTERN))


def build_error_for_unreadable(line: Line, cause: str) -> Message | None:
    """Return an error message for the one call that an unreadable message answers, or None if it does not
    look like a response. Only its ends are inspected: its content may contain other ids."""
    id = recover_response_id(line)
    return None if id is None else build_error_message(id, 0, cause)


def recover_response_id(line: Line) -> int | None:
    """Return the id of the request that an undecoded message answers, or None if its ends do not show it."""
    head, tail = _take_edges(line)
    match = _ID_FIRST.match(head)
    if match is None and _OUTCOME_FIRST.match(head):
        match = _ID_LAST.search(tail)
    return None if match is None else int(match[1])


def has_method_first(line: Line) -> bool:
    """Return True if an undecoded message begins with a method, so that it is not a response."""
    return _METHOD_FIRST.match(_take_edges(line)[0]) is not None


def _take_edges(line: Line) -> tuple[bytes, bytes]:
    if isinstance(line, OversizeLine):
        return line.head[:_EDGE_BYTES], line.tail[-_EDGE_BYTES:]
    return bytes(line[:_EDGE_BYTES]), bytes(line[-_EDGE_BYTES:])
