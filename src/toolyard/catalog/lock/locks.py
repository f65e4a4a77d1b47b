"""All locks that the tools of one process are held against: the file's, and the registry's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolyard.catalog.lock.changes import Change
from toolyard.catalog.lock.keeper import LockKeeper
from toolyard.catalog.lock.registry import RegistryLock
from toolyard.model.catalog import Contents
from toolyard.model.server import NATIVE, Server

__all__ = ["Locks"]

_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Locks:
    """For servers of the files ``mcp.lock``, for instances what the database holds. None: there is no place
    for one, and nothing is held against it."""

    file: LockKeeper | None = None
    registry: RegistryLock | None = None

    def holds(self, server: Server) -> bool:
        """Whether there is a lock for the tools of a server."""
        return self.registry is not None if server.instance is not None else _holds(self.file)

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
        if self.registry is not None:
            await self.registry.met(server, contents)

    def _of(self, contents: Contents) -> LockKeeper | RegistryLock | None:
        if contents.server_id == NATIVE:
            return None
        return self.registry if contents.server_id.startswith("@") else self.file


def _holds(lock: LockKeeper | None) -> bool:
    return lock is not None and lock.holds
