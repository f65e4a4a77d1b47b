"""A program: which lines of some texts match a regular expression. Runs apart, see ``apart.py``.

First comes the expression, as JSON; then, again and again, texts: a line of lengths, and the texts.
"""

from __future__ import annotations

import json
import re
import warnings

from toolyard.agents.builtin_tools.worker_protocol import serve_requests

__all__ = ["MAX_LINES_PER_FILE", "compile_pattern", "find_matching_lines", "main"]

MAX_LINES_PER_FILE = 10_000
"""Lines of one text that are told."""


def compile_pattern(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    """Raises re.error, also for what other engines read in another way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
        except Warning as warning:
            raise re.error(f"{warning}; put a backslash before what means itself") from None
        except (OverflowError, RecursionError):
            raise re.error("too large") from None


def find_matching_lines(pattern: re.Pattern[str], text: bytes) -> list[int]:
    """The numbers of the lines that match, from 1 on."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    found: list[int] = []
    for number, line in enumerate(lines, 1):
        if pattern.search(line.removesuffix(b"\r").decode("utf-8", "replace")):
            found.append(number)
            if len(found) == MAX_LINES_PER_FILE:
                break
    return found


def main() -> None:
    """Serve whoever started the program."""
    # Loaded now what the compiler of expressions needs for names of characters: later no file can be opened.
    compile_pattern(r"\N{BULLET}", ignore_case=True)
    search: list[re.Pattern[str]] = []

    def handle_message(message: bytes) -> bytes:
        if not search:
            wanted = json.loads(message)
            try:
                search.append(compile_pattern(wanted["pattern"], wanted["ignore_case"]))
            except re.error as error:
                return str(error).encode("utf-8", "replace")
            return b""
        head, _, body = message.partition(b"\n")
        found: list[list[int]] = []
        for length in map(int, head.split()):
            found.append(find_matching_lines(search[0], body[:length]))
            body = body[length:]
        return json.dumps(found).encode()

    serve_requests(handle_message)
