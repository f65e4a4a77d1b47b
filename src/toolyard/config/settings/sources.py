"""Settings from ``toolyard.toml``, the environment and the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolyard.config.data_dir import SHARED_VARIABLE, default_data_dir, owner_hint, writable_problem
from toolyard.config.file_reader import decode_utf8, read_regular_file
from toolyard.config.settings.models import model_ref_fault
from toolyard.config.settings.table import SETTINGS, Setting, Settings
from toolyard.config.settings.value_types import InvalidValueError, ValueFault
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ConfigError, Problem

__all__ = ["load_settings"]

_SETTINGS_BY_NAME = {row.name: row for row in SETTINGS}
_OTHER_VARIABLES = {
    "TOOLYARD_DATA_DIR",
    SHARED_VARIABLE,
    "TOOLYARD_CONFIG_PATH",
    "TOOLYARD_CONFIG_JSON",
    "TOOLYARD_REMOTE_TOKEN",
}
_TOML_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def load_settings(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """``overrides`` over ``TOOLYARD_…`` over ``toolyard.toml`` in the data directory over the defaults.

    A secret may also come from a file: one that ``TOOLYARD_…_FILE`` names, or one with the setting's name
    in the folder of systemd's credentials. Both count as variables.

    A missing file is no error. Raises ConfigError with everything that is wrong in any of the three.
    """
    env = os.environ if env is None else env
    folder = default_data_dir(env) if data_dir is None else Path(os.path.abspath(data_dir))
    work = _SettingsCollector()
    work.check_folder(folder, env)
    work.read_file(folder / "toolyard.toml", folder)
    work.read_environment(env)
    work.read_overrides(overrides or {})
    work.check_model()
    if work.problems:
        raise ConfigError(work.problems)
    return Settings(**work.values, origins=MappingProxyType(work.origins), hints=tuple(work.hints))


@dataclass(slots=True)
class _SettingsCollector:
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])

    def check_folder(self, folder: Path, env: Mapping[str, str]) -> None:
        if (problem := writable_problem(folder, env)) is not None:
            self.problems.append(problem)
        if (hint := owner_hint(folder)) is not None:
            self.hints.append(hint)

    def read_file(self, path: Path, folder: Path) -> None:
        if not os.path.lexists(path):
            return
        try:
            text = decode_utf8(read_regular_file(path), str(path))
        except ConfigError as error:
            self.problems += error.problems
            return
        table = self._parse_toml(text, path)
        for name, value in table.items():
            line = _find_key_line(name, text)
            place = f"{path}:{line}" if line else str(path)
            row = self._find_setting(name, file=str(path), line=line)
            if row is not None:
                self._set_value(row, value, folder, origin=place, file=str(path), text=text)

    def read_environment(self, env: Mapping[str, str]) -> None:
        variables = {row.variable: row for row in SETTINGS}
        variables |= {row.file_variable: row for row in SETTINGS if row.secret}
        here = Path.cwd()
        for row in SETTINGS:
            variable = next((name for name in (row.variable, *row.also) if env.get(name)), None)
            file = _find_secret_file(row, env)
            if file is not None and variable != row.variable:
                self._read_secret_file(row, file, here)
            elif variable is not None:
                self._set_from_text(row, env[variable], here, variable)
            if variable == row.variable and env.get(row.file_variable) and row.secret:
                problem = Problem(
                    f"{row.variable} is set too", file=row.file_variable, hint="set one of both"
                )
                self.problems.append(problem)
        for variable in env:
            # Others may have variables of this prefix, so an unknown one is worth a remark at most.
            if (
                variable.startswith("TOOLYARD_")
                and variable not in variables
                and variable not in _OTHER_VARIABLES
            ):
                near = did_you_mean(variable, variables, list_known=False)
                if near is not None:
                    self.hints.append(Problem("this variable sets nothing", file=variable, hint=near))

    def _read_secret_file(self, row: Setting, path: Path, here: Path) -> None:
        try:
            text = decode_utf8(read_regular_file(path), str(path)).rstrip("\r\n")
            self.values[row.name] = row.kind.from_text(text, here)
            self.origins[row.name] = str(path)
        except ConfigError as error:
            self.problems += error.problems
        except InvalidValueError as error:
            self._add_problems(row, "", error, file=str(path))

    def read_overrides(self, overrides: Mapping[str, object]) -> None:
        for name, value in overrides.items():
            row = self._find_setting(name, file="overrides")
            if row is not None and value is not None:
                self._set_value(row, value, Path.cwd(), origin="overrides", file="overrides")

    def check_model(self) -> None:
        """The model of chats is one that is listed, the local one, or provider:name."""
        model: str | None = self.values.get("model")
        listed = [entry.name for entry in self.values.get("models", ())]
        fault = None if model is None else model_ref_fault(model)
        if model is None or fault is None or model in (*listed, "local"):
            return
        hint = did_you_mean(model, listed) or "for example openai:gpt-5-mini"
        message = f"{model[:60]!a} is none of models, and {fault}"
        origin = self.origins["model"]
        self.problems.append(Problem(message, file=origin, path="model", hint=hint))

    def _parse_toml(self, text: str, path: Path) -> dict[str, Any]:
        import tomllib  # only a file that is there needs it

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message = str(error)
            found = _TOML_ERROR_LINE.search(message)
            line = int(found[1]) if found else None
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
            self.values[row.name] = row.kind.from_value(value, folder)
            self.origins[row.name] = origin
        except InvalidValueError as error:
            self._add_problems(row, value, error, file=file, text=text)

    def _set_from_text(self, row: Setting, text: str, folder: Path, variable: str) -> None:
        try:
            self.values[row.name] = row.kind.from_text(text, folder)
            self.origins[row.name] = variable
        except InvalidValueError as error:
            if variable == row.variable:
                self._add_problems(row, text, error, file=variable)
            else:
                # It is not ours, and whoever set it may have meant others.
                self.hints.append(Problem(f"is not {row.kind.expected}, and sets nothing", file=variable))

    def _add_problems(
        self, row: Setting, value: object, error: InvalidValueError, *, file: str, text: str = ""
    ) -> None:
        found = "something else" if row.secret else _shorten_value(value)
        whole = ValueFault((), f"expected {row.kind.expected}, found {found}")
        for fault in error.faults or (whole,):
            keys = (row.name, *fault.at)
            hint = fault.hint or row.description
            line = _find_nested_key_line(keys, text)
            self.problems.append(Problem(fault.message, file=file, line=line, path=".".join(keys), hint=hint))


def _find_secret_file(row: Setting, env: Mapping[str, str]) -> Path | None:
    if not row.secret:
        return None
    if named := env.get(row.file_variable):
        return Path(os.path.abspath(os.path.expanduser(named)))
    if folder := env.get("CREDENTIALS_DIRECTORY"):
        credential = Path(folder, row.name)
        return credential if credential.exists() else None
    return None


def _find_key_line(name: str, text: str) -> int | None:
    """The TOML reader keeps no positions, so look for the key at the beginning of a line."""
    found = re.search(rf"^[ \t]*(?:\[+[ \t]*)?{_toml_key_pattern(name)}[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _find_nested_key_line(keys: tuple[str, ...], text: str) -> int | None:
    """The line of a key within tables, or of the nearest thing around it that can be found."""
    name, *inner = keys
    table = r"[ \t]*\.[ \t]*".join(_toml_key_pattern(key) for key in keys[:2])
    head = re.search(rf"^[ \t]*\[[ \t]*{table}[ \t]*\]", text, re.MULTILINE)
    if not inner or head is None:
        return _find_key_line(name, text)
    line = text.count("\n", 0, head.start())
    if len(inner) > 1:
        body = re.split(r"^[ \t]*\[", text[head.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        return line + (_find_key_line(inner[1], body) or 1)
    return line + 1


def _toml_key_pattern(key: str) -> str:
    written = re.escape(key)
    return rf"""(?:{written}|"{written}"|'{written}')"""


def _shorten_value(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
