"""Follows paginated lists to their end, with protection against cursor loops and endless lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from toolyard.errors import BadAnswer
from toolyard.protocol.mirrored_headers import HeaderParam, HeaderParamError, find_header_params
from toolyard.results.json_size import estimate_characters

__all__ = ["PagedList", "collect_pages", "extract_header_params"]

_MAX_PAGES = 1000
_MAX_ITEMS = 10_000
"""Maximum number of items of one list; further ones are left out. Names, policy and search handle all items
of a caller at once."""
_MAX_LIST_BYTES = 100_000_000
"""Approximate memory that the pages of one list may take together. A single page is limited as a message."""
_BYTES_PER_VALUE = 64


@dataclass(slots=True)
class PagedList:
    """All items of one list of a server, as published, with the cache hints of its pages."""

    items: list[dict[str, Any]]
    ttl_ms: int | None = None
    scope: Literal["public", "private"] = "private"
    warnings: list[str] = field(default_factory=list[str])


async def collect_pages(
    method: str,
    key: str,
    fetch_page: Callable[[Mapping[str, Any] | None], Awaitable[Mapping[str, Any]]],
    *,
    max_items: int = _MAX_ITEMS,
    max_bytes: int = _MAX_LIST_BYTES,
) -> PagedList:
    """Fetch all pages of one list. A repeated cursor, an endless list, or pages that take more than
    ``max_bytes`` together stop with a warning and the items so far; items beyond ``max_items`` are left out.
    Raise BadAnswer for a page without a list under ``key``."""
    listing = PagedList([], scope="public")
    remaining_bytes = max_bytes
    seen_cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch_page({"cursor": cursor} if cursor is not None else None)
        items = page.get(key)
        if not isinstance(items, list):
            raise BadAnswer(f"answered {method} without a list of {key}")
        entries = cast("list[Any]", items)
        objects = [cast("dict[str, Any]", item) for item in entries if isinstance(item, dict)]
        if len(objects) < len(entries):
            listing.warnings.append(f"{method}: an entry that is not an object was left out")
        listing.items += objects
        _merge_cache_hints(listing, page)
        if len(listing.items) > max_items:
            listing.warnings.append(f"{method} has more than {max_items:,} entries; the others were left out")
            del listing.items[max_items:]
            return listing
        next_cursor = page.get("nextCursor")
        if not isinstance(next_cursor, str):
            return listing
        remaining_bytes -= estimate_characters(page, remaining_bytes, per_value=_BYTES_PER_VALUE)
        if remaining_bytes < 0:
            listing.warnings.append(
                f"{method} takes more than {max_bytes:,} bytes; stopped after {len(listing.items):,} entries"
            )
            return listing
        if next_cursor in seen_cursors:
            listing.warnings.append(f"{method} repeats the cursor {next_cursor[:60]!r}; stopped there")
            return listing
        seen_cursors.add(next_cursor)
        cursor = next_cursor
    listing.warnings.append(f"{method} does not end; stopped after {len(listing.items)} entries")
    return listing


def _merge_cache_hints(listing: PagedList, page: Mapping[str, Any]) -> None:
    """Combine the cache hints of all pages: the shortest TTL, and private if any page is private."""
    ttl = page.get("ttlMs")
    if isinstance(ttl, int) and not isinstance(ttl, bool):
        ttl = max(ttl, 0)
        listing.ttl_ms = ttl if listing.ttl_ms is None else min(listing.ttl_ms, ttl)
    if page.get("cacheScope") != "public":
        listing.scope = "private"


def extract_header_params(listing: PagedList) -> dict[str, tuple[HeaderParam, ...]]:
    """Return the header rules of each tool with mirrored parameters. Remove tools with invalid rules from the
    listing, as the specification requires, with a warning."""
    rules: dict[str, tuple[HeaderParam, ...]] = {}
    valid_tools: list[dict[str, Any]] = []
    for tool in listing.items:
        schema, name = tool.get("inputSchema"), tool.get("name")
        try:
            params = find_header_params(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else ()
        except HeaderParamError as error:
            listing.warnings.append(f"tool {str(name)[:100]!r} was left out: {error}")
            continue
        if params and isinstance(name, str):
            rules[name] = params
        valid_tools.append(tool)
    listing.items = valid_tools
    return rules
