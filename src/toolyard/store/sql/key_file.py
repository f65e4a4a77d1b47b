"""Key file in the data directory, used if no secret key is set."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from pathlib import Path

from toolyard.config.file_io import read_regular_file, write_private_file
from toolyard.errors import ConfigError
from toolyard.store.errors import KeyMissing, KeyUnusable

__all__ = ["DATABASE_FILE_NAME", "KEY_FILE_NAME", "make_key", "read_key"]

DATABASE_FILE_NAME = "toolyard.db"
"""Name of the SQLite database beside the key file."""
KEY_FILE_NAME = "secret.key"

_log = logging.getLogger("toolyard.store.keyfile")


def make_key(path: Path) -> None:
    """Write a new key unless the file exists. Call it while holding the lock of the data directory."""
    if not path.exists():
        # Text, so that it also works as TOOLYARD_SECRET_KEY after a move to PostgreSQL.
        write_private_file(path, secrets.token_urlsafe(32).encode() + b"\n")


def read_key(path: Path) -> str:
    """Return the key, and make its file private if other users can read it.

    Raises KeyMissing, or KeyUnusable if the file cannot be read or made private.
    """
    try:
        _restrict_permissions(path)
        return read_regular_file(path).decode("ascii").strip()
    except FileNotFoundError:
        raise KeyMissing(
            f"the database is encrypted, and its key file {path} is missing",
            hint="set TOOLYARD_SECRET_KEY to the key in use, or restore the file from a backup",
        ) from None
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        reason = error.problems[0].message if isinstance(error, ConfigError) else error
        raise KeyUnusable(
            f"the key file {path} cannot be read: {reason}",
            hint="make it readable for the user running Toolyard",
        ) from None


def _restrict_permissions(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "nt" or not mode & 0o077:
        return
    try:
        path.chmod(0o600)
    except OSError:
        raise KeyUnusable(
            f"other users of this machine can read the key file {path} (mode {mode:o})",
            hint=f"run: chmod 600 {path}",
        ) from None
    _log.warning("the key file %s could be read by others (mode %o); it was made private", path, mode)
