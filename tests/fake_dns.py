"""Names that lead where a test wants them to."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from aiohttp.abc import AbstractResolver, ResolveResult


class Names(AbstractResolver):
    """Looks names up in a table; a list is used up one by one, the last for ever. Old forms of addresses are
    read as the system's own resolver reads them."""

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
