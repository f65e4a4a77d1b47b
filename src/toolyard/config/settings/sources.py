"""Load settings from ``toolyard.toml``, the environment and the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolyard.config.data_dir import (
    SHARED_VARIABLE,
    access_problem,
    default_data_dir,
    owner_hint,
    world_writable_problem,
)
from toolyard.config.file_io import is_exposed, read_text_file
from toolyard.config.settings.model_entries import MODEL_KEY_VARIABLE_PREFIX, model_ref_fault
from toolyard.config.settings.table import SETTINGS, Setting, Settings
from toolyard.config.settings.value_types import InvalidValueError, ValueFault
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ConfigError, Problem
from toolyard.types.json_values import object_or_empty

__all__ = ["load_settings"]

_SETTINGS_BY_NAME = {row.name: row for row in SETTINGS}
_OTHER_VARIABLES = {
    "TOOLYARD_DATA_DIR",
    SHARED_VARIABLE,
    "TOOLYARD_CONFIG_PATH",
    "TOOLYARD_CONFIG_JSON",
    "TOOLYARD_REMOTE_TOKEN",
    "TOOLYARD_STANDALONE",
}
_TOML_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def load_settings(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Merge ``overrides`` over ``TOOLYARD_…`` over ``toolyard.toml`` in the data directory over the defaults.

    A secret may also come from a file, either the one in ``TOOLYARD_…_FILE`` or one with the name of the
    setting in systemd's ``CREDENTIALS_DIRECTORY``. Both have the precedence of variables.

    ``toolyard.toml`` may be missing. Raises ConfigError with the problems of all sources.
    """
    env = os.environ if env is None else env
    folder = default_data_dir(env) if data_dir is None else Path(os.path.abspath(data_dir))
    collector = _SettingsCollector()
    collector.check_folder(folder, env)
    collector.read_file(folder / "toolyard.toml", folder)
    collector.read_environment(env)
    collector.read_overrides(overrides or {})
    collector.check_model()
    if collector.problems:
        raise ConfigError(collector.problems)
    return Settings(
        **collector.values, origins=MappingProxyType(collector.origins), hints=tuple(collector.hints)
    )


