"""Selection of the lock that applies to a server: lock file, registry lock or first-use pins."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from toolyard.catalog.lock.changes import Change
from toolyard.catalog.lock.first_use import FirstUseLock
from toolyard.catalog.lock.lock_file import LockFile
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import NOTHING_QUARANTINED, ListingLock, LockVerdict
from toolyard.types.server import NATIVE_SERVER_ID, Server
from toolyard.types.tool import ValidatedListing

__all__ = ["CombinedLocks"]


@dataclass(frozen=True, slots=True)
class CombinedLocks(ListingLock):
    """All locks of one process.

    Configured servers are compared with ``mcp.lock``, or without that file with their first-use pins;
    instances are compared with the registry lock. A lock that is None accepts everything.
    """

    file: LockFile | None = None
    registry: RegistryLock | None = None
    first_use: FirstUseLock | None = None

    def has_lock(self, server: Server) -> bool:
        """Return True if a lock applies to the tools of a server."""
        if server.instance is not None:
            return self.registry is not None
        if self.first_use is None:
            return self.file is not None and self.file.exists
        is_quarantined = server.trust in self.first_use.quarantined_trusts
        return is_quarantined or (self.file is not None and self.file.exists)

    def find_verdict(self, contents: ValidatedListing) -> LockVerdict:
        lock = self._lock_for(contents)
        return NOTHING_QUARANTINED if lock is None else lock.find_verdict(contents)

    def instructions(self, contents: ValidatedListing) -> str | None:
        """Return the server's instructions; None if they are not the accepted ones."""
        return contents.listing.instructions if self.has_accepted_instructions(contents) else None

    async def check_listing(self, server: Server, contents: ValidatedListing) -> None:
        """Compare a listing, fetched or loaded from storage, with the server's lock. Raise StoreError."""
        if server.instance is None:
            # The first comparison hashes every definition, which would block the event loop. Later calls use
            # its verdict.
            if self.file is not None and not self.file.is_prepared(contents):
                await asyncio.to_thread(self.file.quarantine_reasons, contents)
            await self.recheck_first_use(server, contents)
        elif self.registry is not None:
            await self.registry.check_listing(server, contents)

    async def recheck_first_use(self, server: Server, contents: ValidatedListing) -> None:
        """Compare a configured server's listing with its first-use pins, at most once per second."""
        first_use = self.first_use
        if first_use is not None and server.instance is None and (self.file is None or not self.file.exists):
            await first_use.check_listing(server, contents)

    async def changes(self, server: Server, contents: ValidatedListing) -> list[Change]:
        """Return the unaccepted changes of a configured server. Raise LockBroken and StoreError."""
        if self.file is not None and self.file.exists:
            return await asyncio.to_thread(self.file.changes, server, contents)
        return [] if self.first_use is None else await self.first_use.changes(server, contents)

    async def accept(self, server: Server, contents: ValidatedListing, keys: Collection[str]) -> list[Change]:
        """Accept changes of a configured server in the lock file, or without one in its first-use pins.

        Raise Outdated, LockBroken, LockUnwritable and StoreError.
        """
        if self.first_use is not None and (self.file is None or not self.file.exists):
            accepted = await self.first_use.accept(server, contents, keys)
            # Compared at once, so that the accepted tools need no new listing before they can be called.
            await self.first_use.check_listing(server, contents)
            return accepted
        return [] if self.file is None else await asyncio.to_thread(self.file.accept, server, contents, keys)

    def _lock_for(self, contents: ValidatedListing) -> ListingLock | None:
        # Built-in tools are part of this program, so no server can change them.
        if contents.server_id == NATIVE_SERVER_ID:
            return None
        if contents.server_id.startswith("@"):
            return self.registry
        if self.first_use is None or (self.file is not None and self.file.exists):
            return self.file
        return self.first_use
