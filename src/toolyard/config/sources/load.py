"""Choose the configuration file, and load the configuration from the caller, the environment and it."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from toolyard.config.data_dir import default_data_dir
from toolyard.config.entries.checked_object import ProblemReport
from toolyard.config.entries.servers import ConfigLayer
from toolyard.config.file_approvals import FileApprovals, hash_content, read_approvals
from toolyard.config.file_io import decode_utf8, read_regular_file
from toolyard.config.self_reference import disable_self_references
from toolyard.config.sources.layers import layer_from_mapping, layer_from_text, merge_layers
from toolyard.config.working_directories import CLIENT_DIR_VARIABLE, set_working_directories
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Configuration

__all__ = [
    "ConfigFile",
    "ConfigOrigin",
    "choose_config_file",
    "client_environment",
    "discover_config_path",
    "find_loaded_file",
    "find_project_folder",
    "load_config",
    "load_from_file",
    "parse_config",
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


_INLINE_CONFIG_VARIABLE = "TOOLYARD_CONFIG_JSON"
_EMPTY_ENV: Mapping[str, str] = MappingProxyType({})


def parse_config(
    source: str | bytes | Mapping[str, object], *, env: Mapping[str, str] = _EMPTY_ENV
) -> Configuration:
    """Parse and check one configuration without reading files or the environment.

    Variables are looked up in ``env`` only; a server that refers to a missing one is disabled. Raises
    ConfigError with all problems.
    """
    if isinstance(source, bytes):
        source = decode_utf8(source)
    if isinstance(source, str):
        return merge_layers([layer_from_text(source, "code")], env)
    return merge_layers([layer_from_mapping(source, "code")], env)


def load_config(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    approvals: FileApprovals | None = None,
) -> Configuration:
    """Merge ``overrides`` over ``TOOLYARD_CONFIG_JSON`` over one file, and check the result.

    The file is ``path``, else the one in ``TOOLYARD_CONFIG_PATH`` or ``MCP_CONFIG_PATH``, else one discovered
    upward from ``cwd``, else ``mcp.json`` in the data directory. ``approvals`` defaults to the record in the
    data directory. Raises ConfigError with the problems of all sources, and for a missing file that was
    named; a missing default file means no servers.
    """
    env = client_environment(cwd) if env is None else env
    folder = _resolve_data_dir(env, data_dir)
    file = choose_config_file(path, env, _resolve_cwd(cwd), folder)
    return load_from_file(file, folder, overrides=overrides, env=env, cwd=cwd, approvals=approvals)


def client_environment(cwd: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Return the environment of this process, with its folder in the variable for it."""
    return {**os.environ, CLIENT_DIR_VARIABLE: str(_resolve_cwd(cwd))}


def find_loaded_file(
    file: str | None,
    path: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    data_dir: str | os.PathLike[str] | None,
) -> tuple[ConfigFile, Path]:
    """Return the file and data directory that ``load_config`` used when it returned ``file``."""
    folder = _resolve_data_dir(env, data_dir)
    return reconstruct_choice(file, path, env, _resolve_cwd(cwd), folder), folder


def load_from_file(
    file: ConfigFile,
    data_dir: Path,
    *,
    overrides: Mapping[str, object] | None,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    approvals: FileApprovals | None = None,
) -> Configuration:
    """Load the configuration as ``load_config`` does, from a file that is already chosen."""
    file_layer = _read_file_layer(file, data_dir, approvals)
    layers = [file_layer.layer]
    inline = env.get(_INLINE_CONFIG_VARIABLE)
    if inline:
        layers.append(layer_from_text(inline, "environment", name=_INLINE_CONFIG_VARIABLE))
    if overrides is not None:
        layers.append(layer_from_mapping(overrides, "overrides", name="overrides"))
    configuration = merge_layers(
        layers,
        env,
        file=str(file.path) if file_layer.exists else None,
        waiting=str(file.path) if file_layer.awaits_approval else None,
        unapproved_reason=f"not approved: run `{_approve_command(file)}`",
        hints=file_layer.hints,
    )
    return set_working_directories(
        disable_self_references(configuration, data_dir), data_dir, env, _resolve_cwd(cwd)
    )


def _resolve_data_dir(env: Mapping[str, str], data_dir: str | os.PathLike[str] | None) -> Path:
    return default_data_dir(env) if data_dir is None else Path(os.path.abspath(data_dir))


def _resolve_cwd(cwd: str | os.PathLike[str] | None) -> Path:
    return Path(os.getcwd() if cwd is None else os.path.abspath(cwd))


@dataclass(frozen=True, slots=True)
class _FileLayer:
    layer: ConfigLayer
    exists: bool = True
    awaits_approval: bool = False
    hints: tuple[Problem, ...] = ()


def _read_file_layer(file: ConfigFile, data_dir: Path, approvals: FileApprovals | None) -> _FileLayer:
    name = str(file.path)
    # lexists: a dangling link is a mistake to report, not a missing file.
    if file.may_be_missing and not os.path.lexists(file.path):
        return _FileLayer(ConfigLayer(ProblemReport("file", name)), exists=False)
    try:
        content = read_regular_file(file.path, missing_hint=file.missing_hint)
        if file.needs_approval:
            return _read_discovered_file(
                file, content, read_approvals(data_dir) if approvals is None else approvals
            )
        return _FileLayer(layer_from_text(decode_utf8(content, name), "file", name=name))
    except ConfigError as error:
        report = ProblemReport("file", name, problems=list(error.problems))
        return _FileLayer(ConfigLayer(report, broken=True))


def _read_discovered_file(file: ConfigFile, content: bytes, approvals: FileApprovals) -> _FileLayer:
    """Return the last approved content of the file; if there is none, its content with servers disabled."""
    name = str(file.path)
    record_problems = () if approvals.read_problem is None else (approvals.read_problem,)
    last = approvals.find(file.path)
    if last is None:
        layer = layer_from_text(decode_utf8(content, name), "file", name=name, approved=False)
        hint = _approval_hint(file, "needs your approval")
        return _FileLayer(layer, awaits_approval=True, hints=(*record_problems, hint))
    layer = layer_from_text(last.content, "file", name=name, folder=find_project_folder(file.path))
    if last.sha256 == hash_content(content):
        return _FileLayer(layer, hints=record_problems)
    hint = _approval_hint(file, "changed since it was approved; the approved content stays in use")
    return _FileLayer(layer, awaits_approval=True, hints=(*record_problems, hint))


def _approval_hint(file: ConfigFile, message: str) -> Problem:
    return Problem(message, file=str(file.path), hint=f"review it with `{_approve_command(file)}`")


def _approve_command(file: ConfigFile) -> str:
    return f"toolyard approve {shlex.quote(str(file.path))}"
