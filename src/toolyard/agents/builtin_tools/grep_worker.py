"""Worker program: find the lines of texts that match a regular expression. Started by ``workers``.

The first request is the pattern as JSON. Each further request is a line of lengths followed by the texts.
"""

from __future__ import annotations

import json
import re
import warnings

from toolyard.workers.worker_protocol import serve_requests

__all__ = ["GREP_WORKER_MODULE", "MAX_LINES_PER_FILE", "compile_pattern", "find_matching_lines", "main"]

GREP_WORKER_MODULE = __name__
MAX_LINES_PER_FILE = 10_000
"""Maximum number of matching lines reported per text."""


def compile_pattern(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    """Compile a pattern. Raises re.error, also for syntax that other engines interpret differently."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
        except Warning as warning:
            raise re.error(f"{warning}; escape literal characters with a backslash") from None
        except (OverflowError, RecursionError):
            raise re.error("it is too large to compile") from None


def find_matching_lines(pattern: re.Pattern[str], text: bytes) -> list[int]:
    """Return the numbers of the matching lines, starting at 1."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    matching_lines: list[int] = []
    for number, line in enumerate(lines, 1):
        if pattern.search(line.removesuffix(b"\r").decode("utf-8", "replace")):
            matching_lines.append(number)
            if len(matching_lines) == MAX_LINES_PER_FILE:
                break
    return matching_lines


def main() -> None:
    """Serve the parent process."""
    # Compile a named character now, to load the Unicode database: later no file can be opened.
    compile_pattern(r"\N{BULLET}", ignore_case=True)
    patterns: list[re.Pattern[str]] = []

    def handle_message(message: bytes) -> bytes:
        if not patterns:
            query = json.loads(message)
            try:
                patterns.append(compile_pattern(query["pattern"], query["ignore_case"]))
            except re.error as error:
                return str(error).encode("utf-8", "replace")
            return b""
        head, _, body = message.partition(b"\n")
        results: list[list[int]] = []
        for length in map(int, head.split()):
            results.append(find_matching_lines(patterns[0], body[:length]))
            body = body[length:]
        return json.dumps(results).encode()

    serve_requests(handle_message)
