"""Tool arguments on the command line: a JSON object, ``key=value`` words, or JSON on standard input.

``key=value`` is converted by the tool's input schema, ``key:=json`` is parsed as JSON, and dots
address nested objects. Values without a schema stay strings: the server validates them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TextIO, TypeAlias, cast

from toolyard.catalog.schemas.form_fields import InvalidInput, SchemaNode, parse_json
from toolyard.cli.invocation import Usage
from toolyard.types.tool import JsonObject

__all__ = ["coerce_key_values", "needs_schema", "read_json_arguments"]

KeyPath: TypeAlias = tuple[str, ...]

_ARGUMENT_PATTERN = re.compile(r"(?P<key>[^=]+?)(?P<raw>:?)=(?P<value>.*)", re.DOTALL)
_ARGUMENT_FORMS_HINT = "pass one JSON object, key=value arguments, or - to read JSON from standard input"
_STDIN_LABEL = "standard input"


def needs_schema(words: Sequence[str]) -> bool:
    """Return whether the words are ``key=value`` pairs, which need a schema."""
    return bool(words) and words[0] != "-" and not words[0].lstrip().startswith("{")


def read_json_arguments(words: Sequence[str], stdin: TextIO) -> dict[str, Any]:
    """Return the arguments of words that need no schema. Raises Usage."""
    if not words:
        return {}
    if len(words) > 1:
        raise Usage(f"{words[0][:20]!r} cannot be combined with other arguments", hint=_ARGUMENT_FORMS_HINT)
    where = _STDIN_LABEL if words[0] == "-" else "the arguments"
    try:
        text = stdin.read() if words[0] == "-" else words[0]
    except UnicodeDecodeError:
        raise Usage(f"{where}: the text is not valid UTF-8") from None
    value = _parse_json(text, where)
    if not isinstance(value, dict):
        raise Usage(
            f"{where}: expected a JSON object, found {_describe_json_type(value)}", hint=_ARGUMENT_FORMS_HINT
        )
    return cast("dict[str, Any]", value)


def coerce_key_values(words: Sequence[str], schema: JsonObject) -> dict[str, Any]:
    """Return the arguments of ``key=value`` words. Raises Usage, naming the key."""
    arguments: dict[str, Any] = {}
    for word in words:
        found = _ARGUMENT_PATTERN.fullmatch(word)
        if found is None:
            raise Usage(f"expected key=value, found {word[:60]!r}", hint=_ARGUMENT_FORMS_HINT)
        key, text = found["key"], found["value"]
        path, part = _resolve_key(key, SchemaNode(schema))
        holder = _find_parent(arguments, path, key)
        if not found["raw"] and _is_list_item(text, part):
            _append_item(holder, path[-1], _coerce_text(text, part.get_items(), key), key)
        else:
            _set_value(
                holder,
                path[-1],
                _parse_json(text, key) if found["raw"] else _coerce_text(text, part, key),
                key,
            )
    return arguments


# Resolving keys.


def _resolve_key(key: str, node: SchemaNode) -> tuple[KeyPath, SchemaNode]:
    """Return the steps of a key, and the schema at its end. A property name that contains dots takes
    precedence."""
    if node.has_property(key) or "." not in key:
        return (key,), node.get_property(key)
    first = node.first_key_segment(key)
    rest, end = _resolve_key(key[len(first) + 1 :], node.get_property(first))
    return (first, *rest), end


def _find_parent(arguments: dict[str, Any], path: KeyPath, key: str) -> dict[str, Any]:
    place = arguments
    for step in path[:-1]:
        below = place.setdefault(step, {})
        if not isinstance(below, dict):
            raise Usage(f"{key}: '{step}' already has a value, so it cannot contain other keys")
        place = cast("dict[str, Any]", below)
    return place


def _set_value(parent: dict[str, Any], name: str, value: Any, key: str) -> None:
    if name in parent:
        raise Usage(f"{key} was given more than once", hint="only a key that takes a list can be repeated")
    parent[name] = value


def _append_item(parent: dict[str, Any], name: str, value: Any, key: str) -> None:
    held = parent.setdefault(name, [])
    if not isinstance(held, list):
        raise Usage(f"{key} was given more than once", hint="only a key that takes a list can be repeated")
    cast("list[Any]", held).append(value)


# Converting values.


def _is_list_item(text: str, node: SchemaNode) -> bool:
    """Return whether a text is one item of a list, not the whole list as JSON, nor null."""
    types = node.allowed_types()
    if "array" not in types or not types <= {"array", "null"} or text.lstrip().startswith("["):
        return False
    return not (text == "null" and "null" in types)


def _coerce_text(text: str, node: SchemaNode, key: str) -> Any:
    try:
        return node.parse(text)
    except InvalidInput as expected:
        hint = f"{key}:=… accepts JSON" if node.allowed_types() & {"array", "object"} else None
        raise Usage(f"{key}: expected {expected}, found {text[:60]!r}", hint=hint) from None


def _parse_json(text: str, source: str) -> Any:
    try:
        return parse_json(text)
    except RecursionError:
        raise Usage(f"{source}: not valid JSON: too deeply nested") from None
    except ValueError as error:
        hint = None if source == _STDIN_LABEL else "quote it for the shell: '{\"key\": 1}'"
        raise Usage(f"{source}: not valid JSON: {error}", hint=hint) from None


def _describe_json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else "a number"
