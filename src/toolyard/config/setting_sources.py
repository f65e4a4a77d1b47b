"""Settings from ``toolyard.toml``, the environment and the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolyard.config.data_dir import default_data_dir
from toolyard.config.files import decode, read_bytes
from toolyard.config.setting_kinds import Unfit
from toolyard.config.settings import SETTINGS, Setting, Settings
from toolyard.config.suggesting import did_you_mean
from toolyard.errors import ConfigError, Problem

__all__ = ["load_settings"]

_ROWS = {row.name: row for row in SETTINGS}
_NOT_SETTINGS = {
    "TOOLYARD_DATA_DIR",
    "TOOLYARD_CONFIG_PATH",
    "TOOLYARD_CONFIG_JSON",
    "TOOLYARD_REMOTE_TOKEN",
}
_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def load_settings(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """``overrides`` over ``TOOLYARD_…`` over ``toolyard.toml`` in the data directory over the defaults.

    A missing file is no error. Raises ConfigError with everything that is wrong in any of the three.
    """
    env = os.environ if env is None else env
    folder = default_data_dir(env) if data_dir is None else Path(os.path.abspath(data_dir))
    work = _Collector()
    work.take_file(folder / "toolyard.toml", folder)
    work.take_environment(env)
    work.take_overrides(overrides or {})
    if work.problems:
        raise ConfigError(work.problems)
    return Settings(**work.values, origins=MappingProxyType(work.origins), hints=tuple(work.hints))


@dataclass(slots=True)
class _Collector:
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])

    def take_file(self, path: Path, folder: Path) -> None:
        if not os.path.lexists(path):
            return
        try:
            text = decode(read_bytes(path), str(path))
        except ConfigError as error:
            self.problems += error.problems
            return
        table = self._parse(text, path)
        for name, value in table.items():
            line = _line_of(name, text)
            place = f"{path}:{line}" if line else str(path)
            row = self._row(name, file=str(path), line=line)
            if row is not None:
                self._take(row, value, folder, origin=place, file=str(path), line=line)

    def take_environment(self, env: Mapping[str, str]) -> None:
        variables = {row.variable: row for row in SETTINGS}
        here = Path.cwd()
        for variable, row in variables.items():
            text = env.get(variable)
            if text:
                self._take_text(row, text, here)
        for variable in env:
            # Others may have variables of this prefix, so an unknown one is worth a remark at most.
            if (
                variable.startswith("TOOLYARD_")
                and variable not in variables
                and variable not in _NOT_SETTINGS
            ):
                near = did_you_mean(variable, variables, otherwise=False)
                if near is not None:
                    self.hints.append(Problem("this variable sets nothing", file=variable, hint=near))

    def take_overrides(self, overrides: Mapping[str, object]) -> None:
        for name, value in overrides.items():
            row = self._row(name, file="overrides")
            if row is not None and value is not None:
                self._take(row, value, Path.cwd(), origin="overrides", file="overrides")

    def _parse(self, text: str, path: Path) -> dict[str, Any]:
        import tomllib  # only a file that is there needs it

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message = str(error)
            found = _LINE.search(message)
            line = int(found[1]) if found else None
            self.problems.append(Problem(f"not valid TOML: {message}", file=str(path), line=line))
        except RecursionError:
            self.problems.append(Problem("not valid TOML: too deeply nested", file=str(path)))
        return {}

    def _row(self, name: str, *, file: str, line: int | None = None) -> Setting | None:
        row = _ROWS.get(name)
        if row is None:
            hint = did_you_mean(name, _ROWS, otherwise=False) or "`toolyard settings` lists all of them"
            self.problems.append(Problem("unknown setting", file=file, line=line, path=name, hint=hint))
        return row

    def _take(
        self, row: Setting, value: object, folder: Path, *, origin: str, file: str, line: int | None = None
    ) -> None:
        try:
            self.values[row.name] = row.kind.from_value(value, folder)
            self.origins[row.name] = origin
        except Unfit:
            self._complain(row, value, file=file, line=line)

    def _take_text(self, row: Setting, text: str, folder: Path) -> None:
        try:
            self.values[row.name] = row.kind.from_text(text, folder)
            self.origins[row.name] = row.variable
        except Unfit:
            self._complain(row, text, file=row.variable)

    def _complain(self, row: Setting, value: object, *, file: str, line: int | None = None) -> None:
        found = "something else" if row.secret else _short(value)
        message = f"expected {row.kind.expected}, found {found}"
        self.problems.append(Problem(message, file=file, line=line, path=row.name, hint=row.description))


def _line_of(name: str, text: str) -> int | None:
    """The TOML reader keeps no positions, so look for the key at the beginning of a line."""
    key = re.escape(name)
    found = re.search(rf"""^[ \t]*(?:\[+[ \t]*)?(?:{key}|"{key}"|'{key}')[ \t]*[=.\]]""", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _short(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
