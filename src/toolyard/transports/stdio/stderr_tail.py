"""Which of a program's last lines says what happened to it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolyard.transports.transport import to_single_line

__all__ = ["find_failure_line"]

_IGNORED_LINE = re.compile(
    r"hint: |Node\.js v\d|note: run with `RUST_BACKTRACE|npm (?:error|ERR!) A complete log of this run"
    r"|(?:Run|See|Try|For more information, try) .*--help\b"
)
"""What to do next, and whose words these were, tells nobody what happened."""
_NPM_ERROR_LINE = re.compile(r"npm (?:error|ERR!)")
_NPM_REASON_LINE = re.compile(r"npm (?:error|ERR!)(?: +\S+){5}")
"""npm, by which most servers are started, says first what happened, after codes of a word or two."""
_CONTINUATION_LINE = re.compile(r"\s|[\])}]+[,;]?$|[^:]*:$")
"""A line that belongs to one above it: of a stack, of an object's fields, of a usage text; or a heading."""
_ERROR_LINE = re.compile(r"\W*(?:\w+\W+)?\w*(?:error|exception|fatal)\b", re.IGNORECASE)


def find_failure_line(lines: Sequence[str], width: int = 300) -> str:
    """The last line; but where that only goes on with something, the last that names an error, or that stands
    for itself. Empty where nothing was said."""
    told = [line for line in lines if to_single_line(line) and not _IGNORED_LINE.match(line)]
    if told and _NPM_ERROR_LINE.match(told[-1]):
        told = [line for line in told if _NPM_REASON_LINE.match(line)][:1] or told
    if told and _CONTINUATION_LINE.match(told[-1]):
        whole = [line for line in told if not _CONTINUATION_LINE.match(line)]
        wrong = [line for line in whole if _ERROR_LINE.match(line)]
        told = wrong or whole or told
    return to_single_line(told[-1], width) if told else ""
