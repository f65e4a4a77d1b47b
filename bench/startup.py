"""Measure the start of `toolyard serve` and `toolyard chat -p` beside the import of the libraries they use.

python bench/startup.py [--runs 15] [--python OTHER/bin/python …]

The libraries are all modules outside of toolyard that a run has loaded by then; a second program imports
just those. The model answers at once, on loopback. Runs are interleaved; the table has medians of the wall
and CPU time. ``--python`` adds the interpreter of another checkout, to compare two versions by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

BENCH = Path(__file__).resolve().parent
BAR_MS = 400
IMPORT = """
import gc, importlib, os, sys
gc.disable()
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except ImportError:
        pass
os._exit(0)
"""
Times = tuple[float, float]
"""Wall time and CPU time, in ms."""


def child_cpu(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time of a running process, of all its threads, in ms."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e6


class Program:
    """An installed toolyard with a data directory of its own."""

    def __init__(self, python: str, folder: Path, model_url: str) -> None:
        self.python = python
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        (self.data / "mcp.json").write_text('{"mcpServers": {}}')
        (folder / "run").mkdir(mode=0o700)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TOOLYARD_DATA_DIR": str(self.data),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "TOOLYARD_MODEL": "openai:bench",
            "TOOLYARD_MODEL_BASE_URL": model_url,
            "OPENAI_API_KEY": "none",
        }

    def start(self, *words: str, stderr: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [self.python, *words], stdin=pipe, stdout=pipe, stderr=stderr, env=self.env, cwd=self.data
        )

    def first_line(self, *words: str) -> Times:
        """Run until the first line is printed."""
        start = time.perf_counter()
        process = self.start(*words)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            times = (time.perf_counter() - start) * 1e3, child_cpu(process)
            assert line, f"{words} printed nothing"
            return times
        finally:
            process.terminate()
            process.communicate()

    def until_exit(self, text: str, *words: str) -> Times:
        start = time.perf_counter()
        process = self.start(*words)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text.encode())
        process.stdin.close()
        output = process.stdout.read()
        process.stdout.close()
        _, status, resource_usage = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0, output
        return (time.perf_counter() - start) * 1e3, (resource_usage.ru_utime + resource_usage.ru_stime) * 1e3

    def serve(self) -> Times:
        return self.first_line("-m", "toolyard", "serve", "--port", "0")

    def chat(self) -> Times:
        return self.until_exit("", "-m", "toolyard", "chat", "-p", "1 0")

    def libraries(self, *words: str) -> str:
        """Return the names of the modules outside of toolyard that a command loads, in order."""
        with tempfile.TemporaryFile() as log:
            process = self.start("-X", "importtime", "-m", "toolyard", *words, stderr=log)
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()
            process.communicate()
            log.seek(0)
            lines = log.read().decode().splitlines()
        names = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]
        return "\n".join(name for name in names[1:] if name.split(".")[0] != "toolyard")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--python", action="append", default=[])
    options = parser.parse_args()
    model = subprocess.Popen(
        [sys.executable, "-m", "servers.model"], cwd=BENCH, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert model.stdout is not None
    try:
        url = f"http://127.0.0.1:{json.loads(model.stdout.readline())}/v1"
        with tempfile.TemporaryDirectory(prefix="toolyard-") as folder:
            for number, python in enumerate([sys.executable, *options.python]):
                print(f"| {number}: {python}")
            programs = [
                Program(python, Path(folder) / str(number), url)
                for number, python in enumerate([sys.executable, *options.python])
            ]
            report(programs, options.runs)
    finally:
        model.communicate()


def report(programs: list[Program], runs: int) -> None:
    jobs: dict[tuple[str, int, str], Callable[[], Times]] = {}
    for number, program in enumerate(programs):
        program.serve()
        program.chat()
        for name, run, words in (
            ("serve", program.serve, ("serve", "--port", "0")),
            ("chat -p", program.chat, ("chat", "-p", "1 0")),
        ):
            names = program.libraries(*words)
            jobs[name, number, "program"] = run
            jobs[name, number, "libraries"] = lambda program=program, names=names: program.until_exit(
                names, "-c", IMPORT
            )
    times_by_job: dict[tuple[str, int, str], list[Times]] = {job: [] for job in jobs}
    for _ in range(runs):
        for job, run in jobs.items():
            times_by_job[job].append(run())
    print("| command | wall, ms | libraries | over | CPU, ms | libraries | over | bar |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, number in dict.fromkeys((name, number) for name, number, _ in jobs):
        cells: list[str] = []
        for kind in (0, 1):
            ours, peer_medians = (
                statistics.median(each[kind] for each in times_by_job[name, number, part])
                for part in ("program", "libraries")
            )
            cells += [f"{ours:.0f}", f"{peer_medians:.0f}", f"{ours - peer_medians:.0f}"]
        print(f"| {name} ({number}) | {' | '.join(cells)} | {BAR_MS} |")


if __name__ == "__main__":
    main()
