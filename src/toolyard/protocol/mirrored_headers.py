"""HTTP headers that mirror parts of a request's body in the modern era, for both client and server."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

__all__ = [
    "NAME_PARAM_BY_METHOD",
    "PLAIN_VALUE_PATTERN",
    "HeaderParam",
    "HeaderParamError",
    "build_param_headers",
    "build_standard_headers",
    "decode_header_value",
    "encode_header_value",
    "find_header_params",
    "value_at",
]

NAME_PARAM_BY_METHOD = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_HEADER_NAME_PATTERN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
PLAIN_VALUE_PATTERN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_BASE64_VALUE_PATTERN = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_MAX_SAFE_INTEGER = 2**53 - 1
_MAX_SCHEMA_DEPTH = 64


class HeaderParamError(ValueError):
    """Raised for a tool whose ``x-mcp-header`` marks violate the specification."""


@dataclass(frozen=True, slots=True)
class HeaderParam:
    """A mirrored tool parameter: its path in the arguments, and its header."""

    path: tuple[str, ...]
    header: str


def encode_header_value(value: str) -> str:
    """Encode any text as a header value: unchanged if that is safe, otherwise as marked base64."""
    if PLAIN_VALUE_PATTERN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def decode_header_value(value: str) -> str:
    """Decode a header value. Raise ValueError for invalid marked base64."""
    match = _BASE64_VALUE_PATTERN.fullmatch(value)
    if match is None:
        return value
    try:
        return base64.b64decode(match[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("the value is not valid base64 of UTF-8 text") from None


def build_standard_headers(method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
    """Return ``Mcp-Method``, and ``Mcp-Name`` for methods that act on something named."""
    headers = {"Mcp-Method": method}
    key = NAME_PARAM_BY_METHOD.get(method)
    if key is not None and params is not None and isinstance(name := params.get(key), str):
        headers["Mcp-Name"] = encode_header_value(name)
    return headers


def find_header_params(schema: Mapping[str, Any]) -> tuple[HeaderParam, ...]:
    """Return the parameters that a tool's input schema marks with ``x-mcp-header``.

    Raise HeaderParamError for a mark that the specification forbids; the tool is then invalid over HTTP.
    """
    collected: list[HeaderParam] = []
    _collect_header_params(schema, (), True, collected, 0)
    names = [param.header.lower() for param in collected]
    if len(set(names)) != len(names):
        raise HeaderParamError("x-mcp-header names the same header twice")
    return tuple(collected)


def _collect_header_params(
    node: Any, path: tuple[str, ...], reachable: bool, collected: list[HeaderParam], depth: int
) -> None:
    if depth > _MAX_SCHEMA_DEPTH:
        return
    if isinstance(node, list):
        for item in cast("list[Any]", node):
            _collect_header_params(item, path, False, collected, depth + 1)
        return
    if not isinstance(node, dict):
        return
    schema = cast("dict[str, Any]", node)
    if "x-mcp-header" in schema:
        collected.append(_parse_header_param(schema, path, reachable))
    # A mark counts only on a property that is reached through `properties` alone: below a list or `anyOf` the
    # argument has no fixed path. `default`, `enum` and similar keywords hold values, not schemas.
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            for name, child in cast("dict[str, Any]", value).items():
                _collect_header_params(child, (*path, name), reachable, collected, depth + 1)
        elif key not in ("default", "const", "enum", "examples", "x-mcp-header"):
            _collect_header_params(value, path, False, collected, depth + 1)


def _parse_header_param(schema: Mapping[str, Any], path: tuple[str, ...], reachable: bool) -> HeaderParam:
    header = schema["x-mcp-header"]
    place = ".".join(path) or "the root"
    if not isinstance(header, str) or not _HEADER_NAME_PATTERN.fullmatch(header):
        raise HeaderParamError(f"x-mcp-header of {place} is not a valid header name")
    if not reachable or not path:
        raise HeaderParamError(f"x-mcp-header of {place} is not on a property with a fixed path")
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise HeaderParamError(f"x-mcp-header of {place} is on a type other than string, integer or boolean")
    return HeaderParam(path, f"Mcp-Param-{header}")


def build_param_headers(params: Sequence[HeaderParam], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that mirror these arguments, without those that are absent or null."""
    headers: dict[str, str] = {}
    for param in params:
        text = _format_header_text(value_at(arguments, param.path))
        if text is not None:
            headers[param.header] = encode_header_value(text)
    return headers


def value_at(arguments: object, path: tuple[str, ...]) -> object:
    """Return the argument at a path, or None."""
    value: object = arguments
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, object]", value).get(key)
    return value


def _format_header_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # Larger integers are not exact in the floats of JavaScript, so two sides could disagree about them.
    if isinstance(value, int) and abs(value) <= _MAX_SAFE_INTEGER:
        return str(value)
    return None