@dataclass(slots=True)
class _SettingsCollector:
    """Values read so far, with their origins; a later source replaces the values of an earlier one."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])

    def check_folder(self, folder: Path, env: Mapping[str, str]) -> None:
        for problem in (access_problem(folder), world_writable_problem(folder, env)):
            if problem is not None:
                self.problems.append(problem)
        if (hint := owner_hint(folder)) is not None:
            self.hints.append(hint)

    def read_file(self, path: Path, folder: Path) -> None:
        if not os.path.lexists(path):
            return
        try:
            text = read_text_file(path)
        except ConfigError as error:
            self.problems += error.problems
            return
        table = self._parse_toml(text, path)
        for name, value in table.items():
            line = _find_key_line(name, text)
            origin = f"{path}:{line}" if line else str(path)
            row = self._find_setting(name, file=str(path), line=line)
            if row is None:
                continue
            self._set_value(row, value, folder, origin=origin, file=str(path), text=text)
            for key in object_or_empty(value):
                line = _find_nested_key_line((name, key), text)
                self.origins[f"{name}.{key}"] = f"{path}:{line}" if line else str(path)

    def read_environment(self, env: Mapping[str, str]) -> None:
        variables = {row.variable: row for row in SETTINGS}
        variables |= {row.file_variable: row for row in SETTINGS if row.secret}
        cwd = Path.cwd()
        for row in SETTINGS:
            variable = next((name for name in (row.variable, *row.also) if env.get(name)), None)
            file = _find_secret_file(row, env)
            # A file takes precedence over variables of other programs, but not over our own variable.
            if file is not None and variable != row.variable:
                self._read_secret_file(row, file, cwd)
            elif variable is not None:
                self._set_from_text(row, env[variable], cwd, variable)
            if variable == row.variable and env.get(row.file_variable) and row.secret:
                problem = Problem(
                    f"{row.variable} is also set", file=row.file_variable, hint="set only one of them"
                )
                self.problems.append(problem)
        for variable in env:
            # Other programs may use this prefix, so an unknown variable is a hint, and only if it looks like
            # a misspelled one.
            if (
                variable.startswith("TOOLYARD_")
                and variable not in variables
                and variable not in _OTHER_VARIABLES
                and not variable.startswith(MODEL_KEY_VARIABLE_PREFIX)
            ):
                suggestion = did_you_mean(variable, variables, list_known=False)
                if suggestion is not None:
                    self.hints.append(Problem("this variable has no effect", file=variable, hint=suggestion))

    def _read_secret_file(self, row: Setting, path: Path, cwd: Path) -> None:
        try:
            text = read_text_file(path).rstrip("\r\n")
            self._store(row, row.kind.from_text(text, cwd), str(path))
        except ConfigError as error:
            self.problems += error.problems
        except InvalidValueError as error:
            self._add_problems(row, "", error, file=str(path))
        if is_exposed(path):
            message = "all users of this machine can read this file, which contains a secret"
            self.hints.append(Problem(message, file=str(path), hint=f"run: chmod o-rwx {path}"))

    def read_overrides(self, overrides: Mapping[str, object]) -> None:
        for name, value in overrides.items():
            row = self._find_setting(name, file="overrides")
            if row is not None and value is not None:
                self._set_value(row, value, Path.cwd(), origin="overrides", file="overrides")

    def check_model(self) -> None:
        """Check that ``model`` is a name in ``models``, ``local``, or ``provider:name``."""
        model: str | None = self.values.get("model")
        listed = [entry.name for entry in self.values.get("models", ())]
        fault = None if model is None else model_ref_fault(model)
        if model is None or fault is None or model in (*listed, "local"):
            return
        hint = did_you_mean(model, listed) or "for example openai:gpt-5-mini"
        message = f"{model[:60]!a} is not listed in models, and {fault}"
        origin = self.origins["model"]
        self.problems.append(Problem(message, file=origin, path="model", hint=hint))

    def _parse_toml(self, text: str, path: Path) -> dict[str, Any]:
        import tomllib  # needed only if the file exists

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message = str(error)
            match = _TOML_ERROR_LINE.search(message)
            line = int(match[1]) if match else None
            self.problems.append(Problem(f"not valid TOML: {message}", file=str(path), line=line))
        except RecursionError:
            self.problems.append(Problem("not valid TOML: too deeply nested", file=str(path)))
        return {}

    def _find_setting(self, name: str, *, file: str, line: int | None = None) -> Setting | None:
        row = _SETTINGS_BY_NAME.get(name)
        if row is None:
            hint = (
                did_you_mean(name, _SETTINGS_BY_NAME, list_known=False)
                or "`toolyard settings` lists all of them"
            )
            self.problems.append(Problem("unknown setting", file=file, line=line, path=name, hint=hint))
        return row

    def _set_value(
        self, row: Setting, value: object, folder: Path, *, origin: str, file: str, text: str = ""
    ) -> None:
        try:
            self._store(row, row.kind.from_value(value, folder), origin)
        except InvalidValueError as error:
            self._add_problems(row, value, error, file=file, text=text)

    def _store(self, row: Setting, value: object, origin: str) -> None:
        for key in [each for each in self.origins if each.startswith(f"{row.name}.")]:
            del self.origins[key]  # An earlier source had these entries.
        self.values[row.name], self.origins[row.name] = value, origin

    def _set_from_text(self, row: Setting, text: str, folder: Path, variable: str) -> None:
        try:
            self._store(row, row.kind.from_text(text, folder), variable)
        except InvalidValueError as error:
            if variable == row.variable:
                self._add_problems(row, text, error, file=variable)
            else:
                # A variable such as OPENAI_BASE_URL may be meant for another program, so this is only a hint.
                self.hints.append(Problem(f"is not {row.kind.expected}, so it is ignored", file=variable))

    def _add_problems(
        self, row: Setting, value: object, error: InvalidValueError, *, file: str, text: str = ""
    ) -> None:
        found = "something else" if row.secret else _shorten_value(value)
        default_fault = ValueFault((), f"expected {row.kind.expected}, found {found}")
        for fault in error.faults or (default_fault,):
            keys = (row.name, *fault.keys)
            hint = fault.hint or row.description
            line = _find_nested_key_line(keys, text)
            self.problems.append(Problem(fault.message, file=file, line=line, path=".".join(keys), hint=hint))


def _find_secret_file(row: Setting, env: Mapping[str, str]) -> Path | None:
    if not row.secret:
        return None
    if path := env.get(row.file_variable):
        return Path(os.path.abspath(os.path.expanduser(path)))
    if folder := env.get("CREDENTIALS_DIRECTORY"):
        credential = Path(folder, row.name)
        try:
            return credential if credential.exists() else None
        except OSError:  # The folder cannot be read. Reading the file reports that with its path.
            return credential
    return None


def _find_key_line(name: str, text: str) -> int | None:
    """Return the line of a top-level key or table.

    ``tomllib`` has no positions, so this searches for the key at the beginning of a line.
    """
    match = re.search(rf"^[ \t]*(?:\[+[ \t]*)?{_toml_key_pattern(name)}[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else None


def _find_nested_key_line(keys: tuple[str, ...], text: str) -> int | None:
    """Return the line of a key inside tables or, if it is not found, of the innermost table that is."""
    name, *inner = keys
    table = r"[ \t]*\.[ \t]*".join(_toml_key_pattern(key) for key in keys[:2])
    header = re.search(rf"^[ \t]*\[[ \t]*{table}[ \t]*\]", text, re.MULTILINE)
    if not inner or header is None:
        return _find_key_line(name, text)
    line = text.count("\n", 0, header.start())
    if len(inner) > 1:
        body = re.split(r"^[ \t]*\[", text[header.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        return line + (_find_key_line(inner[1], body) or 1)
    return line + 1


def _toml_key_pattern(key: str) -> str:
    escaped = re.escape(key)
    return rf"""(?:{escaped}|"{escaped}"|'{escaped}')"""


def _shorten_value(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
