"""``SyncToolyard``: a blocking facade that runs a ``Toolyard`` on an event loop in a background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from toolyard.catalog.lock import Change
from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import Unreachable
from toolyard.types.decision import Decision
from toolyard.types.result import Result
from toolyard.types.status import Status
from toolyard.types.tool import Tool
from toolyard.yard import Toolyard

__all__ = ["SyncToolyard"]

T = TypeVar("T")


class SyncToolyard:
    """Blocking variant of ``Toolyard`` with the same methods. Use it in a ``with`` statement.

    Thread-safe. Every method blocks until its result is available and raises the errors of the method of
    the same name in ``Toolyard``.
    """

    def __init__(self, make: Callable[[], Toolyard]) -> None:
        self._open_factory = make
        self._owner_pid = os.getpid()
        self._yard: Toolyard | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop_lock = threading.Lock()
        """Held to submit work and to detach the loop, so that no work is submitted to a stopped loop."""
        self._close_lock = threading.Lock()

    def __enter__(self) -> SyncToolyard:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="toolyard", daemon=True)
        self._thread.start()
        started.wait()
        try:
            self._yard = self._run_and_wait(self._open_yard())
        except BaseException:
            self._stop_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, stop all child processes and end the background thread.

        May be called twice, and from any thread except the background thread.
        """
        self._forbid_own_thread()
        if os.getpid() != self._owner_pid:
            # A forked child has a copy of this object without the thread; the connections are its parent's.
            return
        with self._close_lock:
            yard, self._yard = self._yard, None
            try:
                if yard is not None:
                    self._run_and_wait(yard.close())
            finally:
                self._stop_loop()

    def tools(self, **options: Any) -> list[Any]:
        """Return the tools that the caller may see; takes the options of ``Toolyard.tools``."""
        return self._run_and_wait(_list_tools(self._require_yard(), options))

    def search(self, query: str, **options: Any) -> list[Tool]:
        """Return the stored tools that match a query, best first."""
        return self._run_and_wait(self._require_yard().search(query, **options))

    def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
        """Call a tool by its exposed name. ``on_progress`` is called in the background thread."""
        return self._run_and_wait(self._require_yard().call(name, arguments, **options))

    def answer(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
        """Call a tool, and return errors as results."""
        return self._run_and_wait(self._require_yard().answer(name, arguments, **options))

    def why(self, name: str, **options: Any) -> Decision:
        """Return the policy decision on a tool, with each rule's verdict."""
        return self._run_and_wait(_call_in_loop(lambda yard: yard.why(name, **options), self._require_yard()))

    def find(self, name: str, **options: Any) -> Tool:
        """Return one tool that the caller may see, by its exposed name."""
        return self._run_and_wait(self._require_yard().find(name, **options))

    def known(self) -> ToolListing:
        """Return the current listing without contacting any server."""
        return self._run_and_wait(_call_in_loop(lambda yard: yard.known(), self._require_yard()))

    def changes(self, server: str | None = None) -> list[Change]:
        """Return the changes of servers that need acceptance."""
        return self._run_and_wait(self._require_yard().changes(server))

    def accept(self, changes: list[Change]) -> list[Change]:
        """Accept changes returned by ``changes()``, and return the accepted ones."""
        return self._run_and_wait(self._require_yard().accept(changes))

    def servers(self) -> list[Status]:
        """Return one status per server."""
        return self._run_and_wait(_call_in_loop(lambda yard: yard.servers(), self._require_yard()))

    def connect(self, servers: list[str] | None = None) -> list[Status]:
        """Connect now instead of at the first call; failures are reported in the statuses."""
        return self._run_and_wait(self._require_yard().connect(servers))

    def restart(self, server: str) -> None:
        """Close a server's connection and clear its failure; the next call connects again."""
        self._run_and_wait(self._require_yard().restart(server))

    async def _open_yard(self) -> Toolyard:
        return await self._open_factory().__aenter__()

    def _require_yard(self) -> Toolyard:
        if self._yard is None:
            raise RuntimeError("the yard is not open: use it in a with statement")
        return self._yard

    def _run_and_wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            self._forbid_own_thread()
            if os.getpid() != self._owner_pid:
                raise RuntimeError("the yard belongs to another process: open one in this process")
            with self._loop_lock:
                if self._loop is None:
                    raise RuntimeError("the yard is not open: use it in a with statement")
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unreachable("the yard is closed") from None
        except BaseException:
            # The blocked thread was interrupted (KeyboardInterrupt): cancel the call on the loop, too.
            future.cancel()
            raise

    def _run_loop(self, started: threading.Event) -> None:
        # Leaving asyncio.Runner cancels the remaining tasks. Threads blocked on their results then get
        # CancelledError instead of blocking forever on a loop that no longer runs.
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(started.set)
            self._loop.run_forever()

    def _forbid_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            # The event loop runs in this thread: blocking here for a result would be a deadlock.
            raise RuntimeError(
                "SyncToolyard cannot be used in its own background thread: call it from another thread"
            )

    def _stop_loop(self) -> None:
        with self._loop_lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(10)


async def _list_tools(yard: Toolyard, options: dict[str, Any]) -> list[Any]:
    return [*await yard.tools(**options)]


async def _call_in_loop(work: Callable[[Toolyard], T], yard: Toolyard) -> T:
    return work(yard)
