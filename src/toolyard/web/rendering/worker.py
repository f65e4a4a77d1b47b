"""Program of a child process that renders Markdown; see ``renderer.py``.

It answers a JSON list of texts with the list of their HTML.
"""

from __future__ import annotations

import json

from toolyard.agents.builtin_tools.worker_protocol import serve
from toolyard.web.rendering.markdown import markdown

__all__ = ["main"]

_MAX_FILES = 64
"""Lexers are loaded when they are first used."""


def main() -> None:
    """Serve the process that started the program."""
    serve(_answer, files=_MAX_FILES)


def _answer(message: bytes) -> bytes:
    return json.dumps([str(markdown(text)) for text in json.loads(message)]).encode()
