"""Printing of tool results."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from toolyard.cli.error_exit import Usage
from toolyard.cli.output.messages import show_error, show_note
from toolyard.cli.output.safe_text import make_printable
from toolyard.cli.output.terminal import is_terminal
from toolyard.types.tool import Media, Result, TextBlock, TextResource

__all__ = ["make_folder", "result_json", "save_media", "show_result"]


def show_result(result: Result, saved_paths: Sequence[Path], tool: str) -> None:
    """Print the text on standard output, with descriptions of media; a tool error goes to standard error."""
    if result.is_error:
        show_error(f"{tool} returned an error: {result.text}")
        return
    media = result.media
    has_text = any(isinstance(block, TextBlock | TextResource) for block in result.blocks)
    if has_text or not media:
        text = result.text
        # On a terminal, control characters of a server are escaped; a pipe gets the text unchanged.
        sys.stdout.write(make_printable(text) if is_terminal(sys.stdout) else text)
        sys.stdout.write("" if text.endswith("\n") else "\n")
    for place, one in enumerate(media):
        where = f" -> {saved_paths[place]}" if saved_paths else ""
        if saved_paths or not has_text or one.uri is None:
            print(f"{one}{where}")
    if media and not saved_paths:
        show_note("media were not saved", "use --save DIR to write them to files")
    for warning in result.warnings:
        show_note(warning)


def result_json(result: Result, saved_paths: Sequence[Path]) -> dict[str, Any]:
    """Return the result as a JSON object. A tool's own failure also has ``error``."""
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


_UNSAFE_NAME_CHARACTERS = re.compile(r"[^\w.-]+", re.ASCII)
_MAX_NAME_ATTEMPTS = 10_000


def make_folder(folder: Path) -> None:
    """Create the folder, before a call whose result could be lost otherwise. Raises Usage."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Usage(f"--save {folder}: {error.strerror or error}") from None


def save_media(media: Sequence[Media], folder: Path, tool: str) -> tuple[Path, ...]:
    """Write each item to a new file, and return the paths. Raises Usage."""
    try:
        return tuple(_write_media_file(one, folder, tool) for one in media)
    except OSError as error:
        raise Usage(f"--save {folder}: {error.strerror or error}") from None


def _write_media_file(media: Media, folder: Path, tool: str) -> Path:
    stem, ending = _choose_file_name(media, tool)
    content = base64.b64decode(media.data)
    for number in range(1, _MAX_NAME_ATTEMPTS):
        path = folder / (f"{stem}-{number}{ending}" if number > 1 or not media.uri else f"{stem}{ending}")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path
    raise Usage(f"--save {folder}: too many files are named {stem}")


def _choose_file_name(media: Media, tool: str) -> tuple[str, str]:
    """Return a name that cannot leave the folder, and a suffix for the media type."""
    ending = mimetypes.guess_extension(media.mime.partition(";")[0].strip()) or ".bin"
    if media.uri:
        last = PurePosixPath(unquote(urlsplit(media.uri).path)).name
        safe = _UNSAFE_NAME_CHARACTERS.sub("_", last).lstrip(".")[:100]
        if safe:
            stem, dot, own = safe.rpartition(".")
            return (stem, f".{own}") if dot and stem else (safe, ending)
    return _UNSAFE_NAME_CHARACTERS.sub("_", tool)[:100], ending
