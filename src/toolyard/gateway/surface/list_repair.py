"""What servers list, as every client can read it.

Clients check a list as a whole: one entry that is not as the protocol has it costs them all entries, and at
an address of many servers those of all servers. So what has a wrong form is left out where it may be, and
written properly where that says the same. What is well formed stays the very object that it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

__all__ = ["implementation", "listed", "tool"]

_Mend: TypeAlias = Callable[[Any], Any]
"""The value itself where it is well formed, else one that is, else ``_NOTHING``."""
_NOTHING: Final = object()
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _NOTHING


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else _NOTHING


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _NOTHING


def _share(value: Any) -> Any:
    return value if _number(value) is value and 0 <= value <= 1 else _NOTHING


def _moment(value: Any) -> Any:
    return value if isinstance(value, str) and _MOMENT.fullmatch(value) else _NOTHING


def _one_of(*words: str) -> _Mend:
    return lambda value: value if isinstance(value, str) and value in words else _NOTHING


def _many(mend: _Mend) -> _Mend:
    """A list of these; entries that cannot be mended are left out."""

    def mended(value: Any) -> Any:
        if not isinstance(value, list):
            return _NOTHING
        given = cast("list[Any]", value)
        made = [found for each in given if (found := mend(each)) is not _NOTHING]
        same = len(made) == len(given) and all(a is b for a, b in zip(made, given, strict=True))
        return given if same else made

    return mended


def _object(parts: Mapping[str, _Mend], *needs: str) -> _Mend:
    """An object; parts that cannot be mended are left out, and without those that it ``needs`` it is none."""

    def mended(value: Any) -> Any:
        if not isinstance(value, dict):
            return _NOTHING
        given = cast("dict[str, Any]", value)
        made = given
        for key, mend in parts.items():
            if key in given and (found := mend(given[key])) is not given[key]:
                made = {k: found if k == key else v for k, v in made.items()}
                if found is _NOTHING:
                    del made[key]
        return made if all(key in made for key in needs) else _NOTHING

    return mended


def _properties(value: Any) -> Any:
    """Clients of the legacy era take objects alone; ``true`` and ``false`` are schemas too."""
    if not isinstance(value, dict):
        return _NOTHING
    given = cast("dict[str, Any]", value)
    if all(isinstance(each, dict) for each in given.values()):
        return given
    return {key: _property(each) for key, each in given.items()}


def _property(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    return {"not": {}} if schema is False else {}


_schema = _object({"$schema": _text, "properties": _properties, "required": _many(_text)})


def _input(value: Any) -> Any:
    found = _schema(value)
    return found if "type" in found else {"type": "object", **found}


def _output(value: Any) -> Any:
    """In the legacy era structured content is an object, and its schema one of objects."""
    found = _schema(value)
    return found if found is not _NOTHING and found.get("type") == "object" else _NOTHING


_icon = {"src": _text, "mimeType": _text, "sizes": _many(_text), "theme": _one_of("light", "dark")}
_shown = {"title": _text, "description": _text, "icons": _many(_object(_icon, "src")), "_meta": _object({})}
_hints = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_tool = {
    **_shown,
    "annotations": _object({"title": _text, **dict.fromkeys(_hints, _flag)}),
    "execution": _object({"taskSupport": _one_of("forbidden", "optional", "required")}),
    "inputSchema": _input,
}
_legacy_tool = _object({**_tool, "outputSchema": _output})
_modern_tool = _object({**_tool, "outputSchema": _object({})})
_note = {
    "audience": _many(_one_of("user", "assistant")),
    "priority": _share,
    "lastModified": _moment,
}
_about = {**_shown, "name": _text, "mimeType": _text, "annotations": _object(_note)}
_argument = {"name": _text, "title": _text, "description": _text, "required": _flag}
_prompt = {**_shown, "name": _text, "arguments": _many(_object(_argument, "name"))}
_entries = {
    "prompts/list": _object(_prompt, "name"),
    "resources/list": _object({**_about, "uri": _text, "size": _number}, "uri"),
    "resources/templates/list": _object({**_about, "uriTemplate": _text}, "uriTemplate"),
}
_implementation = _object({**_shown, "name": _text, "version": _text, "websiteUrl": _text}, "name", "version")


def tool(raw: Mapping[str, Any], *, modern: bool) -> Mapping[str, Any]:
    """A tool of the catalogue as clients of an era take it. Its name and input schema were judged there."""
    return _modern_tool(raw) if modern else _legacy_tool(raw)


def listed(method: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The prompts, resources or templates that have what they need; a resource needs no name, since its URI
    can be one."""
    found = _many(_entries[method])(items)
    key = {"resources/list": "uri", "resources/templates/list": "uriTemplate"}.get(method, "name")
    return [each if "name" in each else {**each, "name": each[key]} for each in found]


def implementation(info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a server says of itself; None where it lacks what it needs."""
    found = _implementation(info)
    return None if found is _NOTHING else found
