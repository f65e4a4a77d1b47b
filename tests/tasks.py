"""Cancel background tasks of a test without losing their errors."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["cancel"]


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for their end. Raise the error of a task that failed before that."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
