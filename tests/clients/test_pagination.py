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
