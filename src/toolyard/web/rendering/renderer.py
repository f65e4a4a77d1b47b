"""Rendering of Markdown and of results for pages without blocking the event loop.

Short texts are rendered at once, longer ones in a child process with a time limit: a hostile text may take
very long, a thread cannot be stopped, and reading megabytes of JSON keeps other threads from running.
Markdown that exceeds the limit is shown unrendered, a result as text. Rendered Markdown is cached.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson
from markupsafe import Markup

from toolyard.web.rendering.markdown import render_markdown, render_preformatted
from toolyard.web.rendering.result_view import MAX_JSON_CHARACTERS, ResultQuery, render_result
from toolyard.workers.worker_process import WorkerFailed, WorkerProcess

__all__ = ["ChildUnavailable", "DeferredMarkdown", "MarkdownRenderer", "RenderingProcess", "ResultRenderer"]

log = logging.getLogger("toolyard.web")

_CHILD_START_SECONDS = 60.0
_MAX_INLINE_PLACEHOLDERS = 1_000
"""Placeholders that are filled in the event loop."""
_PLACEHOLDER_PATTERN = re.compile("\x00([0-9]+)\x00")


class ChildUnavailable(Exception):
    """Raised if the child process cannot be started."""


class RenderingProcess:
    """A child process that is started on first use, and replaced if it ends or is stuck."""

    def __init__(self) -> None:
        self._child: WorkerProcess | None = None
        self._start_task: asyncio.Task[WorkerProcess] | None = None
        # The child handles one request at a time, and responses carry no ids.
        self._lock = asyncio.Lock()

    async def request(self, request: dict[str, Any], seconds: float) -> bytes | None:
        """Return the child's response. Return None if it failed or took too long.

        Raises ChildUnavailable.
        """
        message = _encode(request)
        async with self._lock:
            # An idle child exits after a while, so a lost child is replaced once.
            for is_new in (self._child is None, True):
                child = await self._ensure_child()
                if child is None:
                    raise ChildUnavailable
                try:
                    async with asyncio.timeout(seconds):
                        return await child.send_request(message)
                except WorkerFailed:
                    await self._end_child()
                    if is_new:
                        return None
                except TimeoutError:
                    await self._end_child()
                    return None
                except BaseException:
                    # Cancelled: the late response must not be taken for that to the next request.
                    await self._end_child()
                    raise
        return None

    async def close(self) -> None:
        """End the child process."""
        async with self._lock:
            await self._end_child()

    async def _ensure_child(self) -> WorkerProcess | None:
        """Return the child, starting it if necessary, or None if it cannot be started.

        Cancellation of the caller does not interrupt the start, which the next caller continues to await.
        """
        if self._child is None:
            if self._start_task is None:
                self._start_task = asyncio.create_task(_start_child())
            try:
                self._child = await asyncio.shield(self._start_task)
            except (WorkerFailed, OSError, TimeoutError) as error:
                log.warning(
                    "Texts are shown unrendered, because the rendering process failed to start: %s", error
                )
            if self._start_task.done():
                self._start_task = None
        return self._child

    async def _end_child(self) -> None:
        start_task, self._start_task = self._start_task, None
        if start_task is not None:
            start_task.cancel()
            await asyncio.gather(start_task, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await child.__aexit__(None, None, None)


def _encode(request: dict[str, Any]) -> bytes:
    try:
        # Fast, because it runs in the event loop.
        return orjson.dumps(request)
    except TypeError:
        # Lone surrogates.
        return json.dumps(request).encode()


async def _start_child() -> WorkerProcess:
    """Start the child and wait until it has loaded its modules."""
    child = WorkerProcess("toolyard.web.rendering.worker", with_site_packages=True)
    await child.__aenter__()
    try:
        async with asyncio.timeout(_CHILD_START_SECONDS):
            await child.send_request(b"{}")
    except BaseException:
        await child.__aexit__(None, None, None)
        raise
    return child


# Markdown.


class MarkdownRenderer:
    """Cache of rendered texts, with a child process that renders missing ones."""

    def __init__(
        self,
        process: RenderingProcess | None = None,
        *,
        inline_characters: int = 1_500,
        batch_characters: int = 16_000,
        batch_seconds: float = 2.0,
        page_characters: int = 500_000,
        page_seconds: float = 5.0,
        cache_characters: int = 8_000_000,
    ) -> None:
        """Create a renderer. The child process, its own if none is given, is started on first use.

        A page with at most ``inline_characters`` of missing texts is rendered in this process. ``batch_…``
        limit each request to the child, ``page_…`` the work for one page: texts beyond are shown unrendered.
        """
        self._inline_characters = inline_characters
        self._batch_characters = batch_characters
        self._batch_seconds = batch_seconds
        self._page_characters = page_characters
        self._page_seconds = page_seconds
        self._cache_characters = cache_characters
        self._cache: OrderedDict[str, Markup] = OrderedDict()
        self._cached_characters = 0
        self._process = process or RenderingProcess()
        self.texts_sent = 0
        """Number of texts sent to the child so far."""

    async def render(self, texts: Sequence[str]) -> list[Markup]:
        """Return the HTML of each text, preformatted if it could not be rendered in time."""
        html_by_text = {text: self._cache[text] for text in texts if text in self._cache}
        for text in html_by_text:
            self._cache.move_to_end(text)
        missing = list(dict.fromkeys(text for text in texts if text not in html_by_text))
        if sum(map(len, missing)) <= self._inline_characters:
            for text in missing:
                html_by_text[text] = self._cache_html(text, render_markdown(text))
        else:
            html_by_text |= await self._render_in_child(list(self._take_within_page_limit(missing)))
            unrendered = [text for text in missing if text not in html_by_text]
            if unrendered:
                # In a thread: to escape megabytes takes time.
                html_by_text |= await asyncio.to_thread(
                    lambda: {text: render_preformatted(text) for text in unrendered}
                )
        return [html_by_text[text] for text in texts]

    async def close(self) -> None:
        """End the child process."""
        await self._process.close()

    def _take_within_page_limit(self, texts: Iterable[str]) -> Iterator[str]:
        remaining = self._page_characters
        for text in texts:
            remaining -= len(text)
            if remaining < 0:
                return
            yield text

    async def _render_in_child(self, texts: Sequence[str]) -> dict[str, Markup]:
        html_by_text: dict[str, Markup] = {}
        try:
            async with asyncio.timeout(self._page_seconds):
                for batch in self._split_batches(texts):
                    rendered = await self._render_batch(batch)
                    if rendered is None and len(batch) > 1:
                        # One text failed or took too long: render the others on their own.
                        for text in batch:
                            html_by_text |= self._cache_batch([text], await self._render_batch([text]))
                    else:
                        html_by_text |= self._cache_batch(batch, rendered)
        except (TimeoutError, ChildUnavailable):
            # The time of the page is over, or the next page may find a child that starts. Texts without a
            # result are shown unrendered.
            pass
        return html_by_text

    def _split_batches(self, texts: Iterable[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        length = 0
        for text in texts:
            if batch and length + len(text) > self._batch_characters:
                yield batch
                batch, length = [], 0
            batch.append(text)
            length += len(text)
        if batch:
            yield batch

    def _cache_batch(self, texts: Sequence[str], rendered: Sequence[str] | None) -> dict[str, Markup]:
        # A failed text is cached as well, so that a hostile one costs its time once.
        if rendered is None:
            return {text: self._cache_html(text, render_preformatted(text)) for text in texts}
        return {
            text: self._cache_html(text, Markup(html)) for text, html in zip(texts, rendered, strict=True)
        }

    async def _render_batch(self, texts: Sequence[str]) -> list[str] | None:
        """Render texts in the child. Return None if it failed or took too long.

        Raises ChildUnavailable.
        """
        self.texts_sent += len(texts)
        response = await self._process.request({"markdown": list(texts)}, self._batch_seconds)
        return None if response is None else json.loads(response)

    def _cache_html(self, text: str, html: Markup) -> Markup:
        if text not in self._cache:
            self._cached_characters += len(text) + len(html)
        self._cache[text] = html
        while self._cached_characters > self._cache_characters and self._cache:
            old_text, old_html = self._cache.popitem(last=False)
            self._cached_characters -= len(old_text) + len(old_html)
        return html


class DeferredMarkdown:
    """Collects the Markdown of a page while it is built, and inserts the HTML afterwards."""

    def __init__(self, renderer: MarkdownRenderer) -> None:
        self._renderer = renderer
        self._texts: list[str] = []

    def __call__(self, text: str) -> Markup:
        """Return a placeholder, delimited by NUL characters, which never occur in a page."""
        self._texts.append(text)
        return Markup(f"\x00{len(self._texts) - 1}\x00")

    async def fill(self, pages: Sequence[str]) -> list[str]:
        """Return the pages with all placeholders replaced. Each text is rendered once."""
        if not self._texts:
            return list(pages)
        rendered = await self._renderer.render(self._texts)
        self._texts = []
        if len(rendered) <= _MAX_INLINE_PLACEHOLDERS:
            return _fill_placeholders(pages, rendered)
        return await asyncio.to_thread(_fill_placeholders, pages, rendered)


def _fill_placeholders(pages: Sequence[str], rendered: Sequence[Markup]) -> list[str]:
    return [_PLACEHOLDER_PATTERN.sub(lambda match: rendered[int(match[1])], page) for page in pages]


# Results.


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
