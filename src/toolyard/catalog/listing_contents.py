"""From a listing, or from its stored bytes, to contents that can be used."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256

from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.listing_codec import decode, depth_known, encode
from toolyard.catalog.tool_validation import Inspect, judge
from toolyard.types.catalog import Contents, Listing

__all__ = ["body_hash", "judge_body", "judge_listing"]

_LARGE = 1024 * 1024


def body_hash(body: bytes) -> str:
    """The content hash of a written listing."""
    return sha256(body).hexdigest()


def judge_listing(server_id: str, listing: Listing, inspect: Inspect | None) -> tuple[Contents, bytes | None]:
    """The contents and the bytes to store; None for a listing that cannot be written, as hostile ones are."""
    try:
        body = encode(listing)
    except ValueError:
        body = None
    judged = judge(
        server_id, listing.tools, inspect=inspect, depth_known=body is not None and depth_known(body)
    )
    if body is not None:
        content_hash = body_hash(body)
    else:
        hashes = "".join(definition_hash(definition) for definition in judged.definitions)
        content_hash = body_hash(hashes.encode("ascii"))
    contents = Contents(
        server_id, content_hash, listing, judged.definitions, judged.quarantined, judged.remarks
    )
    return contents, body


def judge_body(server_id: str, body: bytes, inspect: Inspect | None) -> Contents:
    """The contents of a stored listing. Raises ValueError where the bytes are none."""
    with _paused_collection(len(body)):
        listing = decode(body)
        judged = judge(server_id, listing.tools, inspect=inspect, depth_known=depth_known(body))
    return Contents(
        server_id, body_hash(body), listing, judged.definitions, judged.quarantined, judged.remarks
    )


@contextmanager
def _paused_collection(size: int) -> Generator[None]:
    """Keep the cycle collector from running over a large listing while it is read.

    It has no cycles, yet its hundreds of thousands of new objects set off full collections that take longer
    than the reading. Freezing and thawing them afterwards moves them to the old generation without a look at
    them; otherwise the next collection would pay for all. Concurrent use is harmless: only who paused the
    collector resumes it.
    """
    if size < _LARGE or not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.unfreeze()
    finally:
        gc.enable()
