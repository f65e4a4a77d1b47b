"""Which file of a client takes our entry, and where in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from toolyard.config.file_reader import MAX_CLIENT_FILE_BYTES, decode_utf8, read_regular_file
from toolyard.config.importers.locations import ClientFile
from toolyard.config.sources.json_reader import read_json

__all__ = ["find_target_file", "resolve_entry_path"]


def find_target_file(client: str, places: Iterable[ClientFile]) -> Path | None:
    """The client's file that is there, else the first that it would read; None: it has none among these."""
    mine = [place.path for place in places if place.client == client]
    return next((path for path in mine if path.is_file()), mine[0] if mine else None)


def resolve_entry_path(file: Path, path: Sequence[str]) -> tuple[str, ...]:
    """Where the entry stands in this file: some of opencode keep their servers one step deeper.

    Raises ConfigError where the file cannot be read.
    """
    if path[0] != "mcp" or not file.is_file():
        return tuple(path)
    text = decode_utf8(read_regular_file(file, max_bytes=MAX_CLIENT_FILE_BYTES), str(file))
    root = read_json(text, file=str(file)).root
    table = root.get("mcp") if isinstance(root, dict) else None
    inner = table.get("servers") if isinstance(table, dict) else None
    deeper = isinstance(inner, dict) and "type" not in inner
    return ("mcp", "servers", *path[1:]) if deeper else tuple(path)
