"""Choose the configuration file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = [
    "ConfigFile",
    "ConfigOrigin",
    "choose_config_file",
    "discover_config_path",
    "find_project_folder",
    "reconstruct_choice",
]

_CONFIG_FILE_NAMES = ("toolyard.mcp.json", ".toolyard/mcp.json", ".mcp.json")
_PATH_VARIABLES = ("TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH")


class ConfigOrigin(StrEnum):
    """Reason why a file was chosen."""

    EXPLICIT = "explicit"
    """The caller passed its path."""
    VARIABLE = "variable"
    """An environment variable contains its path."""
    DISCOVERED = "discovered"
    """It was found in the working directory or above, where someone else may have put it."""
    DATA_DIR = "data_dir"
    """It is the default file in the data directory, and may be missing."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The chosen file and the reason.

    ``variable`` is the environment variable that contains its path, if any.
    """

    path: Path
    origin: ConfigOrigin
    variable: str | None = None

    @property
    def needs_approval(self) -> bool:
        """True for a file found by discovery."""
        return self.origin is ConfigOrigin.DISCOVERED

    @property
    def may_be_missing(self) -> bool:
        """True for the default file; a missing file that was named is an error."""
        return self.origin is ConfigOrigin.DATA_DIR

    @property
    def missing_hint(self) -> str:
        """Hint for the error about a missing file."""
        if self.variable is not None:
            return f"the path comes from {self.variable}"
        return "check the path"


def choose_config_file(
    path: str | os.PathLike[str] | None, env: Mapping[str, str], cwd: Path, data_dir: Path
) -> ConfigFile:
    """Return the explicit path, else a variable's, else a file discovered from ``cwd``, else the default."""
    named = _find_named_file(path, env, cwd)
    if named is not None:
        return named
    discovered = discover_config_path(cwd)
    if discovered is not None:
        return ConfigFile(discovered, ConfigOrigin.DISCOVERED)
    return ConfigFile(data_dir / "mcp.json", ConfigOrigin.DATA_DIR)


def reconstruct_choice(
    file: str | None,
    path: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    cwd: Path,
    data_dir: Path,
) -> ConfigFile:
    """Return the choice that led to ``file`` (None: no file), ignoring files that were created since."""
    named = _find_named_file(path, env, cwd)
    if named is not None:
        return named
    default = ConfigFile(data_dir / "mcp.json", ConfigOrigin.DATA_DIR)
    if file is None or Path(file) == default.path:
        return default
    return ConfigFile(Path(file), ConfigOrigin.DISCOVERED)


def discover_config_path(cwd: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the first ``toolyard.mcp.json``, ``.toolyard/mcp.json`` or ``.mcp.json``, from ``cwd`` upward.

    In each folder all three are tried, in this order, before its parent.
    """
    start = Path(os.path.abspath(os.getcwd() if cwd is None else os.fspath(cwd)))
    for folder in (start, *start.parents):
        for name in _CONFIG_FILE_NAMES:
            if _is_config_file(folder / name):
                return folder / name
    return None


def find_project_folder(file: Path) -> Path:
    """Return the project folder: the parent of the file, or of a hidden folder such as ``.toolyard``."""
    return file.parent.parent if file.parent.name.startswith(".") else file.parent


def _find_named_file(
    path: str | os.PathLike[str] | None, env: Mapping[str, str], cwd: Path
) -> ConfigFile | None:
    if path is not None:
        return ConfigFile(_absolute_path(os.fspath(path), cwd), ConfigOrigin.EXPLICIT)
    for variable in _PATH_VARIABLES:
        named = env.get(variable)
        if named:
            return ConfigFile(_absolute_path(named, cwd), ConfigOrigin.VARIABLE, variable)
    return None


def _is_config_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        # A loop of symbolic links is a mistake that reading the file will report, so it is not skipped.
        return error.errno == errno.ELOOP


def _absolute_path(path: str, cwd: Path) -> Path:
    return Path(os.path.abspath(cwd / os.path.expanduser(path)))
