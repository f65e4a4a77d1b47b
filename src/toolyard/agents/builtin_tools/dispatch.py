"""The native tools, called: from a model's arguments to the content of a result."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import BoundedThreadPool
from toolyard.agents.builtin_tools.grep import GrepEngine, GrepQuery, grep
from toolyard.agents.builtin_tools.grep_fallback import FallbackGrepEngine
from toolyard.agents.builtin_tools.list_files import find_files, list_folder
from toolyard.agents.builtin_tools.path_globs import compile_glob
from toolyard.agents.builtin_tools.ripgrep import RipgrepEngine, find_ripgrep
from toolyard.agents.builtin_tools.tool_definitions import (
    MAX_GREP_MATCHES,
    MAX_LISTED_FILES,
    MAX_VIEWED_LINES,
    NATIVE_TOOLS,
)
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.view_file import ContentBlocks, text_block, view_file
from toolyard.agents.builtin_tools.web_fetch import PageFetcher
from toolyard.agents.builtin_tools.workspace import Workspace
from toolyard.meta.arguments import InvalidToolArgument, ToolArguments
from toolyard.types.tool import Definition

__all__ = ["NativeLimits", "NativeTools"]

log = logging.getLogger("toolyard.native")


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """``characters`` bounds a result's text, so that nothing of it has to be kept elsewhere; the rest are
    seconds."""

    max_characters: int = 64_000
    read_seconds: float = 10.0
    search_seconds: float = 20.0
    fetch_seconds: float = 30.0


class NativeTools:
    """Those that there are: without a workspace only ``web_fetch``. ``close`` ends its threads."""

    def __init__(
        self,
        workspace: Workspace | None,
        fetcher: PageFetcher,
        limits: NativeLimits = NativeLimits(),  # noqa: B008 - frozen
        *,
        ripgrep: str | None = None,
    ) -> None:
        """``ripgrep`` is the program; None looks for it when it is first needed."""
        self._fetcher = fetcher
        self._limits = limits
        self._threads = BoundedThreadPool()
        self._ripgrep = ripgrep
        self._handlers: dict[str, Callable[[ToolArguments], Awaitable[ContentBlocks]]] = {
            "web_fetch": self._fetch_page
        }
        if workspace is not None:
            self._handlers |= {
                "find_files": partial(self._find_files, workspace),
                "grep": partial(self._grep_files, workspace),
                "list_dir": partial(self._list_folder, workspace),
                "view_file": partial(self._view_file, workspace),
            }
        self.definitions: Mapping[str, Definition] = {
            name: tool for name, tool in NATIVE_TOOLS.items() if name in self._handlers
        }

    async def call(self, name: str, arguments: object) -> dict[str, Any]:
        """The result of a call, as it goes over the wire. Never raises, but for cancellation."""
        try:
            given = ToolArguments(self.definitions[name], arguments)
            return {"content": await self._handlers[name](given)}
        except (NativeToolError, InvalidToolArgument) as error:
            return _error_result(str(error))
        except Exception:
            # The boundary of the promise: a model's turn goes on, and the log says what we did wrong.
            log.exception("native tool %s", name)
            return _error_result(f"{name} failed inside Toolyard; its log says why")

    def close(self) -> None:
        """End the threads. Whoever still waits is cancelled before."""
        self._threads.close()

    # The tools.

    async def _view_file(self, workspace: Workspace, given: ToolArguments) -> ContentBlocks:
        path, offset = given.text("path"), given.number("offset", 1, 1)
        limit = given.number("limit", 1000, 1, MAX_VIEWED_LINES)
        work = partial(view_file, workspace, path, offset, limit, self._max_body_characters)
        return await self._threads.run(work, self._limits.read_seconds)

    async def _list_folder(self, workspace: Workspace, given: ToolArguments) -> ContentBlocks:
        path, limit = given.get_text("path") or ".", given.number("limit", 500, 1, MAX_LISTED_FILES)
        work = partial(list_folder, workspace, path, limit, self._max_body_characters)
        return text_block(await self._threads.run(work, self._limits.read_seconds))

    async def _find_files(self, workspace: Workspace, given: ToolArguments) -> ContentBlocks:
        pattern, path = given.text("pattern"), given.get_text("path") or "."
        limit = given.number("limit", 200, 1, MAX_LISTED_FILES)
        work = partial(find_files, workspace, pattern, path, limit, self._max_body_characters)
        return text_block(await self._threads.run(work, self._limits.search_seconds))

    async def _grep_files(self, workspace: Workspace, given: ToolArguments) -> ContentBlocks:
        only = given.get_text("glob")
        search = GrepQuery(
            given.text("pattern"),
            given.get_text("path") or ".",
            None if not only else compile_glob(only),
            given.get_bool("ignore_case"),
        )
        limit = given.number("limit", 100, 1, MAX_GREP_MATCHES)
        engine = self._select_engine(workspace)
        seconds = self._limits.search_seconds
        return text_block(
            await grep(engine, workspace, self._threads, search, limit, self._max_body_characters, seconds)
        )

    async def _fetch_page(self, given: ToolArguments) -> ContentBlocks:
        url, offset = given.text("url"), given.number("offset", 0, 0)
        return text_block(await self._fetcher.fetch(url, offset, self._limits.max_characters))

    @property
    def _max_body_characters(self) -> int:
        """Characters, with room for what is said besides."""
        return self._limits.max_characters - _NOTE_CHARACTERS

    def _select_engine(self, workspace: Workspace) -> GrepEngine:
        own = FallbackGrepEngine(workspace, self._threads)
        if self._ripgrep is None:
            self._ripgrep = find_ripgrep() or ""
        return RipgrepEngine(self._ripgrep, workspace, self._threads, own) if self._ripgrep else own


_NOTE_CHARACTERS = 500


def _error_result(words: str) -> dict[str, Any]:
    return {"content": text_block(words), "isError": True}
