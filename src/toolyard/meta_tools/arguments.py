"""Lenient parsing of the arguments that a model passes to a meta tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolyard.types.tool import Definition, JsonObject

__all__ = ["InvalidToolArgument", "ToolArguments"]

_MAX_NAME_CHARS = 40


class InvalidToolArgument(ValueError):
    """Raised for an invalid argument. The message is shown to the model."""


class ToolArguments:
    """Arguments of one call. Raise InvalidToolArgument if an argument is unknown to the tool."""

    def __init__(self, tool: Definition, arguments: object) -> None:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidToolArgument(f"the arguments of {tool.name} must be an object")
        self._arguments = cast("JsonObject", arguments or {})
        known = cast("Mapping[str, object]", tool.input_schema["properties"])
        unknown = [str(key)[:_MAX_NAME_CHARS] for key in self._arguments if key not in known]
        if unknown:
            raise InvalidToolArgument(
                f"{tool.name} has no argument '{unknown[0]}'; it has: {', '.join(known)}"
            )

    def require_text(self, key: str) -> str:
        """Return a required string."""
        value = self.get_text(key)
        if value is None:
            raise InvalidToolArgument(f"'{key}' is missing")
        return value

    def get_text(self, key: str) -> str | None:
        """Return an optional string, None if it is absent."""
        value = self._arguments.get(key)
        if value is None or isinstance(value, str):
            return value
        raise InvalidToolArgument(f"'{key}' must be a string")

    def get_bool(self, key: str) -> bool:
        """Return a boolean, False if it is absent. Also accepts the strings "true" and "false"."""
        value = self._arguments.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise InvalidToolArgument(f"'{key}' must be true or false")

    def get_int(self, key: str, default: int, minimum: int, maximum: int | None = None) -> int:
        """Return an integer of at least ``minimum``, reduced to ``maximum`` if it is larger.

        Also accepts strings of digits and floats such as 10.0, which some models write.
        """
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

    def get_text_list(self, key: str, max_entries: int) -> list[str]:
        """Return a list of unique strings. Also accepts a single string instead of a list."""
        value = self._arguments.get(key)
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list) or not value:
            raise InvalidToolArgument(f"'{key}' must be a non-empty list of strings")
        items = cast("list[object]", value)
        if len(items) > max_entries:
            raise InvalidToolArgument(f"'{key}' can have at most {max_entries} entries, not {len(items):,}")
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise InvalidToolArgument(f"'{key}' must be a list of strings")
        return list(dict.fromkeys(texts))

    def get_object(self, key: str) -> JsonObject:
        """Return an object, empty if it is absent."""
        value = self._arguments.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InvalidToolArgument(f"'{key}' must be an object")
        return cast("JsonObject", value)
