"""Which call an answer was for that cannot be read: its id stands at one of its ends."""

from __future__ import annotations

import re

from toolyard.protocol.framing import Line, OversizeLine
from toolyard.protocol.pending import Message, build_error_message

__all__ = ["build_error_for_unreadable", "has_method_first", "recover_response_id"]

_EDGE_BYTES = 200
"""Bytes: libraries write the id before the result or behind it."""
_VERSION_PATTERN = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_PATTERN = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_OUTCOME_PATTERN = rb'"(?:result|error)"'
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
    """What ends the one call that a message answers which is no JSON or too long; None where it does not look
    like an answer. What it holds is not looked at: that may have ids of its own."""
    id = recover_response_id(line)
    return None if id is None else build_error_message(id, 0, cause)


def recover_response_id(line: Line) -> int | None:
    """Return the id of the request that an undecoded message answers, or None where its ends do not tell."""
    head, tail = _take_edges(line)
    found = _ID_FIRST.match(head)
    if found is None and _OUTCOME_FIRST.match(head):
        found = _ID_LAST.search(tail)
    return None if found is None else int(found[1])


def has_method_first(line: Line) -> bool:
    """Return whether an undecoded message names a method before anything else: it is not an answer."""
    return _METHOD_FIRST.match(_take_edges(line)[0]) is not None


def _take_edges(line: Line) -> tuple[bytes, bytes]:
    if isinstance(line, OversizeLine):
        return line.head[:_EDGE_BYTES], line.tail[-_EDGE_BYTES:]
    return bytes(line[:_EDGE_BYTES]), bytes(line[-_EDGE_BYTES:])
