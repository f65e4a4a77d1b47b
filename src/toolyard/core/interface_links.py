"""URLs of the interface for messages and sign-ins, and the signal that the process begins to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.types.server import Server

__all__ = ["InterfaceLinks", "StopSignal"]


class StopSignal(asyncio.Event):
    """Set when the process begins to stop; long-lived streams end then."""


@dataclass(frozen=True, slots=True)
class InterfaceLinks:
    """URLs of the interface that services use in messages and sign-ins."""

    client_identity: ClientIdentity
    """Our identity as an OAuth client of users who did not reach us by a request."""
    approvals_url: str
    accept_url_for: Callable[[Server], str]
    """Return the page on which changed tools of a server can be accepted."""
