"""Connector of the guarded session: reports refused addresses as AddressRefused."""

from __future__ import annotations

import aiohttp
from aiohttp.client import ClientTimeout
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from toolyard.net.address_guard import collect_refusals

__all__ = ["GuardedConnector"]


class GuardedConnector(aiohttp.TCPConnector):
    """TCPConnector that raises ClientConnectorError with an AddressRefused as ``os_error`` for refused
    addresses.

    A host may have several addresses. If connecting fails for all of them, aiohttp raises a new OSError with
    the joined texts of the failures, from which their types cannot be recovered. The guard therefore records
    its refusals, and one of them replaces the joined error. A private address takes precedence over a denied
    one, because the user can allow it.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        with collect_refusals() as refusals:
            try:
                return await super().connect(req, traces, timeout)
            except aiohttp.ClientConnectorError as error:
                # A TLS failure means that one address was allowed and reached: that is the error to report.
                if not refusals or isinstance(error, aiohttp.ClientSSLError):
                    raise
                refusal = next((each for each in refusals if not each.is_denied), refusals[0])
                raise aiohttp.ClientConnectorError(req.connection_key, refusal) from error
