"""Which one file is the configuration?"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["ConfigFile", "Origin", "choose_again", "choose_file", "discover_config_path"]

_NAMES = ("toolyard.mcp.json", ".toolyard/mcp.json", ".mcp.json")
_VARIABLES = ("TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH")


class Origin(StrEnum):
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
    origin: Origin
    variable: str | None = None

    @property
    def needs_approval(self) -> bool:
        """True for a file that nobody named."""
        return self.origin is Origin.DISCOVERED

    @property
    def may_be_missing(self) -> bool:
        """True for the default place; a named file that is missing is an error."""
        return self.origin is Origin.DATA_DIR

    @property
    def missing_hint(self) -> str:
        """What to say when it is not there."""
        if self.variable is not None:
            return f"{self.variable} names it"
        return "check the path that was given"


def choose_file(
    path: str | os.PathLike[str] | None, env: Mapping[str, str], cwd: Path, data_dir: Path
) -> ConfigFile:
    """The explicit path, else a variable's, else one found upward from ``cwd``, else the data directory's."""
    named = _named_file(path, env, cwd)
    if named is not None:
        return named
    found = discover_config_path(cwd)
    if found is not None:
        return ConfigFile(found, Origin.DISCOVERED)
    return ConfigFile(data_dir / "mcp.json", Origin.DATA_DIR)


def choose_again(
    file: str | None,
    path: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    cwd: Path,
    data_dir: Path,
) -> ConfigFile:
    """The choice that led to ``file``, or to none, without looking at what has appeared since."""
    named = _named_file(path, env, cwd)
    if named is not None:
        return named
    own = ConfigFile(data_dir / "mcp.json", Origin.DATA_DIR)
    return own if file is None or Path(file) == own.path else ConfigFile(Path(file), Origin.DISCOVERED)


def discover_config_path(cwd: str | os.PathLike[str] | None = None) -> Path | None:
    """The first ``toolyard.mcp.json``, ``.toolyard/mcp.json`` or ``.mcp.json``, from ``cwd`` upward.

    In each folder the three are tried in this order before the folder above is looked at.
    """
    start = Path(os.path.abspath(os.getcwd() if cwd is None else os.fspath(cwd)))
    for folder in (start, *start.parents):
        for name in _NAMES:
            if _is_there(folder / name):
                return folder / name
    return None


def _named_file(path: str | os.PathLike[str] | None, env: Mapping[str, str], cwd: Path) -> ConfigFile | None:
    if path is not None:
        return ConfigFile(_absolute(os.fspath(path), cwd), Origin.EXPLICIT)
    for variable in _VARIABLES:
        named = env.get(variable)
        if named:
            return ConfigFile(_absolute(named, cwd), Origin.VARIABLE, variable)
    return None


def _is_there(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        # A link that leads in a circle is a file someone meant to be there: reading it tells what is wrong.
        return error.errno == errno.ELOOP


def _absolute(path: str, cwd: Path) -> Path:
    return Path(os.path.abspath(cwd / os.path.expanduser(path)))
