"""Many coding agents on one machine: processes, memory, start-up time, and CPU time of a call.

python bench/agents.py [--clients 20] [--servers 20] [--peer-clients 2] [--calls 2000] [--runs 20]

Each client is one MCP client that starts its servers as programs, has every one of them list its tools, and
calls one. Peers:

own          the client starts all servers itself
mcp-proxy    one mcp-proxy in front of all servers, and one for each server and client, as it merges nothing
fastmcp      FastMCP's proxy in front of all servers, one for each client
toolyard     ``toolyard stdio``: a shim for each client, and one background process

The peers other than toolyard run with fewer clients (``--peer-clients``): their processes grow with every
client. CPU time and start-up are those of ours beside ``toolyard stdio --standalone``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

BENCH = Path(__file__).resolve().parent
ENVIRONMENTS = BENCH.parent / ".envs"
TOOLYARD = str(Path(sys.executable).with_name("toolyard"))
SERVER = [sys.executable, "-m", "servers.stdio", "--tools", "20", "--era", "legacy"]
FASTMCP = "import json, sys; from fastmcp.server import create_proxy; " + (
    "create_proxy(json.loads(sys.argv[1])).run(show_banner=False, log_level='error')"
)
_BATCH_CALLS = 200
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Session:
    """An MCP session over the standard streams of a program."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env, cwd=BENCH
        )
        self._count = 0

    def ask(self, method: str, params: Any = None) -> Any:
        self._count += 1
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params or {}}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._count and "method" not in answer:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]
        raise RuntimeError(f"{self.process.args} ended")

    def open(self) -> Session:
        self.ask("initialize", INITIALIZE)
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.process.stdin.flush()
        return self

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Machine:
    """Folders, environment and configuration of one user."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.servers = servers
        self.data = folder / "data"
        self.data.mkdir()
        (folder / "run").mkdir(mode=0o700)
        entry = {"command": SERVER[0], "args": SERVER[1:], "cwd": str(BENCH)}
        self.config = {"mcpServers": {f"s{n}": entry for n in range(servers)}}
        (self.data / "mcp.json").write_text(json.dumps(self.config))
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        own = {
            "HOME": str(folder),
            "TOOLYARD_DATA_DIR": str(self.data),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }
        self.env = {**keep, **own}

    def owner(self) -> psutil.Process | None:
        for file in (Path(self.env["XDG_RUNTIME_DIR"]) / "toolyard").glob("*.owner"):
            with contextlib.suppress(psutil.Error, ValueError):
                return psutil.Process(int(file.read_text()))
        return None

    def stop(self) -> None:
        subprocess.run([TOOLYARD, "stop"], env=self.env, capture_output=True, timeout=60)

    def toolyard(self, *words: str) -> Session:
        return Session([TOOLYARD, "stdio", *words], self.env)


def is_server(process: psutil.Process) -> bool:
    return "servers.stdio" in process.cmdline()


def measure(roots: list[psutil.Process]) -> dict[str, float]:
    """Return the number of processes and their memory in MB, servers apart from the rest."""
    processes_by_pid = {each.pid: each for root in roots for each in (root, *root.children(recursive=True))}
    ours = [each for each in processes_by_pid.values() if not is_server(each)]
    memory = [each.memory_full_info() for each in ours]
    return {
        "processes": len(ours),
        "servers": len(processes_by_pid) - len(ours),
        "rss": sum(each.rss for each in memory) / 1e6,
        "pss": sum(each.pss for each in memory) / 1e6,
    }


# One client of each peer: its sessions, and the tool to call.


def own_client(machine: Machine, _: int) -> list[Session]:
    return [Session(SERVER, machine.env) for _ in range(machine.servers)]


def fastmcp_client(machine: Machine, _: int) -> list[Session]:
    python = str(ENVIRONMENTS / "bench-fastmcp/bin/python")
    return [Session([python, "-c", FASTMCP, json.dumps(machine.config)], machine.env)]


def mcp_proxy_client(machine: Machine, port: int) -> list[Session]:
    program = str(ENVIRONMENTS / "bench-mcp-proxy/bin/mcp-proxy")
    url = f"http://127.0.0.1:{port}/servers"
    return [Session([program, f"{url}/s{n}/sse"], machine.env) for n in range(machine.servers)]


def toolyard_client(machine: Machine, _: int) -> list[Session]:
    return [machine.toolyard()]


@contextlib.contextmanager
def mcp_proxy(machine: Machine) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(ENVIRONMENTS / "bench-mcp-proxy/bin/mcp-proxy"), "--port", str(port)]
    file = machine.data / "proxy.json"
    file.write_text(json.dumps(machine.config))
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [*words, "--named-server-config", str(file)], env=machine.env, cwd=BENCH, stdout=quiet, stderr=quiet
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield port, process
        finally:
            process.terminate()


def run_clients(
    machine: Machine, peer: str, count: int, port: int, shared_processes: list[psutil.Process]
) -> dict[str, float]:
    """Let all clients list every server, and call one each; return what runs then."""
    make = {
        "own": own_client,
        "mcp-proxy": mcp_proxy_client,
        "fastmcp": fastmcp_client,
        "toolyard": toolyard_client,
    }[peer]
    clients: list[list[Session]] = []
    try:
        for number in range(count):
            sessions = make(machine, port)
            clients.append(sessions)
            names = [[tool["name"] for tool in each.open().ask("tools/list")["tools"]] for each in sessions]
            is_merged = len(sessions) == 1
            prefix = f"s{number % machine.servers}_" if is_merged else ""
            session_number = 0 if is_merged else number % machine.servers
            name = next(name for name in names[session_number] if name.startswith(prefix) and "echo" in name)
            sessions[session_number].ask("tools/call", {"name": name, "arguments": {"text": "hello"}})
        roots = [psutil.Process(each.process.pid) for sessions in clients for each in sessions]
        if peer == "toolyard" and (owner := machine.owner()) is not None:
            shared_processes = [owner]
        return measure([*roots, *shared_processes])
    finally:
        for sessions in clients:
            for each in sessions:
                each.close()


def time_first_list(machine: Machine, *words: str) -> float:
    start = time.perf_counter()
    session = machine.toolyard(*words)
    try:
        session.ask("initialize", INITIALIZE)
        session.ask("tools/list")
        return (time.perf_counter() - start) * 1e3
    finally:
        session.close()


def idle_memory(machine: Machine) -> tuple[float, float]:
    session = machine.toolyard().open()
    try:
        session.ask("tools/list")
        memory = psutil.Process(session.process.pid).memory_full_info()
        return memory.rss / 1e6, memory.pss / 1e6
    finally:
        session.close()


def call_cpu(machine: Machine, calls: int) -> tuple[float, float]:
    """Return the CPU time of a call in µs, without that of the server: attached, and standalone.

    In alternating batches, since the load of the machine changes the CPU time of the same work.
    """
    attached_client, alone = machine.toolyard().open(), machine.toolyard("--standalone").open()
    try:
        owner = machine.owner()
        assert owner is not None
        shared_processes = [psutil.Process(attached_client.process.pid), owner]
        groups = [(attached_client, shared_processes), (alone, [psutil.Process(alone.process.pid)])]
        params = {"name": "s0_echo", "arguments": {"text": "hello"}}
        spent = [0.0, 0.0]
        for batch in range(1 + calls // _BATCH_CALLS):
            for number, (session, processes) in enumerate(groups):
                before = sum(sum(each.cpu_times()[:2]) for each in processes)
                for _ in range(_BATCH_CALLS):
                    session.ask("tools/call", params)
                if batch:  # The first one is the warm-up.
                    spent[number] += sum(sum(each.cpu_times()[:2]) for each in processes) - before
        call_count = calls // _BATCH_CALLS * _BATCH_CALLS
        return spent[0] / call_count * 1e6, spent[1] / call_count * 1e6
    finally:
        attached_client.close()
        alone.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--peer-clients", type=int, default=2)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--peers", default="own,mcp-proxy,fastmcp,toolyard")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolyard-") as folder:
        machine = Machine(Path(folder), options.servers)
        try:
            report(machine, options)
        finally:
            machine.stop()


def report(machine: Machine, options: argparse.Namespace) -> None:
    print("| peer | clients | processes, without servers | servers | RSS, MB | PSS, MB |")
    print("|---|--:|--:|--:|--:|--:|")
    for peer in options.peers.split(","):
        count = options.clients if peer == "toolyard" else options.peer_clients
        with contextlib.ExitStack() as stack:
            port, shared_processes = 0, list[psutil.Process]()
            if peer == "mcp-proxy":
                port, process = stack.enter_context(mcp_proxy(machine))
                shared_processes = [psutil.Process(process.pid)]
            clients = run_clients(machine, peer, count, port, shared_processes)
        print(
            f"| {peer} | {count} | {clients['processes']:.0f} | {clients['servers']:.0f} "
            f"| {clients['rss']:.0f} | {clients['pss']:.0f} |",
            flush=True,
        )
    warm = [time_first_list(machine) for _ in range(options.runs)]
    rss, pss = idle_memory(machine)
    shared_cpu, own_cpu = call_cpu(machine, options.calls)
    cold, alone = list[float](), list[float]()
    for _ in range(5):  # interleaved
        machine.stop()
        cold.append(time_first_list(machine))
        alone.append(time_first_list(machine, "--standalone"))
    machine.stop()
    rows = [
        (
            "first list, warm, median / worst, ms",
            f"{statistics.median(warm):.0f} / {max(warm):.0f}",
            "60 / 120",
        ),
        (
            "first list, nothing running, over standalone",
            f"{statistics.median(cold):.0f} / {statistics.median(alone):.0f} ms "
            f"= {statistics.median(cold) / statistics.median(alone):.2f} ×",
            "1.25 ×",
        ),
        ("attached idle client, RSS / PSS, MB", f"{rss:.1f} / {pss:.1f}", "12 / 7"),
        (
            "CPU per call, shim and background, over standalone",
            f"{shared_cpu:.0f} / {own_cpu:.0f} µs = {shared_cpu / own_cpu:.2f} ×",
            "1.5 ×",
        ),
    ]
    print("\n| toolyard | measured | bar |\n|---|--:|--:|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
