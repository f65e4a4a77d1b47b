"""The native tools, called: from a model's arguments to the content of a result."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import Threads
from toolyard.agents.builtin_tools.grep import Engine, Search, grep
from toolyard.agents.builtin_tools.grep_fallback import OwnEngine
from toolyard.agents.builtin_tools.list_files import find, list_folder
from toolyard.agents.builtin_tools.path_globs import glob
from toolyard.agents.builtin_tools.ripgrep import Ripgrep, find_ripgrep
from toolyard.agents.builtin_tools.tool_definitions import (
    MOST_FOUND,
    MOST_LINES,
    MOST_MATCHES,
    NATIVE_TOOLS,
)
from toolyard.agents.builtin_tools.tool_error import NativeFailure
from toolyard.agents.builtin_tools.view_file import Content, text_block, view
from toolyard.agents.builtin_tools.web_fetch import Fetching
from toolyard.agents.builtin_tools.workspace import Workspace
from toolyard.meta.arguments import BadArgument, Given
from toolyard.types.tool import Definition

__all__ = ["NativeLimits", "NativeTools"]

log = logging.getLogger("toolyard.native")


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """``characters`` bounds a result's text, so that nothing of it has to be kept elsewhere; the rest are
    seconds."""

    characters: int = 64_000
    reading: float = 10.0
    searching: float = 20.0
    fetching: float = 30.0


class NativeTools:
    """Those that there are: without a workspace only ``web_fetch``. ``close`` ends its threads."""

    def __init__(
        self,
        workspace: Workspace | None,
        fetching: Fetching,
        limits: NativeLimits = NativeLimits(),  # noqa: B008 - frozen
        *,
        ripgrep: str | None = None,
    ) -> None:
        """``ripgrep`` is the program; None looks for it when it is first needed."""
        self._fetching = fetching
        self._limits = limits
        self._threads = Threads()
        self._ripgrep = ripgrep
        self._calls: dict[str, Callable[[Given], Awaitable[Content]]] = {"web_fetch": self._fetch}
        if workspace is not None:
            self._calls |= {
                "find_files": partial(self._find, workspace),
                "grep": partial(self._grep, workspace),
                "list_dir": partial(self._list, workspace),
                "view_file": partial(self._view, workspace),
            }
        self.definitions: Mapping[str, Definition] = {
            name: tool for name, tool in NATIVE_TOOLS.items() if name in self._calls
        }

    async def call(self, name: str, arguments: object) -> dict[str, Any]:
        """The result of a call, as it goes over the wire. Never raises, but for cancellation."""
        try:
            given = Given(self.definitions[name], arguments)
            return {"content": await self._calls[name](given)}
        except (NativeFailure, BadArgument) as error:
            return _failed(str(error))
        except Exception:
            # The boundary of the promise: a model's turn goes on, and the log says what we did wrong.
            log.exception("native tool %s", name)
            return _failed(f"{name} failed inside Toolyard; its log says why")

    def close(self) -> None:
        """End the threads. Whoever still waits is cancelled before."""
        self._threads.close()

    # The tools.

    async def _view(self, workspace: Workspace, given: Given) -> Content:
        path, offset = given.text("path"), given.number("offset", 1, 1)
        limit = given.number("limit", 1000, 1, MOST_LINES)
        work = partial(view, workspace, path, offset, limit, self._room)
        return await self._threads.run(work, self._limits.reading)

    async def _list(self, workspace: Workspace, given: Given) -> Content:
        path, limit = given.text_or_none("path") or ".", given.number("limit", 500, 1, MOST_FOUND)
        work = partial(list_folder, workspace, path, limit, self._room)
        return text_block(await self._threads.run(work, self._limits.reading))

    async def _find(self, workspace: Workspace, given: Given) -> Content:
        pattern, path = given.text("pattern"), given.text_or_none("path") or "."
        limit = given.number("limit", 200, 1, MOST_FOUND)
        work = partial(find, workspace, pattern, path, limit, self._room)
        return text_block(await self._threads.run(work, self._limits.searching))

    async def _grep(self, workspace: Workspace, given: Given) -> Content:
        only = given.text_or_none("glob")
        search = Search(
            given.text("pattern"),
            given.text_or_none("path") or ".",
            None if not only else glob(only),
            given.flag("ignore_case"),
        )
        limit = given.number("limit", 100, 1, MOST_MATCHES)
        engine = self._engine(workspace)
        seconds = self._limits.searching
        return text_block(await grep(engine, workspace, self._threads, search, limit, self._room, seconds))

    async def _fetch(self, given: Given) -> Content:
        url, offset = given.text("url"), given.number("offset", 0, 0)
        return text_block(await self._fetching.fetch(url, offset, self._limits.characters))

    @property
    def _room(self) -> int:
        """Characters, with room for what is said besides."""
        return self._limits.characters - _NOTES

    def _engine(self, workspace: Workspace) -> Engine:
        own = OwnEngine(workspace, self._threads)
        if self._ripgrep is None:
            self._ripgrep = find_ripgrep() or ""
        return Ripgrep(self._ripgrep, workspace, self._threads, own) if self._ripgrep else own


_NOTES = 500


def _failed(words: str) -> dict[str, Any]:
    return {"content": text_block(words), "isError": True}
