"""Serialization of listings. Uses orjson where it is exact, and the standard library otherwise."""

from __future__ import annotations

import gc
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import cast

import orjson

from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.tool_validation import MAX_TOOL_BYTES, SchemaCheck, validate_tools
from toolyard.types.tool import Definition, JsonObject, RawListing, ValidatedListing

__all__ = [
    "body_hash",
    "decode_listing",
    "encode_listing",
    "has_bounded_depth",
    "parse_stored_listing",
    "validate_listing",
]


_STDLIB_JSON_MARKER = b" "
"""First byte of a body written by the standard library; JSON ignores it. Such a body must be read by the
standard library too, since orjson reads integers beyond 64 bits as floats."""


def encode_listing(listing: RawListing) -> bytes:
    """Return the listing as JSON, keys in the server's order, without its cache hints.

    Raise ValueError if a value is not JSON or is nested too deeply.
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
        raise ValueError(
            f"the list of tools, prompts and resources is not JSON serializable: {error}"
        ) from None


def has_bounded_depth(body: bytes) -> bool:
    """Return True if no tool in the body can be nested deeper than ``tool_validation.MAX_NESTING_LEVELS``.

    orjson refuses to write deeper values, so a body written by it needs no further check.
    """
    return not body.startswith(_STDLIB_JSON_MARKER)


def decode_listing(body: bytes) -> RawListing:
    """Return the listing written by ``encode_listing``. Raise ValueError for other input."""
    try:
        value: object = json.loads(body) if body.startswith(_STDLIB_JSON_MARKER) else orjson.loads(body)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("the JSON is not an object")
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
        raise ValueError(f"'{key}' is not an array")
    return tuple(cast("list[object]", value))


def _read_object(fields: dict[str, object], key: str) -> JsonObject:
    value = fields.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"'{key}' is not an object")
    return cast("JsonObject", value)


def _read_text(fields: dict[str, object], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"'{key}' is not a string")
    return value


_GC_PAUSE_MIN_BYTES = 1024 * 1024


def body_hash(body: bytes) -> str:
    """Return the content hash of an encoded listing."""
    return sha256(body).hexdigest()


def validate_listing(
    server_id: str, listing: RawListing, schema_check: SchemaCheck | None
) -> tuple[ValidatedListing, bytes | None]:
    """Validate a fetched listing and return it with the bytes to store.

    The bytes are None if the listing cannot be written as JSON. Only hostile servers send such listings.
    """
    try:
        body = encode_listing(listing)
    except ValueError:
        body = None
    validated = validate_tools(
        server_id,
        listing.tools,
        schema_check=schema_check,
        skip_depth_check=body is not None and has_bounded_depth(body),
        skip_size_check=body is not None and len(body) <= MAX_TOOL_BYTES,
    )
    if body is not None:
        _share_equal_parameters(validated.definitions, body)
        content_hash = body_hash(body)
    else:
        hashes = "".join(definition_hash(definition) for definition in validated.definitions)
        content_hash = body_hash(hashes.encode("ascii"))
    contents = ValidatedListing(
        server_id, content_hash, listing, validated.definitions, validated.quarantined, validated.remarks
    )
    return contents, body


def parse_stored_listing(server_id: str, body: bytes, schema_check: SchemaCheck | None) -> ValidatedListing:
    """Decode and validate a stored listing. Raise ValueError if the bytes are not a listing."""
    with _pause_gc(len(body)):
        listing = decode_listing(body)
        validated = validate_tools(
            server_id,
            listing.tools,
            schema_check=schema_check,
            skip_depth_check=has_bounded_depth(body),
            skip_size_check=len(body) <= MAX_TOOL_BYTES,
        )
        _share_equal_parameters(validated.definitions, body)
    return ValidatedListing(
        server_id, body_hash(body), listing, validated.definitions, validated.quarantined, validated.remarks
    )


def _share_equal_parameters(definitions: Sequence[Definition], body: bytes) -> None:
    """Keep equal parameters of the tools of a listing in memory once.

    Many parameters occur in most tools of a server, and decoded ones take four times their size as JSON.
    """
    if body.startswith(_STDLIB_JSON_MARKER):
        return
    schemas: dict[bytes, object] = {}
    for definition in definitions:
        properties = cast("dict[str, object]", definition.input_schema.get("properties", {}))
        for name, schema in properties.items():
            properties[name] = schemas.setdefault(orjson.dumps(schema), schema)


@contextmanager
def _pause_gc(size: int) -> Generator[None]:
    """Disable the cyclic garbage collector while a large listing is parsed.

    Parsing allocates hundreds of thousands of objects without cycles, which triggers full collections that
    take longer than the parsing.
    """
    # Concurrent use is safe: only the call that disabled the collector enables it again.
    if size < _GC_PAUSE_MIN_BYTES or not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
        # Moves all objects to the oldest generation without traversing them. Otherwise the next collection of
        # the young generation would traverse the whole listing.
        gc.freeze()
        gc.unfreeze()
    finally:
        gc.enable()
