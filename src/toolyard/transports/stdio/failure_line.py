"""Finds the line of a program's stderr that best explains why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolyard.transports.transport import to_single_line

__all__ = ["find_failure_line"]

_IGNORED_LINE = re.compile(
    r"hint: |Node\.js v\d|note: run with `RUST_BACKTRACE|npm (?:error|ERR!) A complete log of this run"
    r"|(?:Run|See|Try|For more information, try) .*--help\b"
)
"""Advice and version lines, which do not explain the failure."""
_NPM_ERROR_LINE = re.compile(r"npm (?:error|ERR!)")
_NPM_REASON_LINE = re.compile(r"npm (?:error|ERR!)(?: +\S+){5}")
"""npm, which starts most servers, prints its reason first, after lines of one- or two-word codes."""
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
        complete = [line for line in candidates if not _CONTINUATION_LINE.match(line)]
        errors = [line for line in complete if _ERROR_LINE.match(line)]
        candidates = errors or complete or candidates
    return to_single_line(candidates[-1], width) if candidates else ""
