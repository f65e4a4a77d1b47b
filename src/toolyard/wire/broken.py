"""Which call an answer was for that cannot be read: its id stands at one of its ends."""

from __future__ import annotations

import re

from toolyard.wire.exchange import Message, error_message
from toolyard.wire.framing import Line, Oversize

__all__ = ["in_place_of"]

_ENDS = 200
"""Bytes: libraries write the id before the result or behind it."""
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_OUTCOME = rb'"(?:result|error)"'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b" % (_VERSION, _ID, _VERSION, _OUTCOME))
_OUTCOME_FIRST = re.compile(rb"\s*\{\s*(?:%b,\s*)?%b" % (_VERSION, _OUTCOME))
_ID_LAST = re.compile(rb",\s*%b(?:,\s*%b)?\}\s*$" % (_ID, _VERSION))


def in_place_of(line: Line, cause: str) -> Message | None:
    """What ends the one call that a message answers which is no JSON or too long; None where it does not look
    like an answer. What it holds is not looked at: that may have ids of its own."""
    if isinstance(line, Oversize):
        head, tail = line.head[:_ENDS], line.tail[-_ENDS:]
    else:
        head, tail = bytes(line[:_ENDS]), bytes(line[-_ENDS:])
    found = _ID_FIRST.match(head)
    if found is None and _OUTCOME_FIRST.match(head):
        found = _ID_LAST.search(tail)
    return None if found is None else error_message(int(found[1]), 0, cause)
