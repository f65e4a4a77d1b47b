"""Program of the child process that renders Markdown for ``renderer.py``.

A request is a JSON list of texts; the response is the list of their HTML.
"""

from __future__ import annotations

import json

from toolyard.agents.builtin_tools.worker_protocol import serve_requests
from toolyard.web.rendering.markdown import render_markdown

__all__ = ["main"]

_MAX_OPEN_FILES = 64
"""Limit of open files: lexer modules are imported on first use."""


def main() -> None:
    """Answer requests of the parent process until it closes the pipe."""
    # Load the libraries first: requests have a time limit.
    render_markdown("`x`")
    serve_requests(_render_texts, max_open_files=_MAX_OPEN_FILES)


def _render_texts(message: bytes) -> bytes:
    return json.dumps([str(render_markdown(text)) for text in json.loads(message)]).encode()
