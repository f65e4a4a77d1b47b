"""The folder in which Toolyard keeps what is its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from toolyard.errors import Problem

__all__ = ["SHARED_VARIABLE", "default_data_dir", "owner_hint", "writable_problem"]

SHARED_VARIABLE = "TOOLYARD_DATA_DIR_SHARED"
"""Set to 1 where the file system knows no owners and shows every folder as writable for everyone."""


def default_data_dir(env: Mapping[str, str] | None = None) -> Path:
    """``TOOLYARD_DATA_DIR``, else the platform's folder for a user's data. Nothing is created."""
    chosen = (os.environ if env is None else env).get("TOOLYARD_DATA_DIR")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    from platformdirs import user_data_path  # not needed where the folder is named

    return user_data_path("toolyard", appauthor=False)


def writable_problem(folder: Path, env: Mapping[str, str]) -> Problem | None:
    """Return a problem if every user of the machine can write to the data directory.

    They could add servers, which are started without a question, and replace the key. A folder that a group
    can write to is accepted: containers with any user id depend on it.
    """
    status = _status(folder)
    if status is None or not status.st_mode & stat.S_IWOTH or env.get(SHARED_VARIABLE) == "1":
        return None
    mode = stat.S_IMODE(status.st_mode)
    return Problem(
        f"every user of this machine can write to the data directory (mode {mode:o})",
        file=str(folder),
        hint=f"look at what is in it, then run: chmod o-w {folder}; or, if its file system has no"
        f" permissions, set {SHARED_VARIABLE}=1",
    )


def owner_hint(folder: Path) -> Problem | None:
    """Return a remark if the data directory belongs to another user, who can replace what is in it."""
    status = _status(folder)
    if status is None or status.st_uid in (0, os.geteuid()):
        return None
    message = (
        f"the data directory belongs to another user (id {status.st_uid}), who can replace what is in it"
    )
    return Problem(message, file=str(folder), hint="run Toolyard as that user, or choose another directory")


def _status(folder: Path) -> os.stat_result | None:
    try:
        return folder.stat() if os.name != "nt" else None
    except OSError:
        return None
