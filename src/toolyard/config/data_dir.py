"""Location and permissions of the data directory, in which Toolyard stores its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from toolyard.errors import Problem

__all__ = ["SHARED_VARIABLE", "access_problem", "default_data_dir", "owner_hint", "world_writable_problem"]

SHARED_VARIABLE = "TOOLYARD_DATA_DIR_SHARED"
"""Environment variable to set to 1 on file systems without permissions, where every folder seems writable by
everyone."""


def default_data_dir(env: Mapping[str, str] | None = None) -> Path:
    """Return ``TOOLYARD_DATA_DIR``, or else the platform's folder for user data. Nothing is created."""
    configured = (os.environ if env is None else env).get("TOOLYARD_DATA_DIR")
    if configured:
        return Path(os.path.abspath(os.path.expanduser(configured)))
    from platformdirs import user_data_path  # needed for the default only

    return user_data_path("toolyard", appauthor=False)


def access_problem(folder: Path) -> Problem | None:
    """Return a problem if the data directory exists but cannot be read; None if it does not exist.

    Its files would look missing then: settings, servers and locks would silently not apply.
    """
    try:
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
        if is_folder and os.access(folder, os.R_OK | os.X_OK):
            return None
        message = f"no permission to read {folder}" if is_folder else f"{folder} is not a directory"
    except FileNotFoundError:
        if not os.path.islink(folder):
            return None
        message = f"{folder} is a link to a directory that does not exist"
    except OSError as error:
        message = f"{folder} cannot be read: {error.strerror}"
    hint = "check its path and owner, or set another one with TOOLYARD_DATA_DIR"
    return Problem(f"the data directory cannot be used: {message}", hint=hint)


def world_writable_problem(folder: Path, env: Mapping[str, str]) -> Problem | None:
    """Return a problem if every user of the machine can write to the data directory or one of its files, or
    replace it.

    They could add servers, which would be started without approval, and replace the encryption key. A folder
    writable by a group is accepted, because containers with arbitrary user ids depend on it.
    """
    if env.get(SHARED_VARIABLE) == "1":
        return None
    # Also the parents of a link to it.
    for parent in (*folder.resolve().parents, *Path(os.path.abspath(folder)).parents):
        # In a sticky folder, such as /tmp, only the owner can rename it.
        found = _stat_path(parent)
        if found is not None and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return Problem(
                f"every user of this machine can replace the data directory: {parent} is writable for all"
                f" (mode {stat.S_IMODE(found.st_mode):o})",
                file=str(folder),
                hint=f"run: chmod o-w {parent}; or choose another directory with TOOLYARD_DATA_DIR; or, if"
                f" its file system has no permissions, set {SHARED_VARIABLE}=1",
            )
    status = _stat_path(folder)
    if status is None or not status.st_mode & stat.S_IWOTH:
        return _world_writable_file_problem(folder)
    mode = stat.S_IMODE(status.st_mode)
    return Problem(
        f"every user of this machine can write to the data directory (mode {mode:o})",
        file=str(folder),
        hint=f"check its contents, then run: chmod o-w {folder}; or, if its file system has no"
        f" permissions, set {SHARED_VARIABLE}=1",
    )


def _world_writable_file_problem(folder: Path) -> Problem | None:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None  # It does not exist, or ``access_problem`` reports it.
    for name in names:
        status = _stat_path(folder / name)
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
            return Problem(
                "every user of this machine can write to this file of the data directory"
                f" (mode {stat.S_IMODE(status.st_mode):o})",
                file=str(folder / name),
                hint=f"check its contents, then run: chmod o-w {folder / name}",
            )
    return None


def owner_hint(folder: Path) -> Problem | None:
    """Return a warning if the data directory belongs to another user, who can replace its contents."""
    status = _stat_path(folder)
    if status is None or status.st_uid in (0, os.geteuid()):
        return None
    message = f"the data directory belongs to another user (id {status.st_uid}), who can replace its contents"
    return Problem(message, file=str(folder), hint="run Toolyard as that user, or choose another directory")


def _stat_path(path: Path) -> os.stat_result | None:
    try:
        return path.stat() if os.name != "nt" else None
    except OSError:
        return None
