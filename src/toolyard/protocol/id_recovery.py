"""Which call an answer was for that cannot be read: its id stands at one of its ends."""

from __future__ import annotations

import re

from toolyard.protocol.framing import Line, Oversize
from toolyard.protocol.pending import Message, error_message

__all__ = ["answered_id", "has_method_first", "in_place_of"]

_ENDS = 200
"""Bytes: libraries write the id before the result or behind it."""
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_OUTCOME = rb'"(?:result|error)"'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b" % (_VERSION, _ID, _VERSION, _OUTCOME))
_OUTCOME_FIRST = re.compile(rb"\s*\{\s*(?:%b,\s*)?%b" % (_VERSION, _OUTCOME))
_METHOD_FIRST = re.compile(rb'\s*\{\s*(?:%b,\s*)?(?:"id"\s*:[^,{}\[\]]{1,100},\s*)?"method"\s*:' % _VERSION)
_ID_LAST = re.compile(rb",\s*%b(?:,\s*%b)?\}\s*$" % (_ID, _VERSION))


def in_place_of(line: Line, cause: str) -> Message | None:
    """What ends the one call that a message answers which is no JSON or too long; None where it does not look
    like an answer. What it holds is not looked at: that may have ids of its own."""
    id = answered_id(line)
    return None if id is None else error_message(id, 0, cause)


def answered_id(line: Line) -> int | None:
    """Return the id of the request that an undecoded message answers, or None where its ends do not tell."""
    head, tail = _ends(line)
    found = _ID_FIRST.match(head)
    if found is None and _OUTCOME_FIRST.match(head):
        found = _ID_LAST.search(tail)
    return None if found is None else int(found[1])


def has_method_first(line: Line) -> bool:
    """Return whether an undecoded message names a method before anything else: it is not an answer."""
    return _METHOD_FIRST.match(_ends(line)[0]) is not None


def _ends(line: Line) -> tuple[bytes, bytes]:
    if isinstance(line, Oversize):
        return line.head[:_ENDS], line.tail[-_ENDS:]
    return bytes(line[:_ENDS]), bytes(line[-_ENDS:])
