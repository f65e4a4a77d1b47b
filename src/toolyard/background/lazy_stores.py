"""Stores that open the database of the data directory on first use, and links to pages.

Both are opened when they are first needed, since most processes need neither.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from toolyard.agents.chat.approval_grants import ApprovalStore
from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import PinEntry, PinKey, RegistryPinStorage
from toolyard.clients.callbacks import CapabilityNotOffered, InFlightCall
from toolyard.core.call_approvals import MemoryApprovalStore
from toolyard.errors import ToolyardError
from toolyard.types.approval import Approval, Grant
from toolyard.types.tool import JsonObject

if TYPE_CHECKING:
    from toolyard.store import Database

__all__ = ["APPROVALS_PATH", "LazyApprovalStore", "LazyPageQuestions", "LazyRegistryPins", "PageService"]

log = logging.getLogger("toolyard.background")

APPROVALS_PATH = "/ui/approvals"


class PageService(Protocol):
    """The pages of this process, for its local user. Where people sign in, they are not for that user."""

    async def open_database(self, *, create: bool) -> Database | None:
        """Return the database; None if there is none, or none for the local user. Raises StoreError."""
        ...

    async def wait_for_database(self) -> Database:
        """Return the database once there is one."""
        ...

    async def make_link(self, path: str) -> str | None:
        """Return the address of a page that the person can open; None if there is none."""
        ...


class LazyApprovalStore:
    """ApprovalStore in the database, so that the page shows its approvals; in memory where there is none."""

    def __init__(self, pages: PageService) -> None:
        self._pages = pages
        self._memory = MemoryApprovalStore()

    async def _open(self) -> ApprovalStore:
        try:
            database = await self._pages.open_database(create=True)
        except (ToolyardError, OSError) as error:
            log.warning("approvals are kept in memory: %s", error)
            database = None
        return self._memory if database is None else database.approvals

    async def add(self, approval: Approval) -> None:
        await (await self._open()).add(approval)

    async def find(self, owner: str, approval_id: str) -> Approval | None:
        return await (await self._open()).find(owner, approval_id)

    async def list_pending(self, owner: str) -> Sequence[Approval]:
        return await (await self._open()).list_pending(owner)

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, at: float, grant: Grant | None
    ) -> bool:
        return await (await self._open()).answer(owner, approval_id, yes=yes, at=at, grant=grant)

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        return await (await self._open()).list_grants(owner, now)

    async def revoke(self, owner: str, grant_id: str) -> bool:
        return await (await self._open()).revoke(owner, grant_id)

    async def use_grant(
        self,
        owner: str,
        tool: str,
        definition_hash: str,
        fits: Callable[[JsonObject], bool],
        chat_id: str | None,
        now: float,
    ) -> Grant | None:
        return await (await self._open()).use_grant(owner, tool, definition_hash, fits, chat_id, now)


class LazyPageQuestions:
    """Questions from servers to answer on a page, which is opened for the first one."""

    def __init__(self, pages: PageService, wait_seconds: float) -> None:
        self._pages = pages
        self._wait_seconds = wait_seconds

    async def answer(
        self,
        owner: str,
        server_id: str,
        method: str,
        params: Mapping[str, Any],
        calls: Sequence[InFlightCall],
    ) -> Mapping[str, Any]:
        """Return the result of a server's request, as ``PageQuestions`` does; "cancel" without a page."""
        if method != "elicitation/create":
            raise CapabilityNotOffered(method)
        try:
            database = await self._pages.open_database(create=True)
            link = None if database is None else await self._pages.make_link(APPROVALS_PATH)
        except (ToolyardError, OSError) as error:
            log.warning(
                "a question from '%s' was cancelled: its page cannot be opened: %s",
                server_id,
                error,
            )
            database = link = None
        from toolyard.core.page_questions import PageQuestions  # loads the database library

        if database is None or link is None:
            return {"action": "cancel"}
        page = PageQuestions(database.questions, link, self._wait_seconds, clock=time.time)
        return await page.answer(owner, server_id, method, params, calls)


class LazyRegistryPins:
    """RegistryPinStorage of the local user's instances, which exist only in a database."""

    def __init__(self, pages: PageService) -> None:
        self._pages = pages

    async def _open(self) -> RegistryPinStorage:
        database = await self._pages.open_database(create=False)
        if database is None:
            raise PinsUnavailable(
                "the data directory has no database, so accepted definitions of instances cannot be read"
            )
        return database.pins

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        return await (await self._open()).revisions(pin_keys)

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        return await (await self._open()).read(pin_keys)

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        return await (await self._open()).save(pin_key, entry, notify=notify)

    async def list_unaccepted(self, server_id: str) -> Sequence[bytes]:
        return await (await self._open()).list_unaccepted(server_id)
