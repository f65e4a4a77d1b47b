"""Program of the child process that renders Markdown and results (``renderer.py``).

A request is a JSON object with one member. ``markdown``: a list of texts; the response is the list of their
HTML. ``result``: the fields of a ResultQuery; the response is its HTML. ``csv``: the same; the response is
the file, empty if there is none.
"""

from __future__ import annotations

import json
from typing import Any

from toolyard.web.rendering.markdown import render_markdown
from toolyard.web.rendering.result_csv import write_csv
from toolyard.web.rendering.result_view import ResultQuery, render_result
from toolyard.workers.worker_protocol import serve_requests

__all__ = ["main"]

_MAX_OPEN_FILES = 64
"""Limit of open files: lexer modules are imported on first use."""


def main() -> None:
    """Answer requests of the parent process until it closes the pipe."""
    # Load the libraries first: requests have a time limit.
    render_markdown("`x`")
    serve_requests(_answer, max_open_files=_MAX_OPEN_FILES)


def _answer(message: bytes) -> bytes:
    request: dict[str, Any] = json.loads(message)
    match request:
        case {"result": fields}:
            return render_result(ResultQuery(**fields)).encode(errors="replace")
        case {"csv": fields}:
            return (write_csv(ResultQuery(**fields)) or "").encode(errors="replace")
        case _:
            return json.dumps([str(render_markdown(text)) for text in request.get("markdown", ())]).encode()
