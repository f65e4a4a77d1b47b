"""Which one file is the configuration?"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["ConfigFile", "ConfigOrigin", "choose_config_file", "discover_config_path", "reconstruct_choice"]

_CONFIG_FILE_NAMES = ("toolyard.mcp.json", ".toolyard/mcp.json", ".mcp.json")
_PATH_VARIABLES = ("TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH")


class ConfigOrigin(StrEnum):
    """Why this file and no other."""

    EXPLICIT = "explicit"
    """The caller named it."""
    VARIABLE = "variable"
    """A variable of the environment named it."""
    DISCOVERED = "discovered"
    """It stands in the working directory or above. Someone else may have put it there."""
    DATA_DIR = "data_dir"
    """It is Toolyard's own, and may be missing."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The one file, and why it was chosen. ``variable`` names it where an environment variable did."""

    path: Path
    origin: ConfigOrigin
    variable: str | None = None

    @property
    def needs_approval(self) -> bool:
        """True for a file that nobody named."""
        return self.origin is ConfigOrigin.DISCOVERED

    @property
    def may_be_missing(self) -> bool:
        """True for the default place; a named file that is missing is an error."""
        return self.origin is ConfigOrigin.DATA_DIR

    @property
    def missing_hint(self) -> str:
        """What to say when it is not there."""
        if self.variable is not None:
            return f"{self.variable} names it"
        return "check the path that was given"


def choose_config_file(
    path: str | os.PathLike[str] | None, env: Mapping[str, str], cwd: Path, data_dir: Path
) -> ConfigFile:
    """The explicit path, else a variable's, else one found upward from ``cwd``, else the data directory's."""
    named = _find_named_file(path, env, cwd)
    if named is not None:
        return named
    found = discover_config_path(cwd)
    if found is not None:
        return ConfigFile(found, ConfigOrigin.DISCOVERED)
    return ConfigFile(data_dir / "mcp.json", ConfigOrigin.DATA_DIR)


def reconstruct_choice(
    file: str | None,
    path: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    cwd: Path,
    data_dir: Path,
) -> ConfigFile:
    """The choice that led to ``file``, or to none, without looking at what has appeared since."""
    named = _find_named_file(path, env, cwd)
    if named is not None:
        return named
    own = ConfigFile(data_dir / "mcp.json", ConfigOrigin.DATA_DIR)
    return own if file is None or Path(file) == own.path else ConfigFile(Path(file), ConfigOrigin.DISCOVERED)


def discover_config_path(cwd: str | os.PathLike[str] | None = None) -> Path | None:
    """The first ``toolyard.mcp.json``, ``.toolyard/mcp.json`` or ``.mcp.json``, from ``cwd`` upward.

    In each folder the three are tried in this order before the folder above is looked at.
    """
    start = Path(os.path.abspath(os.getcwd() if cwd is None else os.fspath(cwd)))
    for folder in (start, *start.parents):
        for name in _CONFIG_FILE_NAMES:
            if _is_config_file(folder / name):
                return folder / name
    return None


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
        # A link that leads in a circle is a file someone meant to be there: reading it tells what is wrong.
        return error.errno == errno.ELOOP


def _absolute_path(path: str, cwd: Path) -> Path:
    return Path(os.path.abspath(cwd / os.path.expanduser(path)))
