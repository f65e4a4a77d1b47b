"""From a listing, or from its stored bytes, to contents that can be used."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256

from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.listing_codec import decode_listing, encode_listing, has_bounded_depth
from toolyard.catalog.tool_validation import SchemaCheck, validate_tools
from toolyard.types.catalog import RawListing, ValidatedListing

__all__ = ["body_hash", "parse_stored_listing", "validate_listing"]

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
