"""Lists that come in pages: followed to the end, with a guard against loops and floods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from toolyard.errors import BadAnswer
from toolyard.protocol.mirrored_headers import HeaderParam, HeaderParamError, find_header_params

__all__ = ["PagedList", "collect_pages", "extract_header_params"]

_MAX_PAGES = 1000
_MAX_ITEMS = 100_000


@dataclass(slots=True)
class PagedList:
    """Everything a server lists of one kind, as it published it."""

    items: list[dict[str, Any]]
    ttl_ms: int | None = None
    scope: Literal["public", "private"] = "private"
    warnings: list[str] = field(default_factory=list[str])

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self.items


async def collect_pages(
    method: str, key: str, fetch_page: Callable[[Mapping[str, Any] | None], Awaitable[Mapping[str, Any]]]
) -> PagedList:
    """All pages of one list. A cursor that repeats, or no end, stops with a warning and what there is."""
    listing = PagedList([], scope="public")
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch_page({"cursor": cursor} if cursor is not None else None)
        items = page.get(key)
        if not isinstance(items, list):
            raise BadAnswer(f"answered {method} without a list of {key}")
        entries = cast("list[Any]", items)
        whole = [cast("dict[str, Any]", item) for item in entries if isinstance(item, dict)]
        if len(whole) < len(entries):
            listing.warnings.append(f"{method}: an entry that is no object was left out")
        listing.items += whole
        _merge_cache_hints(listing, page)
        following = page.get("nextCursor")
        if not isinstance(following, str):
            return listing
        if following in seen:
            listing.warnings.append(f"{method} repeats the cursor {following[:60]!r}; stopped there")
            return listing
        if len(listing.items) >= _MAX_ITEMS:
            break
        seen.add(following)
        cursor = following
    listing.warnings.append(f"{method} does not end; stopped after {len(listing.items)} entries")
    return listing


def _merge_cache_hints(listing: PagedList, page: Mapping[str, Any]) -> None:
    """The cache hints of all pages together: the shortest time, and private if any page is."""
    ttl = page.get("ttlMs")
    if isinstance(ttl, int) and not isinstance(ttl, bool):
        ttl = max(ttl, 0)
        listing.ttl_ms = ttl if listing.ttl_ms is None else min(listing.ttl_ms, ttl)
    if page.get("cacheScope") != "public":
        listing.scope = "private"


def extract_header_params(listing: PagedList) -> dict[str, tuple[HeaderParam, ...]]:
    """Which tools mirror parameters into headers. A tool that does it wrongly is taken off the list."""
    rules: dict[str, tuple[HeaderParam, ...]] = {}
    kept: list[dict[str, Any]] = []
    for tool in listing.items:
        schema, name = tool.get("inputSchema"), tool.get("name")
        try:
            params = find_header_params(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else ()
        except HeaderParamError as error:
            listing.warnings.append(f"tool {str(name)[:100]!r} was left out: {error}")
            continue
        if params and isinstance(name, str):
            rules[name] = params
        kept.append(tool)
    listing.items = kept
    return rules
