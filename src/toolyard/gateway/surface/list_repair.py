"""Repairs of list entries, so that every client can read them, and pages of long lists.

Clients validate a list as a whole: one invalid entry costs them all entries, at an address of many servers
those of all servers. An invalid part is removed where it is optional, and corrected where the meaning is
clear. Valid objects are returned as they are, not copied.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.protocol.eras import Era

__all__ = ["PAGE_SIZE", "paginate_items", "repair_list", "repair_server_info", "repair_tool"]


_Repair: TypeAlias = Callable[[Any], Any]
"""Returns the value itself if valid, else a corrected one, else ``_NOTHING``."""
_INVALID: Final = object()
_TIMESTAMP_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_MAX_TIMESTAMP_CHARACTERS = 100
"""A regular expression over megabytes of digits would block all threads."""


def _check_text(value: Any) -> Any:
    return value if isinstance(value, str) else _INVALID


def _check_flag(value: Any) -> Any:
    return value if isinstance(value, bool) else _INVALID


def _check_number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _INVALID


def _check_fraction(value: Any) -> Any:
    return value if _check_number(value) is value and 0 <= value <= 1 else _INVALID


def _check_timestamp(value: Any) -> Any:
    is_short = isinstance(value, str) and len(value) <= _MAX_TIMESTAMP_CHARACTERS
    return value if is_short and _TIMESTAMP_PATTERN.fullmatch(value) else _INVALID


def _choice_of(*words: str) -> _Repair:
    return lambda value: value if isinstance(value, str) and value in words else _INVALID


def _list_of(mend: _Repair) -> _Repair:
    """Return a repair for lists; entries that cannot be repaired are left out."""

    def repair_value(value: Any) -> Any:
        if not isinstance(value, list):
            return _INVALID
        given = cast("list[Any]", value)
        made = [found for each in given if (found := mend(each)) is not _INVALID]
        same = len(made) == len(given) and all(a is b for a, b in zip(made, given, strict=True))
        return given if same else made

    return repair_value


def _build_object_repair(parts: Mapping[str, _Repair], *needs: str) -> _Repair:
    """Return a repair for objects: parts that cannot be repaired are left out, and without the required ones
    the object is invalid."""

    def repair_value(value: Any) -> Any:
        if not isinstance(value, dict):
            return _INVALID
        given = cast("dict[str, Any]", value)
        made = given
        for key, mend in parts.items():
            if key in given and (found := mend(given[key])) is not given[key]:
                made = {k: found if k == key else v for k, v in made.items()}
                if found is _INVALID:
                    del made[key]
        return made if all(key in made for key in needs) else _INVALID

    return repair_value


def _repair_properties(value: Any) -> Any:
    """Older clients accept only objects, although ``true`` and ``false`` are schemas too."""
    if not isinstance(value, dict):
        return _INVALID
    given = cast("dict[str, Any]", value)
    if all(isinstance(each, dict) for each in given.values()):
        return given
    return {key: _repair_property(each) for key, each in given.items()}


def _repair_property(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    return {"not": {}} if schema is False else {}


_repair_schema = _build_object_repair(
    {"$schema": _check_text, "properties": _repair_properties, "required": _list_of(_check_text)}
)


def _repair_input_schema(value: Any) -> Any:
    found = _repair_schema(value)
    return found if "type" in found else {"type": "object", **found}


def _repair_output_schema(value: Any) -> Any:
    """Drop a schema that describes anything but an object."""
    found = _repair_schema(value)
    return found if found is not _INVALID and found.get("type") == "object" else _INVALID


_ICON_MEMBERS = {
    "src": _check_text,
    "mimeType": _check_text,
    "sizes": _list_of(_check_text),
    "theme": _choice_of("light", "dark"),
}
_DISPLAY_MEMBERS = {
    "title": _check_text,
    "description": _check_text,
    "icons": _list_of(_build_object_repair(_ICON_MEMBERS, "src")),
    "_meta": _build_object_repair({}),
}
_TOOL_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_TOOL_MEMBERS = {
    **_DISPLAY_MEMBERS,
    "annotations": _build_object_repair({"title": _check_text, **dict.fromkeys(_TOOL_HINTS, _check_flag)}),
    "execution": _build_object_repair({"taskSupport": _choice_of("forbidden", "optional", "required")}),
    "inputSchema": _repair_input_schema,
}
_repair_object_tool = _build_object_repair({**_TOOL_MEMBERS, "outputSchema": _repair_output_schema})
_repair_any_tool = _build_object_repair({**_TOOL_MEMBERS, "outputSchema": _build_object_repair({})})
_ANNOTATION_MEMBERS = {
    "audience": _list_of(_choice_of("user", "assistant")),
    "priority": _check_fraction,
    "lastModified": _check_timestamp,
}
_RESOURCE_MEMBERS = {
    **_DISPLAY_MEMBERS,
    "name": _check_text,
    "mimeType": _check_text,
    "annotations": _build_object_repair(_ANNOTATION_MEMBERS),
}
_ARGUMENT_MEMBERS = {
    "name": _check_text,
    "title": _check_text,
    "description": _check_text,
    "required": _check_flag,
}
_PROMPT_MEMBERS = {
    **_DISPLAY_MEMBERS,
    "name": _check_text,
    "arguments": _list_of(_build_object_repair(_ARGUMENT_MEMBERS, "name")),
}
_ENTRY_REPAIRS = {
    "prompts/list": _build_object_repair(_PROMPT_MEMBERS, "name"),
    "resources/list": _build_object_repair(
        {**_RESOURCE_MEMBERS, "uri": _check_text, "size": _check_number}, "uri"
    ),
    "resources/templates/list": _build_object_repair(
        {**_RESOURCE_MEMBERS, "uriTemplate": _check_text}, "uriTemplate"
    ),
}
_repair_implementation = _build_object_repair(
    {**_DISPLAY_MEMBERS, "name": _check_text, "version": _check_text, "websiteUrl": _check_text},
    "name",
    "version",
)


def repair_tool(raw: Mapping[str, Any], era: Era) -> Mapping[str, Any]:
    """Repair a tool for the clients of an era. Its name and input schema were validated by the catalogue."""
    if "inputSchema" not in raw:
        raw = {**raw, "inputSchema": {"type": "object"}}
    return (_repair_object_tool if era.structured_content_is_object else _repair_any_tool)(raw)


def repair_list(method: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Repair prompts, resources or templates, and leave out those without required parts. A resource without
    a name is named by its URI."""
    found = _list_of(_ENTRY_REPAIRS[method])(items)
    key = {"resources/list": "uri", "resources/templates/list": "uriTemplate"}.get(method, "name")
    return [each if "name" in each else {**each, "name": each[key]} for each in found]


