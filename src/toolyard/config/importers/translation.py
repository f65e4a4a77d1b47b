"""An entry of another client on its way to becoming one of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from toolyard.config.sources.json_document import JsonValue

__all__ = ["EntryTranslation", "ForeignServer", "escape_variables"]

_INPUT_VARIABLE = re.compile(r"\$\{input:([^{}]+)\}")
_EDITOR_VARIABLE = re.compile(
    r"\$\{(?:workspaceFolder|workspaceFolderBasename|workspaceRoot|cwd|file|pathSeparator|/)[^{}]*\}"
)
_INVALID_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9_]+")
_EXPANDABLE_KEYS = ("command", "args", "env", "cwd", "url", "headers")


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A server under the name it has there, as an entry of ``mcpServers``, with notes on what was lost."""

    name: str
    entry: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


class EntryTranslation:
    """Takes the keys of an entry one by one; what is left in the end is said to be left behind."""

    def __init__(self, name: str, raw: Mapping[str, JsonValue]) -> None:
        self.name = name
        self.entry: dict[str, JsonValue] = {}
        self.notes: list[str] = []
        self._remaining = dict(raw)

    def pop(self, key: str) -> JsonValue:
        """The value of a key, which then counts as dealt with."""
        return self._remaining.pop(key, None)

    def copy_keys(self, *keys: str) -> None:
        """Take over keys that mean the same with us."""
        for key in keys:
            self.put(key, self.pop(key))

    def put(self, key: str, value: JsonValue) -> None:
        """Set a key of the new entry; null leaves it out."""
        if value is not None:
            self.entry[key] = value

    def merge(self, key: str, values: Mapping[str, JsonValue]) -> None:
        """Add to an object of the new entry."""
        if values:
            known = self.entry.get(key)
            self.entry[key] = {**(known if isinstance(known, dict) else {}), **values}

    def seconds(self, key: str, *targets: str, scale: float = 1) -> None:
        """A time limit, which becomes one or more of our ``timeouts``."""
        value = self.pop(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            self.merge("timeouts", dict.fromkeys(targets, value / scale))

    def drop(self, key: str, reason: str) -> None:
        """Leave a key behind for a reason worth telling."""
        if self.pop(key) is not None:
            self.notes.append(f"'{key}' was left out: {reason}")

    def finish(self) -> ForeignServer:
        """The new entry."""
        self.notes += [f"'{key}' was left out: Toolyard has nothing like it" for key in self._remaining]
        for key in _EXPANDABLE_KEYS:
            if key in self.entry:
                self.entry[key] = self._rewrite_variables(self.entry[key])
        return ForeignServer(self.name, self.entry, tuple(dict.fromkeys(self.notes)))

    def _rewrite_variables(self, value: JsonValue) -> JsonValue:
        """Rewrite what only an editor can fill in, as far as we have the same."""
        if isinstance(value, list):
            return [self._rewrite_variables(item) for item in value]
        if isinstance(value, dict):
            return {key: self._rewrite_variables(item) for key, item in value.items()}
        if not isinstance(value, str) or "${" not in value:
            return value
        text = _INPUT_VARIABLE.sub(self._replace_input, value.replace("${userHome}", "${HOME}"))
        for found in _EDITOR_VARIABLE.finditer(text):
            self.notes.append(f"{found[0]} is known to an editor only: write the path in its place")
        return text

    def _replace_input(self, match: re.Match[str]) -> str:
        variable = _INVALID_NAME_CHARACTERS.sub("_", match[1]).strip("_").upper() or "INPUT"
        variable = f"_{variable}" if variable[0].isdigit() else variable
        self.notes.append(f"{match[0]} was asked for by the editor: set the variable {variable} instead")
        return f"${{{variable}}}"


def escape_variables(value: JsonValue) -> JsonValue:
    """The value for a client that fills in no ``${NAME}``, so that it stays: a shell may be meant by it."""
    if isinstance(value, list):
        return [escape_variables(item) for item in value]
    if isinstance(value, dict):
        return {key: escape_variables(item) for key, item in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value
