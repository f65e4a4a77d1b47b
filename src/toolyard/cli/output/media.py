"""Images, sounds and files of a result, written to a folder."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from toolyard.cli.error_exit import Usage
from toolyard.types.result import Media

__all__ = ["make_folder", "save_media"]

_UNSAFE_NAME_CHARACTERS = re.compile(r"[^\w.-]+", re.ASCII)
_MAX_NAME_ATTEMPTS = 10_000


def make_folder(folder: Path) -> None:
    """Have the folder, before anything is done whose result might then be lost. Raises Usage."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Usage(f"--save {folder}: {error.strerror or error}") from None


def save_media(media: Sequence[Media], folder: Path, tool: str) -> tuple[Path, ...]:
    """Write each to a file of its own, replacing none, and return where. Raises Usage."""
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
    raise Usage(f"--save {folder}: there are too many files called {stem}")


def _choose_file_name(media: Media, tool: str) -> tuple[str, str]:
    """A name that cannot leave the folder, and an ending that fits the type."""
    ending = mimetypes.guess_extension(media.mime.partition(";")[0].strip()) or ".bin"
    if media.uri:
        last = PurePosixPath(unquote(urlsplit(media.uri).path)).name
        safe = _UNSAFE_NAME_CHARACTERS.sub("_", last).lstrip(".")[:100]
        if safe:
            stem, dot, own = safe.rpartition(".")
            return (stem, f".{own}") if dot and stem else (safe, ending)
    return _UNSAFE_NAME_CHARACTERS.sub("_", tool)[:100], ending
