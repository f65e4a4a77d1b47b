"""All locks of one process: the file's, the registry's, and the first-use pins of configured servers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from toolyard.catalog.lock.active_lock import LockKeeper
from toolyard.catalog.lock.changes import Change
from toolyard.catalog.lock.first_use import FirstUseLock
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.types.catalog import Contents
from toolyard.types.server import NATIVE, Server

__all__ = ["Locks"]

_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Locks:
    """For servers of the files ``mcp.lock``, or without one their first listing; for instances what the
    database holds. None: there is no place for one, and nothing is held against it."""

    file: LockKeeper | None = None
    registry: RegistryLock | None = None
    first_use: FirstUseLock | None = None

    def holds(self, server: Server) -> bool:
        """Whether there is a lock for the tools of a server."""
        if server.instance is not None:
            return self.registry is not None
        return _holds(self.file) or (self.first_use is not None and self.first_use.quarantines(server))

    def reasons(self, contents: Contents) -> Mapping[str, str]:
        """Why tools of a server are set aside, by the server's own names."""
        lock = self._of(contents)
        return _NOTHING if lock is None else lock.reasons(contents)

    def change(self, contents: Contents, tool: str) -> Change | None:
        """What is different about a tool that is set aside."""
        lock = self._of(contents)
        return None if lock is None else lock.change(contents, tool)

    def instructions(self, contents: Contents) -> str | None:
        """What a server says about how to use it; None where that is not what was accepted."""
        lock = self._of(contents)
        return contents.listing.instructions if lock is None or lock.instructed(contents) else None

    async def met(self, server: Server, contents: Contents) -> None:
        """A server has been listed, or its listing came from storage. Raises StoreError."""
        if server.instance is None:
            await self.recheck(server, contents)
        elif self.registry is not None:
            await self.registry.met(server, contents)

    async def recheck(self, server: Server, contents: Contents) -> None:
        """Compare a configured server's listing with its first one, unless that was done a moment ago."""
        first_use = self.first_use
        if first_use is not None and server.instance is None and not _holds(self.file):
            await first_use.compare(server, contents)

    async def changes(self, server: Server, contents: Contents) -> list[Change]:
        """Return what a configured server has that was not accepted. Raises LockBroken and StoreError."""
        if self.file is not None and self.file.holds:
            return await asyncio.to_thread(self.file.changes, server, contents)
        return [] if self.first_use is None else await self.first_use.changes(server)

    async def accept(self, server: Server, contents: Contents, keys: Collection[str]) -> list[Change]:
        """Accept changes of a configured server: in the lock file, or without one in its first-use pins.
        Raises Outdated, LockBroken, LockUnwritable and StoreError."""
        if self.first_use is not None and not _holds(self.file):
            done = await self.first_use.accept(server, keys)
            await self.first_use.compare(server, contents)
            return done
        return [] if self.file is None else await asyncio.to_thread(self.file.accept, server, contents, keys)

    def _of(self, contents: Contents) -> LockKeeper | RegistryLock | FirstUseLock | None:
        if contents.server_id == NATIVE:
            return None
        if contents.server_id.startswith("@"):
            return self.registry
        return self.first_use if self.first_use is not None and not _holds(self.file) else self.file


def _holds(lock: LockKeeper | None) -> bool:
    return lock is not None and lock.holds
