"""Markdown for pages, rendered without holding up the event loop.

Short texts are rendered at once. Longer ones go to a child process with a time limit: some texts are made to
take very long, and no thread could be stopped in the middle of one. A text that takes too long is shown as it
was written. Results are kept, keyed by the text alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.worker_process import WorkerProcess
from toolyard.web.rendering.markdown import render_markdown, render_preformatted

__all__ = ["DeferredMarkdown", "MarkdownRenderer"]

log = logging.getLogger("toolyard.web")

_CHILD_START_SECONDS = 60.0
_PLACEHOLDER_PATTERN = re.compile("\x00([0-9]+)\x00")


class MarkdownRenderer:
    """Cache of rendered texts, and the child process that renders those that are not in it."""

    def __init__(
        self,
        *,
        inline_characters: int = 1_500,
        batch_characters: int = 16_000,
        batch_seconds: float = 2.0,
        page_characters: int = 500_000,
        page_seconds: float = 5.0,
        cache_characters: int = 8_000_000,
    ) -> None:
        """``inline_characters`` are rendered in this process for one page, the rest by the child.

        ``batch_seconds`` limits each request to the child, ``page_characters`` and ``page_seconds`` what one
        page gets: texts beyond are shown as they were written.
        """
        self._inline_characters = inline_characters
        self._batch_characters = batch_characters
        self._batch_seconds = batch_seconds
        self._page_characters = page_characters
        self._page_seconds = page_seconds
        self._cache_characters = cache_characters
        self._cache: OrderedDict[str, Markup] = OrderedDict()
        self._cached_characters = 0
        self._child: WorkerProcess | None = None
        self._start_task: asyncio.Task[WorkerProcess] | None = None
        self._lock = asyncio.Lock()
        self.texts_sent = 0
        """Texts that were sent to the child so far."""

    async def render(self, texts: Sequence[str]) -> list[Markup]:
        """Return the HTML of each text."""
        found = {text: self._cache[text] for text in texts if text in self._cache}
        for text in found:
            self._cache.move_to_end(text)
        missing = list(dict.fromkeys(text for text in texts if text not in found))
        if sum(map(len, missing)) <= self._inline_characters:
            for text in missing:
                found[text] = self._cache_html(text, render_markdown(text))
        else:
            found |= await self._render_in_child(list(self._take_within_page_limit(missing)))
        return [found[text] if text in found else render_preformatted(text) for text in texts]

    async def close(self) -> None:
        """End the child process."""
        async with self._lock:
            await self._end_child()

    def _take_within_page_limit(self, texts: Iterable[str]) -> Iterator[str]:
        left = self._page_characters
        for text in texts:
            left -= len(text)
            if left < 0:
                return
            yield text

    async def _render_in_child(self, texts: Sequence[str]) -> dict[str, Markup]:
        found: dict[str, Markup] = {}
        try:
            async with asyncio.timeout(self._page_seconds):
                for batch in self._split_batches(texts):
                    made = await self._render_batch(batch)
                    if made is None and len(batch) > 1:
                        # One of them is too much; the others are rendered all the same.
                        for text in batch:
                            found |= self._cache_batch([text], await self._render_batch([text]))
                    else:
                        found |= self._cache_batch(batch, made)
        except TimeoutError:
            pass
        return found

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
        if rendered is None:
            return {text: self._cache_html(text, render_preformatted(text)) for text in texts}
        return {
            text: self._cache_html(text, Markup(html)) for text, html in zip(texts, rendered, strict=True)
        }

    async def _render_batch(self, texts: Sequence[str]) -> list[str] | None:
        """Let the child render some texts; None where it failed or took too long."""
        message = json.dumps(list(texts)).encode()
        async with self._lock:
            # A child ends itself after a while: one that is gone is replaced, once.
            for is_new in (self._child is None, True):
                child = await self._ensure_child()
                if child is None:
                    return None
                self.texts_sent += len(texts)
                try:
                    async with asyncio.timeout(self._batch_seconds):
                        return json.loads(await child.send_request(message))
                except NativeToolError:
                    await self._end_child()
                    if is_new:
                        return None
                except TimeoutError:
                    await self._end_child()
                    return None
                except BaseException:
                    # Its answer must not be taken for that to the next request.
                    await self._end_child()
                    raise
        return None

    async def _ensure_child(self) -> WorkerProcess | None:
        """Return the child, started where there is none. A caller that gives up does not end the start."""
        if self._child is None:
            if self._start_task is None:
                self._start_task = asyncio.create_task(_start_child())
            try:
                self._child = await asyncio.shield(self._start_task)
            except (NativeToolError, OSError, TimeoutError) as error:
                log.warning("Markdown is shown as written: the rendering process cannot be used: %s", error)
            if self._start_task.done():
                self._start_task = None
        return self._child

    async def _end_child(self) -> None:
        starting, self._start_task = self._start_task, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await child.__aexit__(None, None, None)

    def _cache_html(self, text: str, html: Markup) -> Markup:
        if text not in self._cache:
            self._cached_characters += len(text) + len(html)
        self._cache[text] = html
        while self._cached_characters > self._cache_characters and self._cache:
            old, made = self._cache.popitem(last=False)
            self._cached_characters -= len(old) + len(made)
        return html


async def _start_child() -> WorkerProcess:
    """Start the child and wait until it has loaded what it needs."""
    child = WorkerProcess("toolyard.web.rendering.worker", with_site_packages=True)
    await child.__aenter__()
    try:
        async with asyncio.timeout(_CHILD_START_SECONDS):
            await child.send_request(b"[]")
    except BaseException:
        await child.__aexit__(None, None, None)
        raise
    return child


class DeferredMarkdown:
    """Collects the texts of a page while it is built, and puts their HTML into it afterwards."""

    def __init__(self, renderer: MarkdownRenderer) -> None:
        self._renderer = renderer
        self._texts: list[str] = []

    def __call__(self, text: str) -> Markup:
        """Return a placeholder. It holds NUL characters, which no text of a page does."""
        self._texts.append(text)
        return Markup(f"\x00{len(self._texts) - 1}\x00")

    async def fill(self, pages: Sequence[str]) -> list[str]:
        """Return the pages with the HTML in place of the placeholders. Texts are rendered once each."""
        made = await self._renderer.render(self._texts) if self._texts else []
        self._texts = []
        return [_PLACEHOLDER_PATTERN.sub(lambda place: made[int(place[1])], page) for page in pages]
