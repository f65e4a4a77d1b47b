"""``mcp.lock``: read with care, because people merge it by hand; written the same way every time.

Anything that is not exactly what was written counts as broken, and then nothing is accepted.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolyard.catalog.lock.pins import Lock
from toolyard.catalog.lock.serialization import as_json, broken, from_json, loads, object_at
from toolyard.config.file_reader import decode, read_bytes
from toolyard.config.file_writer import editing, write_whole
from toolyard.errors import ConfigError

__all__ = ["FILE_NAME", "VERSION", "editing", "lock_path", "read_lock", "write_lock"]

FILE_NAME = "mcp.lock"
VERSION = 1
_MAX_LOCK_BYTES = 256 * 1024 * 1024
_MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")


def lock_path(config_file: str | None, data_dir: Path) -> Path:
    """Where the lock is, if there is one: beside the configuration file, else in the data directory."""
    return (data_dir if config_file is None else Path(config_file).parent) / FILE_NAME


def read_lock(path: Path) -> Lock | None:
    """What the file says; None where there is none. Raises ConfigError for one that cannot be believed."""
    file = str(path)
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        broken(file, f"the lock cannot be read: {error}")
    try:
        text = decode(read_bytes(path, most=_MAX_LOCK_BYTES), file)
    except ConfigError as error:
        broken(file, f"the lock cannot be read: {error.problems[0].message}")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_MARKERS):
            broken(file, "a conflict marker: the file was merged halfway", line=number)
    root = object_at(file, loads(file, text), "")
    version: object = root.get("version")
    if version is True or version != VERSION:
        broken(file, f"version {json.dumps(version)} of the lock, where {VERSION} is expected", "version")
    servers = object_at(file, root.get("servers"), "servers")
    return {server_id: from_json(file, one, f"servers.{server_id}") for server_id, one in servers.items()}


def write_lock(path: Path, lock: Lock) -> None:
    """Write the file as one step. The same lock is the same bytes. Raises OSError."""
    servers = {server_id: as_json(pins) for server_id, pins in lock.items()}
    value = {"servers": servers, "version": VERSION}
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    # For everyone to read, unlike the configuration: it goes into repositories and holds no secrets.
    write_whole(path, text.encode("ascii"))
