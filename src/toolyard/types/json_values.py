"""Values of decoded JSON whose type is not known."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["list_or_empty", "object_or_empty", "text_or_empty"]


def object_or_empty(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[object]:
    """Return the value if it is a JSON array, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_or_empty(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""
