"""The arguments of a meta tool as a model wrote them, read kindly and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolyard.types.tool import Definition, JsonObject

__all__ = ["BadArgument", "Given"]

_SHOWN = 40


class BadArgument(ValueError):
    """An argument that cannot be used; the words are for the model."""


class Given:
    """The arguments of one call. Raises BadArgument for what is no argument of the tool."""

    def __init__(self, tool: Definition, arguments: object) -> None:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise BadArgument(f"the arguments of {tool.name} must be an object")
        self._given = cast("JsonObject", arguments or {})
        known = cast("Mapping[str, object]", tool.input_schema["properties"])
        strange = [str(key)[:_SHOWN] for key in self._given if key not in known]
        if strange:
            raise BadArgument(f"{tool.name} has no argument '{strange[0]}'; it has: {', '.join(known)}")

    def text(self, key: str) -> str:
        """A text that must be there."""
        found = self.text_or_none(key)
        if found is None:
            raise BadArgument(f"'{key}' is missing")
        return found

    def text_or_none(self, key: str) -> str | None:
        """A text, None where it is left out."""
        value = self._given.get(key)
        if value is None or isinstance(value, str):
            return value
        raise BadArgument(f"'{key}' must be a string")

    def flag(self, key: str) -> bool:
        """Yes or no; no where it is left out. Models write them as texts too."""
        value = self._given.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise BadArgument(f"'{key}' must be true or false")

    def number(self, key: str, otherwise: int, least: int, most: int | None = None) -> int:
        """A whole number, brought within its bounds. Models write them as texts and as 10.0 too."""
        value = self._given.get(key)
        if value is None:
            return otherwise
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
            value = int(value.strip()[:12])
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadArgument(f"'{key}' must be a whole number")
        if value < least:
            raise BadArgument(f"'{key}' must be {least} or more")
        return value if most is None else min(value, most)

    def texts(self, key: str, most: int) -> list[str]:
        """Some texts, each once; a single one may stand alone."""
        value = self._given.get(key)
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list) or not value:
            raise BadArgument(f"'{key}' must be a list of strings that is not empty")
        items = cast("list[object]", value)
        if len(items) > most:
            raise BadArgument(f"'{key}' may have {most} entries, not {len(items):,}")
        found = [item for item in items if isinstance(item, str)]
        if len(found) < len(items):
            raise BadArgument(f"'{key}' must be a list of strings")
        return list(dict.fromkeys(found))

    def object(self, key: str) -> JsonObject:
        """An object; empty where it is left out."""
        value = self._given.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise BadArgument(f"'{key}' must be an object")
        return cast("JsonObject", value)