def repair_server_info(info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Repair a server's description of itself; None if required parts are missing."""
    found = _repair_implementation(info)
    return None if found is _INVALID else found


PAGE_SIZE = 1000
"""Entries per page."""


def paginate_items(
    key: str, items: Sequence[Any], params: Mapping[str, Any], size: int = PAGE_SIZE
) -> dict[str, Any]:
    """Return the page of the request's ``cursor``. Raises RpcErrorResponse for an invalid cursor."""
    start = _decode_cursor(params.get("cursor"))
    if start > len(items):
        # The list became shorter, so the rest after this position is empty.
        start = len(items)
    end = start + size
    if start == 0 and end >= len(items):
        return {key: items}
    result: dict[str, Any] = {key: items[start:end]}
    if end < len(items):
        result["nextCursor"] = base64.urlsafe_b64encode(f"at {end}".encode()).decode()
    return result


def _decode_cursor(cursor: object) -> int:
    if cursor is None:
        return 0
    try:
        word, _, place = base64.urlsafe_b64decode(str(cursor)).decode().partition(" ")
        if word == "at" and place.isdigit() and len(place) < 10:
            return int(place)
    except (binascii.Error, ValueError):
        pass
    raise RpcErrorResponse(INVALID_PARAMS, "cursor is not valid")
