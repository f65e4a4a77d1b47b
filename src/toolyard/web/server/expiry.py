"""Every few hours, what has run its time is cleared away."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from toolyard.store.errors import StoreError

if TYPE_CHECKING:
    from toolyard.web.services import Services

__all__ = ["delete_expired_periodically"]

log = logging.getLogger("toolyard.web")

_FIRST_DELAY_SECONDS = (60.0, 600.0)
"""Seconds after the start, between which replicas that started together spread."""
_CLEANUP_INTERVAL_SECONDS = (4 * 3_600.0, 8 * 3_600.0)


async def delete_expired_periodically(site: Services) -> None:
    """Until it is cancelled. A database that is away for a while is swept the next time."""
    pause = _FIRST_DELAY_SECONDS
    while True:
        await asyncio.sleep(random.uniform(*pause))
        pause = _CLEANUP_INTERVAL_SECONDS
        try:
            forgotten = await site.database.expiry.delete_expired(site.settings.audit_days)
        except StoreError as error:
            log.warning("what is old could not be cleared away: %s", error.cause)
            continue
        if forgotten:
            log.info("the audit log: %d old entries were deleted, see audit_days", forgotten)
