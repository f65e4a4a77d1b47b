"""Program of a child process that renders Markdown; see ``renderer.py``.

It answers a JSON list of texts with the list of their HTML.
"""

from __future__ import annotations

import json

from toolyard.agents.builtin_tools.worker_protocol import serve_requests
from toolyard.web.rendering.markdown import render_markdown

__all__ = ["main"]

_MAX_OPEN_FILES = 64
"""Lexers are loaded when they are first used."""


def main() -> None:
    """Serve the process that started the program."""
    serve_requests(_render_texts, max_open_files=_MAX_OPEN_FILES)


def _render_texts(message: bytes) -> bytes:
    return json.dumps([str(render_markdown(text)) for text in json.loads(message)]).encode()
