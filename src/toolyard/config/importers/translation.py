"""Translation of one entry of another client into an entry of ``mcpServers``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolyard.config.sources.json_document import JsonValue, map_texts

__all__ = ["EntryTranslation", "ForeignServer", "escape_variables"]

_INPUT_VARIABLE = re.compile(r"\$\{input:([^{}]+)\}")
_EDITOR_VARIABLE = re.compile(
    r"\$\{(?:workspaceFolder|workspaceFolderBasename|workspaceRoot|cwd|file|pathSeparator|/)[^{}]*\}"
)
_INVALID_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9_]+")
_NO_EQUIVALENT = "Toolyard has no equivalent"
_EXPANDABLE_KEYS = ("command", "args", "env", "cwd", "url", "headers")


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A server of another client, as an entry of ``mcpServers``, with notes about dropped keys."""

    name: str
    entry: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


class EntryTranslation:
    """Translation in progress. Keys are taken one by one; ``finish`` adds a note for each remaining key."""

    def __init__(self, name: str, raw: Mapping[str, JsonValue]) -> None:
        self.name = name
        self.entry: dict[str, JsonValue] = {}
        self.notes: list[str] = []
        self._remaining = dict(raw)

    def pop(self, key: str) -> JsonValue:
        """Remove a key of the original entry and return its value, or None."""
        return self._remaining.pop(key, None)

    def pop_object(self, key: str, *members: str) -> dict[str, JsonValue] | None:
        """Remove an object of the original entry and return these members of it, with notes for others.

        Returns None, with a note if there is a value, if it is not an object.
        """
        value = self.pop(key)
        if isinstance(value, dict):
            self.note_members(key, (name for name in value if name not in members), _NO_EQUIVALENT)
            return {name: value[name] for name in members if value.get(name) is not None}
        if value is not None:
            self.notes.append(f"'{key}' was dropped: it is not an object")
        return None

    def note_members(self, key: str, members: Iterable[str], reason: str) -> None:
        """Add a note for each dropped member of an object."""
        self.notes += [f"'{key}.{name}' was dropped: {reason}" for name in members]

    def copy_keys(self, *keys: str) -> None:
        """Copy keys that have the same meaning in both formats."""
        for key in keys:
            self.put(key, self.pop(key))

    def put(self, key: str, value: JsonValue) -> None:
        """Set a key of the new entry, unless the value is None."""
        if value is not None:
            self.entry[key] = value

    def merge(self, key: str, values: Mapping[str, JsonValue]) -> None:
        """Add members to an object of the new entry."""
        if values:
            current = self.entry.get(key)
            self.entry[key] = {**(current if isinstance(current, dict) else {}), **values}

    def set_timeouts(self, key: str, *targets: str, scale: float = 1) -> None:
        """Translate a time limit into one or more ``timeouts``, divided by ``scale``."""
        value = self.pop(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            self.merge("timeouts", dict.fromkeys(targets, value / scale))
        elif value is not None:
            self.notes.append(f"'{key}' was dropped: it is not a positive number")

    def drop(self, key: str, reason: str) -> None:
        """Drop a key and add a note with the reason."""
        if self.pop(key) is not None:
            self.notes.append(f"'{key}' was dropped: {reason}")

    def finish(self) -> ForeignServer:
        """Return the new entry."""
        self.notes += [f"'{key}' was dropped: {_NO_EQUIVALENT}" for key in self._remaining]
        for key in _EXPANDABLE_KEYS:
            if key in self.entry:
                self.entry[key] = map_texts(self.entry[key], self._rewrite_variables)
        return ForeignServer(self.name, self.entry, tuple(dict.fromkeys(self.notes)))

    def _rewrite_variables(self, text: str) -> str:
        """Replace references that only an editor can resolve by variables, or add a note."""
        text = _INPUT_VARIABLE.sub(self._replace_input, text.replace("${userHome}", "${HOME}"))
        for match in _EDITOR_VARIABLE.finditer(text):
            self.notes.append(f"only an editor can resolve {match[0]}: replace it with the path")
        return text

    def _replace_input(self, match: re.Match[str]) -> str:
        variable = _INVALID_NAME_CHARACTERS.sub("_", match[1]).strip("_").upper() or "INPUT"
        variable = f"_{variable}" if variable[0].isdigit() else variable
        self.notes.append(f"the editor prompts for {match[0]}: set the variable {variable} instead")
        return f"${{{variable}}}"


def escape_variables(raw: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Escape ``${`` in an entry of a client that does not expand ``${NAME}``: it may be meant for a shell."""
    return {key: map_texts(value, lambda text: text.replace("${", "$${")) for key, value in raw.items()}
