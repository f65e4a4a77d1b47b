"""Rendering of results for pages without blocking the event loop.

Short results are rendered at once, longer ones in the child process with a time limit: reading megabytes of
JSON takes long, and keeps other threads from running. A result that exceeds the limit is shown as text.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

from markupsafe import Markup

from toolyard.web.rendering.child import ChildUnavailable, RenderingProcess
from toolyard.web.rendering.result_view import MAX_JSON_CHARACTERS, ResultQuery, render_result

__all__ = ["ResultRenderer"]


class ResultRenderer:
    """Renders parts of results, in the child process if they are long."""

    def __init__(
        self, process: RenderingProcess, *, inline_characters: int = 8_000, seconds: float = 4.0
    ) -> None:
        self._process = process
        self._inline_characters = inline_characters
        self._seconds = seconds

    async def render(self, query: ResultQuery) -> Markup:
        """Return the HTML of a part of a result."""
        length = len(query.text) + len(query.structured)
        if length <= self._inline_characters:
            return render_result(query)
        if length <= 2 * MAX_JSON_CHARACTERS:
            response = await self._request("result", query)
            if response is not None:
                return Markup(response.decode())
        # In a thread: to escape hidden characters takes time.
        return await asyncio.to_thread(render_result, replace(query, only_text=True))

    async def write_csv(self, query: ResultQuery) -> bytes:
        """Return the table of a result as a CSV file; empty if there is none or it is too large."""
        if len(query.text) + len(query.structured) > 2 * MAX_JSON_CHARACTERS:
            return b""
        return await self._request("csv", query) or b""

    async def _request(self, kind: str, query: ResultQuery) -> bytes | None:
        try:
            return await self._process.request({kind: asdict(query)}, self._seconds)
        except ChildUnavailable:
            return None
