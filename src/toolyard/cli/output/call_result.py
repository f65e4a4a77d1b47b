"""What a tool answered, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolyard.cli.output.messages import show_error, show_note
from toolyard.cli.output.safe_text import make_printable
from toolyard.cli.output.terminal import is_terminal
from toolyard.types.result import Media, Result, TextBlock, TextResource

__all__ = ["result_json", "show_result"]


def show_result(result: Result, saved_paths: Sequence[Path], tool: str) -> None:
    """The text on standard output, media described; a tool's error on standard error."""
    if result.is_error:
        show_error(f"{tool} answered with an error: {result.text}")
        return
    media = result.media
    has_text = any(isinstance(block, TextBlock | TextResource) for block in result.blocks)
    if has_text or not media:
        text = result.text
        # On a screen a server's text may not move the cursor; a pipe gets it as it is.
        sys.stdout.write(make_printable(text) if is_terminal(sys.stdout) else text)
        sys.stdout.write("" if text.endswith("\n") else "\n")
    for place, one in enumerate(media):
        where = f" -> {saved_paths[place]}" if saved_paths else ""
        if saved_paths or not has_text or one.uri is None:
            print(f"{one}{where}")
    if media and not saved_paths:
        show_note("media were not written anywhere", "--save DIR writes them to files")
    for warning in result.warnings:
        show_note(warning)


def result_json(result: Result, saved_paths: Sequence[Path]) -> dict[str, Any]:
    """The answer as a JSON object. A tool's own failure has ``error`` beside it."""
    found: dict[str, Any] = {
        "text": result.text,
        "is_error": result.is_error,
        "structured": result.structured,
        "media": [
            _media_json(one, saved_paths[place] if saved_paths else None)
            for place, one in enumerate(result.media)
        ],
        "warnings": list(result.warnings),
    }
    if result.is_error:
        found["error"] = {"kind": "ToolError", "message": result.text, "hint": None, "exit_code": 1}
    return found


def _media_json(media: Media, path: Path | None) -> dict[str, Any]:
    return {
        "kind": media.kind,
        "mime": media.mime,
        "bytes": media.size,
        "uri": media.uri,
        "file": None if path is None else str(path),
    }
