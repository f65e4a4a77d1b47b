"""``mcp.lock``: read with care, because people merge it by hand; written the same way every time.

Anything that is not exactly what was written counts as broken, and then nothing is accepted.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolyard.catalog.lock.pins import PinsByServer
from toolyard.catalog.lock.serialization import (
    load_strict_json,
    pins_from_json,
    pins_to_json,
    raise_broken_lock,
    require_object,
)
from toolyard.config.file_reader import decode_utf8, read_regular_file
from toolyard.config.file_writer import lock_for_editing, write_atomically
from toolyard.errors import ConfigError

__all__ = [
    "LOCK_FILE_NAME",
    "LOCK_FORMAT_VERSION",
    "lock_for_editing",
    "lock_path",
    "read_lock",
    "write_lock",
]

LOCK_FILE_NAME = "mcp.lock"
LOCK_FORMAT_VERSION = 1
_MAX_LOCK_BYTES = 256 * 1024 * 1024
_CONFLICT_MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")


def lock_path(config_file: str | None, data_dir: Path) -> Path:
    """Where the lock is, if there is one: beside the configuration file, else in the data directory."""
    return (data_dir if config_file is None else Path(config_file).parent) / LOCK_FILE_NAME


def read_lock(path: Path) -> PinsByServer | None:
    """What the file says; None where there is none. Raises ConfigError for one that cannot be believed."""
    file = str(path)
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise_broken_lock(file, f"the lock cannot be read: {error}")
    try:
        text = decode_utf8(read_regular_file(path, max_bytes=_MAX_LOCK_BYTES), file)
    except ConfigError as error:
        raise_broken_lock(file, f"the lock cannot be read: {error.problems[0].message}")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_CONFLICT_MARKERS):
            raise_broken_lock(file, "a conflict marker: the file was merged halfway", line=number)
    root = require_object(file, load_strict_json(file, text), "")
    version: object = root.get("version")
    if version is True or version != LOCK_FORMAT_VERSION:
        raise_broken_lock(
            file,
            f"version {json.dumps(version)} of the lock, where {LOCK_FORMAT_VERSION} is expected",
            "version",
        )
    servers = require_object(file, root.get("servers"), "servers")
    return {
        server_id: pins_from_json(file, one, f"servers.{server_id}") for server_id, one in servers.items()
    }


def write_lock(path: Path, lock: PinsByServer) -> None:
    """Write the file as one step. The same lock is the same bytes. Raises OSError."""
    servers = {server_id: pins_to_json(pins) for server_id, pins in lock.items()}
    value = {"servers": servers, "version": LOCK_FORMAT_VERSION}
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    # For everyone to read, unlike the configuration: it goes into repositories and holds no secrets.
    write_atomically(path, text.encode("ascii"))
