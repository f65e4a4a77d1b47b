"""For namespaces of its own (user, network, mount): a name server, and addresses that lead nowhere else.

Prints as JSON, for each request: the address that was connected to or the refusal, and the names looked up.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from yarl import URL

from toolyard.net import AddressGuard, OutboundHttp

PUBLIC, OTHERS = "93.184.216.34", ("127.0.0.1", "169.254.169.254", "10.1.2.3")


class NameServer(threading.Thread):
    """Answers A queries of a name with its addresses, one after another, and knows no IPv6 addresses."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.answers: list[list[str]] = []
        self.lookups = 0

    def run(self) -> None:
        while True:
            query, peer = self.socket.recvfrom(512)
            end = query.index(b"\0", 12) + 5
            (kind,) = struct.unpack(">H", query[end - 4 : end - 2])
            addresses: list[str] = []
            if kind == 1:
                self.lookups += 1
                addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(addresses), 0, 0)
            records = b"".join(
                b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(each) for each in addresses
            )
            self.socket.sendto(head + query[12:end] + records, peer)


def prepare(folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (PUBLIC, *OTHERS[1:]):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
    subprocess.run(["mount", "--bind", str(resolv), "/etc/resolv.conf"], check=True)


async def main(folder: Path, *, guarded: bool) -> None:
    prepare(folder)
    names = NameServer()
    names.start()
    reached_addresses: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached_addresses.append(writer.get_extra_info("sockname")[0])
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 8080)
    report: list[dict[str, Any]] = []
    cases = ([[PUBLIC], [other]] for other in OTHERS)
    mixed_answers = ([[PUBLIC, other]] for other in OTHERS)
    for number, answers in enumerate((*cases, *mixed_answers)):
        net = OutboundHttp(AddressGuard())
        names.answers, names.lookups = list(answers), 0
        url = URL(f"http://rebind{number}.example:8080/")
        session = net.session(guarded=guarded)
        for _ in range(3):
            before = names.lookups
            reached_addresses.clear()
            try:
                async with session.get(url, **net.request_options(url, guarded=guarded)) as response:
                    outcome = await response.text()
            except OSError as error:
                outcome = str(getattr(error, "os_error", error))
            lookups = names.lookups - before
            report.append(
                {
                    "answers": answers,
                    "outcome": outcome,
                    "reached": list(reached_addresses),
                    "lookups": lookups,
                }
            )
        await net.close()
    server.close()
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), guarded=sys.argv[2] == "guarded"))
