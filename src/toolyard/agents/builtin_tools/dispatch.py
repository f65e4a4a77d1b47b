"""Run built-in tools: from a model's arguments to the content of a result."""

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
from toolyard.workers.worker_process import WorkerFailed

__all__ = ["NativeLimits", "NativeTools"]

log = logging.getLogger("toolyard.native")


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """Limits of the tools: the characters of a result's text, so that it need not be stored separately,
    and timeouts.
    """

    max_characters: int = 64_000
    read_seconds: float = 10.0
    search_seconds: float = 20.0
    fetch_seconds: float = 30.0


class NativeTools:
    """The available tools: without a workspace only ``web_fetch``. ``close`` ends its threads."""

    def __init__(
        self,
        workspace: Workspace | None,
        fetcher: PageFetcher,
        limits: NativeLimits = NativeLimits(),  # noqa: B008 - frozen
        *,
        ripgrep: str | None = None,
    ) -> None:
        """``ripgrep`` is the path of the program; None searches for it on first use."""
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
        """Return the result of a call as sent to the client. Raises nothing except on cancellation."""
        try:
            tool_arguments = ToolArguments(self.definitions[name], arguments)
            return {"content": await self._handlers[name](tool_arguments)}
        except (NativeToolError, WorkerFailed, InvalidToolArgument) as error:
            return _error_result(str(error))
        except Exception:
            # Boundary: this method promises not to raise. The model's turn continues, and the log has the
            # details.
            log.exception("built-in tool %s failed", name)
            return _error_result(f"{name} failed inside Toolyard; see Toolyard's log")

    def close(self) -> None:
        """End the threads. Running calls must be cancelled before."""
        self._threads.close()

    # The tools.

    async def _view_file(self, workspace: Workspace, tool_arguments: ToolArguments) -> ContentBlocks:
        path, offset = tool_arguments.require_text("path"), tool_arguments.get_int("offset", 1, 1)
        limit = tool_arguments.get_int("limit", 1000, 1, MAX_VIEWED_LINES)
        work = partial(view_file, workspace, path, offset, limit, self._max_body_characters)
        return await self._threads.run(work, self._limits.read_seconds)

    async def _list_folder(self, workspace: Workspace, tool_arguments: ToolArguments) -> ContentBlocks:
        path, limit = (
            tool_arguments.get_text("path") or ".",
            tool_arguments.get_int("limit", 500, 1, MAX_LISTED_FILES),
        )
        work = partial(list_folder, workspace, path, limit, self._max_body_characters)
        return text_block(await self._threads.run(work, self._limits.read_seconds))

    async def _find_files(self, workspace: Workspace, tool_arguments: ToolArguments) -> ContentBlocks:
        pattern, path = tool_arguments.require_text("pattern"), tool_arguments.get_text("path") or "."
        limit = tool_arguments.get_int("limit", 200, 1, MAX_LISTED_FILES)
        work = partial(find_files, workspace, pattern, path, limit, self._max_body_characters)
        return text_block(await self._threads.run(work, self._limits.search_seconds))

    async def _grep_files(self, workspace: Workspace, tool_arguments: ToolArguments) -> ContentBlocks:
        glob = tool_arguments.get_text("glob")
        query = GrepQuery(
            tool_arguments.require_text("pattern"),
            tool_arguments.get_text("path") or ".",
            None if not glob else compile_glob(glob),
            tool_arguments.get_bool("ignore_case"),
        )
        limit = tool_arguments.get_int("limit", 100, 1, MAX_GREP_MATCHES)
        engine = self._select_engine(workspace)
        seconds = self._limits.search_seconds
        return text_block(
            await grep(engine, workspace, self._threads, query, limit, self._max_body_characters, seconds)
        )

    async def _fetch_page(self, tool_arguments: ToolArguments) -> ContentBlocks:
        url, offset = tool_arguments.require_text("url"), tool_arguments.get_int("offset", 0, 0)
        return text_block(await self._fetcher.fetch(url, offset, self._limits.max_characters))

    @property
    def _max_body_characters(self) -> int:
        """Maximum characters of a result's body, leaving space for notes."""
        return self._limits.max_characters - _NOTE_CHARACTERS

    def _select_engine(self, workspace: Workspace) -> GrepEngine:
        fallback = FallbackGrepEngine(workspace, self._threads)
        if self._ripgrep is None:
            self._ripgrep = find_ripgrep() or ""
        return RipgrepEngine(self._ripgrep, workspace, self._threads, fallback) if self._ripgrep else fallback


_NOTE_CHARACTERS = 500


def _error_result(words: str) -> dict[str, Any]:
    return {"content": text_block(words), "isError": True}
