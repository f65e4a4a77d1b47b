"""Rendering of Markdown for pages without blocking the event loop.

Short texts are rendered at once, longer ones in a child process with a time limit: a hostile text may take
very long, and a thread cannot be stopped. Texts that exceed the limit are shown unrendered. Results are
cached by text.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from toolyard.web.rendering.child import ChildUnavailable, RenderingProcess
from toolyard.web.rendering.markdown import render_markdown, render_preformatted

__all__ = ["DeferredMarkdown", "MarkdownRenderer"]

_PLACEHOLDER_PATTERN = re.compile("\x00([0-9]+)\x00")


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
        return [html_by_text[text] if text in html_by_text else render_preformatted(text) for text in texts]

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
        rendered = await self._renderer.render(self._texts) if self._texts else []
        self._texts = []
        return [_PLACEHOLDER_PATTERN.sub(lambda match: rendered[int(match[1])], page) for page in pages]
