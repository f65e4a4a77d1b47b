"""Compare the gateway of two checkouts by turns: CPU per call, for one client and for many.

python bench/versions.py OTHER_CHECKOUT [--rounds 40]

Both run as ``toolyard serve`` with accounts, an API token, policy and audit, in front of the same origins,
with the libraries of this interpreter. A round is a short time with the bare clients in front of each. The
machine may be busy with other work, so what counts is the CPU time of the gateway's process, and the median
of the ratios of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from statistics import median, quantiles

from harness.clients import bare
from harness.gateways import free_port, program
from harness.processes import ROOT, http_servers
from harness.raw_http_client import Peer

CLIENTS = (1, 32)
ROUND_SECONDS = 0.4
MAKE_TOKEN = """
import asyncio, pathlib, sys
from harness.gateways import token
print(asyncio.run(token(pathlib.Path(sys.argv[1]))))
"""


@contextlib.asynccontextmanager
async def gateway(checkout: Path, urls: list[str]) -> AsyncGenerator[Peer]:
    port, servers = free_port(), {f"s{n}": {"url": url, "shared": True} for n, url in enumerate(urls)}
    path = os.pathsep.join((str(checkout / "src"), str(checkout / "bench")))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        # The checkout creates the database itself: an older version opens none of a newer one.
        result = subprocess.run(
            (sys.executable, "-c", MAKE_TOKEN, folder),
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            check=True,
        )
        env = {
            "PYTHONPATH": path,
            "TOOLYARD_DATA_DIR": folder,
            "TOOLYARD_PEOPLE_MODE": "password",
            "TOOLYARD_WRITE_TOOLS": "allow",
        }
        words = (sys.executable, "-m", "toolyard", "serve", "--port", str(port))
        async with program(port, *words, **env) as process:
            names = [f"{server}_echo" for server in servers]
            yield Peer(str(checkout), port, names, process, token=result.stdout.decode().strip())


def read_cpu(peer: Peer) -> float:
    """Return the CPU time of the gateway, of all its threads, in µs."""
    threads = Path(f"/proc/{peer.process.pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e3


async def measure(peer: Peer, clients: int, seconds: float) -> float:
    """Return the CPU time per call in µs, while so many clients call at once."""
    async with contextlib.AsyncExitStack() as stack:
        asks = [await stack.enter_async_context(bare(peer, None, number)) for number in range(1, clients + 1)]
        await asyncio.gather(*(ask() for ask in asks))
        cpu, until, calls = read_cpu(peer), time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            await asyncio.gather(*(ask() for ask in asks))
            calls += clients
        return (read_cpu(peer) - cpu) / calls


async def run(other: Path, rounds: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(http_servers()) for _ in range(2)]
        urls = [url for each in servers for url in each]
        peers = [await stack.enter_async_context(gateway(each, urls)) for each in (ROOT, other)]
        print("| clients | this, µs of CPU per call | other | median of ratios | quartiles |")
        print("|--:|--:|--:|--:|--:|")
        for clients in CLIENTS:
            for peer in peers:
                await measure(peer, clients, 5 * ROUND_SECONDS)
            time_pairs: list[tuple[float, float]] = []
            for number in range(rounds):
                # Which of them comes first changes, too.
                both = {
                    peer.name: await measure(peer, clients, ROUND_SECONDS)
                    for peer in (peers if number % 2 else reversed(peers))
                }
                time_pairs.append((both[str(ROOT)], both[str(other)]))
            ratios = [own_median / other_median for own_median, other_median in time_pairs]
            low, _, high = quantiles(ratios, n=4)
            own_median, other_median = (median(each) for each in zip(*time_pairs, strict=True))
            print(
                f"| {clients} | {own_median:.0f} | {other_median:.0f} | {median(ratios):.3f}"
                f" | {low:.3f} to {high:.3f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="root of the other checkout")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    asyncio.run(run(options.other.resolve(), options.rounds))


if __name__ == "__main__":
    main()
