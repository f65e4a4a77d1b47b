"""Collection of the pages of a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolyard.clients.pagination import collect_pages


async def test_entries_beyond_the_limit_are_left_out_with_a_warning_and_no_page_is_requested_after() -> None:
    cursors: list[str | None] = []

    async def fetch_page(params: Mapping[str, Any] | None) -> dict[str, Any]:
        cursors.append(None if params is None else params["cursor"])
        return {"tools": [{"name": f"{len(cursors)}-{n}"} for n in range(4)], "nextCursor": str(len(cursors))}

    listing = await collect_pages("tools/list", "tools", fetch_page, max_items=6)
    assert [item["name"] for item in listing.items] == ["1-0", "1-1", "1-2", "1-3", "2-0", "2-1"]
    assert listing.warnings == ["tools/list has more than 6 entries; the others were left out"]
    assert cursors == [None, "1"]


async def test_no_page_is_requested_after_those_so_far_take_too_many_bytes() -> None:
    """The third page exceeds the limit with one long text, with many small values, or with its cursor."""
    empty_values: list[Any] = [[] for _ in range(100)]
    for text, values, cursor in (("x" * 4_000, [], ""), ("", empty_values, ""), ("", [], "c" * 4_000)):
        pages = 0

        async def fetch_page(
            params: Mapping[str, Any] | None,
            text: str = text,
            values: list[Any] = values,
            cursor: str = cursor,
        ) -> dict[str, Any]:
            nonlocal pages
            pages += 1
            item = {"name": str(pages), "description": text, "inputSchema": {"enum": values}}
            return {"tools": [item], "nextCursor": f"{pages}{cursor}"}

        listing = await collect_pages("tools/list", "tools", fetch_page, max_bytes=12_000)
        assert pages == len(listing.items) < 4
        assert listing.warnings == [f"tools/list takes more than 12,000 bytes; stopped after {pages} entries"]


async def test_a_listing_has_the_shortest_ttl_of_its_pages_and_is_public_only_if_all_are() -> None:
    for hints, ttl_ms, scope in (
        (({"ttlMs": 60_000, "cacheScope": "public"}, {"cacheScope": "public"}, {"ttlMs": 5}), 5, "private"),
        (({"ttlMs": -1, "cacheScope": "public"}, {"ttlMs": 7, "cacheScope": "public"}), 0, "public"),
        (({"ttlMs": True, "cacheScope": "PUBLIC"}, {"ttlMs": "9"}), None, "private"),
    ):
        pages = iter(hints)
        hint_count = len(hints)

        async def fetch_page(params: Mapping[str, Any] | None, pages: Any = pages) -> dict[str, Any]:
            nonlocal hint_count
            hint_count -= 1
            return {"tools": [], **next(pages), **({"nextCursor": str(hint_count)} if hint_count else {})}

        listing = await collect_pages("tools/list", "tools", fetch_page)
        assert (listing.ttl_ms, listing.scope) == (ttl_ms, scope)
