"""Fake DNS: host names with addresses chosen by a test."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from aiohttp.abc import AbstractResolver, ResolveResult


class FakeResolver(AbstractResolver):
    """Resolves names from a table. A list of addresses is used up one by one; the last one stays.

    Old notations of IPv4 addresses are parsed as the system's resolver parses them.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.table: dict[str, list[str]] = {name: [address] for name, address in addresses.items()}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = self.table.get(host)
        if addresses is not None:
            address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        else:
            address = "127.0.0.1" if host == "localhost" else socket.inet_ntoa(socket.inet_aton(host))
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=0)]

    async def close(self) -> None:
        pass
