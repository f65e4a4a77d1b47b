"""Pages of long lists. A cursor encodes the position of the next page and is opaque to clients."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.protocol.constants import INVALID_PARAMS

__all__ = ["PAGE_SIZE", "paginate_items"]

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
