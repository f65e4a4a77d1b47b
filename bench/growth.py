"""Measure how the gateway grows with its servers: memory per tool, and the cost of a page of tools/list.

python bench/growth.py [--servers 1 300 1000] [--tools 50]

Each gateway is a ``toolyard serve`` of its own. All of its servers are one origin under many names. Memory is
that of the gateway's process once all tools are listed, over that with the first number of servers.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from statistics import median
from typing import Any

from harness.clients import connect
from harness.gateways import toolyard_servers
from harness.processes import http_servers
from harness.raw_http_client import Line, Peer

ROUNDS = 5
LIST_SECONDS = 300.0


async def read_pages(peer: Peer, line: Line) -> tuple[int, list[tuple[float, float]]]:
    """Return the number of tools, and the wall and CPU time of each page in ms."""
    tools, pages, params = 0, list[tuple[float, float]](), dict[str, Any]()
    while True:
        cpu_time, start = peer.cpu(), time.perf_counter()
        body = await line.ask(peer.request(peer.message("tools/list", params)))
        pages.append(((time.perf_counter() - start) * 1e3, (peer.cpu() - cpu_time) * 1e3))
        tools += body.count(b'"inputSchema"')
        following = re.search(rb'"nextCursor":"([^"]+)"', body)
        if following is None:
            return tools, pages
        params = {"cursor": following[1].decode()}


async def measure(url: str, servers: int, tools: int) -> tuple[int, int, list[tuple[float, float]]]:
    """Return the number of tools once all are listed, the memory, and the times of pages after that."""
    # Nothing is listed again while pages are measured.
    entry = {"url": url, "type": "http", "shared": True, "cache": {"ttl": 3600}}
    async with toolyard_servers("toolyard", {f"s{n}": entry for n in range(servers)}, sessions=1) as peer:
        line = await connect(peer)
        async with asyncio.timeout(LIST_SECONDS):
            while (found_page := (await read_pages(peer, line))[0]) < servers * tools:
                await asyncio.sleep(1)
        pages = [page for _ in range(ROUNDS) for page in (await read_pages(peer, line))[1]]
        line.close()
        return found_page, peer.memory(), pages


async def run(counts: list[int], tools: int) -> None:
    base: tuple[int, int] | None = None
    print("| servers | tools | pages | memory, MB | KB more per tool | page, ms | CPU per page, ms |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    async with http_servers("--tools", str(tools)) as urls:
        for servers in counts:
            found_memory, memory, pages = await measure(urls[0], servers, tools)
            base = base or (memory, found_memory)
            more = found_memory - base[1]
            per_tool = f"{(memory - base[0]) / more / 1e3:.1f}" if more else "–"
            wall = median(wall for wall, _ in pages)
            cpu = sum(cpu for _, cpu in pages) / len(pages)
            print(
                f"| {servers} | {found_memory} | {len(pages) // ROUNDS} | {memory / 1e6:.0f} | {per_tool} "
                f"| {wall:.1f} | {cpu:.1f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 300, 1000])
    parser.add_argument("--tools", type=int, default=50)
    options = parser.parse_args()
    asyncio.run(run(options.servers, options.tools))


if __name__ == "__main__":
    main()
