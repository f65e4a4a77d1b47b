"""A listing as bytes and back, fast where it can be and exact where it must be."""

from __future__ import annotations

import json
from typing import cast

import orjson

from toolyard.types.catalog import RawListing
from toolyard.types.tool import JsonObject

__all__ = ["decode_listing", "encode_listing", "has_bounded_depth"]

_STDLIB_JSON_MARKER = b" "
"""What the standard library wrote begins with a space, which JSON ignores. orjson would read an integer
beyond 64 bits as a float, so whoever wrote it must read it."""


def encode_listing(listing: RawListing) -> bytes:
    """The listing as JSON, keys in the server's order, without its cache hints.

    Raises ValueError for what is no JSON or is nested too deeply to be written.
    """
    value = {
        "tools": listing.tools,
        "prompts": listing.prompts,
        "resources": listing.resources,
        "resourceTemplates": listing.resource_templates,
        "serverInfo": dict(listing.server_info),
        "capabilities": dict(listing.capabilities),
        "protocolVersion": listing.protocol_version,
        "instructions": listing.instructions,
    }
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        return _STDLIB_JSON_MARKER + json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, RecursionError) as error:
        raise ValueError(f"a listing that cannot be written as JSON: {error}") from None


def has_bounded_depth(body: bytes) -> bool:
    """Whether the bytes prove that no tool in them is nested deeper than ``definitions.MAX_DEPTH``."""
    return not body.startswith(_STDLIB_JSON_MARKER)


def decode_listing(body: bytes) -> RawListing:
    """The listing that ``encode`` wrote. Raises ValueError for anything else."""
    try:
        value: object = json.loads(body) if body.startswith(_STDLIB_JSON_MARKER) else orjson.loads(body)
    except RecursionError:
        raise ValueError("a listing that is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("a stored listing that is no object")
    fields = cast("dict[str, object]", value)
    return RawListing(
        tools=_read_array(fields, "tools"),
        prompts=_read_array(fields, "prompts"),
        resources=_read_array(fields, "resources"),
        resource_templates=_read_array(fields, "resourceTemplates"),
        server_info=_read_object(fields, "serverInfo"),
        capabilities=_read_object(fields, "capabilities"),
        protocol_version=_read_text(fields, "protocolVersion"),
        instructions=_read_text(fields, "instructions"),
    )


def _read_array(fields: dict[str, object], key: str) -> tuple[object, ...]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise ValueError(f"a stored listing whose {key} is no array")
    return tuple(cast("list[object]", value))


def _read_object(fields: dict[str, object], key: str) -> JsonObject:
    value = fields.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"a stored listing whose {key} is no object")
    return cast("JsonObject", value)


def _read_text(fields: dict[str, object], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a stored listing whose {key} is no text")
    return value
