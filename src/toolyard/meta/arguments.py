"""The arguments of a meta tool as a model wrote them, read kindly and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolyard.types.tool import Definition, JsonObject

__all__ = ["InvalidToolArgument", "ToolArguments"]

_MAX_NAME_CHARS = 40


class InvalidToolArgument(ValueError):
    """An argument that cannot be used; the words are for the model."""


class ToolArguments:
    """The arguments of one call. Raises BadArgument for what is no argument of the tool."""

    def __init__(self, tool: Definition, arguments: object) -> None:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidToolArgument(f"the arguments of {tool.name} must be an object")
        self._arguments = cast("JsonObject", arguments or {})
        known = cast("Mapping[str, object]", tool.input_schema["properties"])
        strange = [str(key)[:_MAX_NAME_CHARS] for key in self._arguments if key not in known]
        if strange:
            raise InvalidToolArgument(
                f"{tool.name} has no argument '{strange[0]}'; it has: {', '.join(known)}"
            )

    def text(self, key: str) -> str:
        """A text that must be there."""
        found = self.get_text(key)
        if found is None:
            raise InvalidToolArgument(f"'{key}' is missing")
        return found

    def get_text(self, key: str) -> str | None:
        """A text, None where it is left out."""
        value = self._arguments.get(key)
        if value is None or isinstance(value, str):
            return value
        raise InvalidToolArgument(f"'{key}' must be a string")

    def get_bool(self, key: str) -> bool:
        """Yes or no; no where it is left out. Models write them as texts too."""
        value = self._arguments.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise InvalidToolArgument(f"'{key}' must be true or false")

    def number(self, key: str, default: int, minimum: int, maximum: int | None = None) -> int:
        """A whole number, brought within its bounds. Models write them as texts and as 10.0 too."""
        value = self._arguments.get(key)
        if value is None:
            return default
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
            value = int(value.strip()[:12])
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidToolArgument(f"'{key}' must be a whole number")
        if value < minimum:
            raise InvalidToolArgument(f"'{key}' must be {minimum} or more")
        return value if maximum is None else min(value, maximum)

    def texts(self, key: str, max_entries: int) -> list[str]:
        """Some texts, each once; a single one may stand alone."""
        value = self._arguments.get(key)
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list) or not value:
            raise InvalidToolArgument(f"'{key}' must be a list of strings that is not empty")
        items = cast("list[object]", value)
        if len(items) > max_entries:
            raise InvalidToolArgument(f"'{key}' may have {max_entries} entries, not {len(items):,}")
        found = [item for item in items if isinstance(item, str)]
        if len(found) < len(items):
            raise InvalidToolArgument(f"'{key}' must be a list of strings")
        return list(dict.fromkeys(found))

    def get_object(self, key: str) -> JsonObject:
        """An object; empty where it is left out."""
        value = self._arguments.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InvalidToolArgument(f"'{key}' must be an object")
        return cast("JsonObject", value)
