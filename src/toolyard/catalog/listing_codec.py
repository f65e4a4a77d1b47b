"""A listing as bytes and back, fast where it can be and exact where it must be."""

from __future__ import annotations

import gc
import json
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import cast

import orjson

from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.tool_validation import SchemaCheck, validate_tools
from toolyard.types.catalog import RawListing, ValidatedListing
from toolyard.types.tool import JsonObject

__all__ = [
    "body_hash",
    "decode_listing",
    "encode_listing",
    "has_bounded_depth",
    "parse_stored_listing",
    "validate_listing",
]


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


_GC_PAUSE_MIN_BYTES = 1024 * 1024


def body_hash(body: bytes) -> str:
    """The content hash of a written listing."""
    return sha256(body).hexdigest()


def validate_listing(
    server_id: str, listing: RawListing, schema_check: SchemaCheck | None
) -> tuple[ValidatedListing, bytes | None]:
    """The contents and the bytes to store; None for a listing that cannot be written, as hostile ones are."""
    try:
        body = encode_listing(listing)
    except ValueError:
        body = None
    judged = validate_tools(
        server_id,
        listing.tools,
        schema_check=schema_check,
        skip_depth_check=body is not None and has_bounded_depth(body),
    )
    if body is not None:
        content_hash = body_hash(body)
    else:
        hashes = "".join(definition_hash(definition) for definition in judged.definitions)
        content_hash = body_hash(hashes.encode("ascii"))
    contents = ValidatedListing(
        server_id, content_hash, listing, judged.definitions, judged.quarantined, judged.remarks
    )
    return contents, body


def parse_stored_listing(server_id: str, body: bytes, schema_check: SchemaCheck | None) -> ValidatedListing:
    """The contents of a stored listing. Raises ValueError where the bytes are none."""
    with _pause_gc(len(body)):
        listing = decode_listing(body)
        judged = validate_tools(
            server_id, listing.tools, schema_check=schema_check, skip_depth_check=has_bounded_depth(body)
        )
    return ValidatedListing(
        server_id, body_hash(body), listing, judged.definitions, judged.quarantined, judged.remarks
    )


@contextmanager
def _pause_gc(size: int) -> Generator[None]:
    """Keep the cycle collector from running over a large listing while it is read.

    It has no cycles, yet its hundreds of thousands of new objects set off full collections that take longer
    than the reading. Freezing and thawing them afterwards moves them to the old generation without a look at
    them; otherwise the next collection would pay for all. Concurrent use is harmless: only who paused the
    collector resumes it.
    """
    if size < _GC_PAUSE_MIN_BYTES or not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.unfreeze()
    finally:
        gc.enable()
