"""Measure chats: latency and cost of a model's tokens on their way to a page, concurrent turns, long chats.

python bench/chat.py [--quick] [--json FILE] [--write-docs] [--strict]

The floor is a bare relay of the same model's stream, which stores and checks nothing. A second relay reads
the stream with pydantic-ai, on which the chat loop is built.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
import psutil

from harness.chat_data import fill
from harness.machine import describe
from harness.processes import ROOT, worker
from harness.report import replace_between, table

DOCS = ROOT / "docs" / "benchmarks.md"
START, END = "<!-- bench/chat.py: start -->", "<!-- bench/chat.py: end -->"
PAINT = 1.0
"""Seconds that the first paint of a long chat may take."""
GROWTH = 1_000_000
"""Bytes by which memory may grow with each 10,000 events that are read."""
WAIT = 120.0
FLOOR = "floor: a bare relay"


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    rounds: int = 40
    tokens: int = 2_000
    turns: int = 200
    turn_tokens: int = 100
    pause: float = 0.05
    messages: int = 10_000
    readings: int = 5
    paints: int = 15

    @classmethod
    def quick(cls) -> Sizes:
        """Enough to see that it works."""
        return cls(rounds=5, tokens=300, turns=200, turn_tokens=20, readings=2, paints=3)

    @classmethod
    def tiny(cls) -> Sizes:
        """For the test of the benchmark itself."""
        return cls(rounds=1, tokens=20, turns=3, turn_tokens=5, pause=0.0, messages=20, readings=1, paints=1)


@dataclass
class TokenTimes:
    """What arrived of one answer: how old each token was, and whether all is as it was said."""

    ages: list[float] = field(default_factory=list[float])
    numbers: list[int] = field(default_factory=list[int])
    seqs: list[int] = field(default_factory=list[int])
    whole: list[int] | None = None

    def token(self, text: str) -> None:
        now = time.monotonic()
        for number, said_at in _tokens(text):
            self.numbers.append(number)
            self.ages.append(now - said_at)

    def check(self, tokens: int) -> None:
        """Nothing lost, nothing twice, all in order. Raises AssertionError."""
        assert self.seqs == sorted(set(self.seqs)), "events out of order, or twice"
        assert self.numbers == list(range(len(self.numbers))), "tokens out of order, lost, or twice"
        whole = self.numbers if self.whole is None else self.whole
        assert whole == list(range(tokens)), f"{len(whole)} tokens of {tokens}"


def _tokens(text: str) -> Iterator[tuple[int, float]]:
    for token in text.split():
        number, _, said_at = token.partition("@")
        yield int(number), float(said_at)


@dataclass(frozen=True)
class Server:
    """A process that hands on what a model says."""

    name: str
    url: str
    process: psutil.Process

    def cpu(self) -> float:
        """Seconds that it has used, all threads together."""
        return sum(self.process.cpu_times()[:2])


@dataclass(frozen=True)
class Bench:
    """All of them, running."""

    session: aiohttp.ClientSession
    ours: Server
    relays: Sequence[Server]

    @property
    def servers(self) -> Sequence[Server]:
        """In the order of the tables."""
        return [*self.relays, self.ours]

    @property
    def url(self) -> str:
        return self.ours.url

    async def chat(self) -> str:
        async with self.session.post(f"{self.url}/api/v1/chats", json={}) as response:
            assert response.status == 201, await response.text()
            return (await response.json())["id"]

    async def turn(self, chat: str, tokens: int, pause: float, after: int = 0) -> TokenTimes:
        """One answer, heard by somebody who listened before it was asked for."""
        heard_tokens, ready = TokenTimes(), asyncio.Event()
        listening = asyncio.create_task(self._listen(chat, heard_tokens, ready, after))
        await ready.wait()
        body = {"text": f"{tokens} {pause}"}
        async with self.session.post(f"{self.url}/api/v1/chats/{chat}/messages", json=body) as response:
            assert response.status == 202, await response.text()
        await asyncio.wait_for(listening, WAIT)
        heard_tokens.check(tokens)
        return heard_tokens

    async def _listen(self, chat: str, heard_tokens: TokenTimes, ready: asyncio.Event, after: int) -> None:
        async with self.session.get(f"{self.url}/api/v1/chats/{chat}/stream?after={after}") as response:
            ready.set()
            async for event in events(response):
                heard_tokens.seqs.append(event["seq"])
                if event["kind"] == "text":
                    heard_tokens.token(event["body"]["delta"])
                elif event["kind"] == "said":
                    heard_tokens.whole = [number for number, _ in _tokens(event["body"]["text"])]
                elif event["kind"] == "end":
                    assert event["body"]["why"] == "done", event["body"]
                    return

    async def answer(self, server: Server, chat: str, tokens: int, pause: float) -> TokenTimes:
        """One answer, through any of them."""
        if server is self.ours:
            return await self.turn(chat, tokens, pause)
        heard_tokens = TokenTimes()
        async with self.session.post(server.url, data=f"{tokens} {pause}") as response:
            async for chunk in events(response):
                for choice in chunk["choices"]:
                    heard_tokens.token(choice["delta"].get("content", ""))
        heard_tokens.check(tokens)
        return heard_tokens


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """The data of server-sent events."""
    async for line in response.content:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


# What is measured.


async def first_words(bench: Bench, sizes: Sizes) -> dict[str, dict[str, float]]:
    """From the model's first byte to the page's, by turns."""
    ages: dict[str, list[float]] = {each.name: [] for each in bench.servers}
    for _ in range(sizes.rounds):
        for server in bench.servers:
            ages[server.name].append((await bench.answer(server, await bench.chat(), 3, 0.02)).ages[0])
    return {name: spread(samples) for name, samples in ages.items()}


async def long_answer(bench: Bench, sizes: Sizes) -> dict[str, dict[str, float]]:
    """One answer, as fast as the model can."""
    measurements: dict[str, dict[str, float]] = {}
    for server in bench.servers:
        chat = await bench.chat()
        before, start = server.cpu(), time.perf_counter()
        await bench.answer(server, chat, sizes.tokens, 0)
        seconds = time.perf_counter() - start
        measurements[server.name] = {
            "cpu": (server.cpu() - before) / sizes.tokens,
            "rate": sizes.tokens / seconds,
        }
    return measurements


async def many_turns(bench: Bench, sizes: Sizes) -> dict[str, dict[str, float]]:
    """So many turns at once, each with somebody who listens; every event is checked."""
    tokens, pause, measurements = sizes.turn_tokens, sizes.pause, dict[str, dict[str, float]]()
    chats = [await bench.chat() for _ in range(sizes.turns)]
    for server in bench.servers:
        before, start = server.cpu(), time.perf_counter()
        results = await asyncio.gather(*(bench.answer(server, each, tokens, pause) for each in chats))
        seconds = time.perf_counter() - start
        spent = (server.cpu() - before) / (tokens * len(chats))
        ages = [age for each in results for age in each.ages]
        measurements[server.name] = {**spread(ages), "cpu": spent, "took": seconds}
    return measurements


async def memory(bench: Bench, chat: str, sizes: Sizes) -> float:
    """Bytes by which the process grows with each 10,000 events that it hands out, once it is warm."""

    async def read() -> int:
        count = 0
        async with bench.session.get(f"{bench.url}/api/v1/chats/{chat}/stream") as response:
            async for _ in events(response):
                count += 1
                if count == 2 * sizes.messages:
                    return count
        raise AssertionError(f"the stream ended after {count} events")

    for _ in range(2):
        await read()
    before, count = bench.ours.process.memory_full_info().uss, 0
    for _ in range(sizes.readings):
        count += await read()
    return (bench.ours.process.memory_full_info().uss - before) * 10_000 / count


async def paint(bench: Bench, path: str, times: int) -> float:
    """Seconds until the whole page is there."""

    async def ask() -> float:
        start = time.perf_counter()
        async with bench.session.get(bench.url + path, headers={"Accept": "text/html"}) as response:
            await response.read()
            assert response.status == 200, f"{path}: {response.status}"
        return time.perf_counter() - start

    await ask()
    return median([await ask() for _ in range(times)])


def spread(samples: Sequence[float]) -> dict[str, float]:
    """The median and the hundredth that is slowest."""
    return {"p50": median(samples), "p99": quantiles(samples, n=100)[98] if len(samples) > 1 else samples[0]}


# Running.


@contextlib.asynccontextmanager
async def serving(data: Path, model: str) -> AsyncIterator[Server]:
    """``toolyard serve``, as people start it."""
    models = {"bench": {"model": "openai:bench", "base_url": model, "api_key": "none"}}
    env = {**os.environ, "HOME": str(data), "TOOLYARD_DATA_DIR": str(data)}
    env["TOOLYARD_MODELS"] = json.dumps(models)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolyard", "serve", "--port", "0"),
        env=env,
        cwd=data,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = b""
        while not line.startswith(b"Toolyard is listening on "):
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, "toolyard serve does not start"
        yield Server("toolyard", line.split()[-1].decode().rstrip("/"), psutil.Process(process.pid))
    finally:
        process.terminate()
        await process.wait()


async def run(sizes: Sizes) -> dict[str, Any]:
    """All of it, in one go."""
    async with contextlib.AsyncExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        long, wide = await fill(data, sizes.messages)
        model = await stack.enter_async_context(worker("model", sys.executable, "servers.model"))
        model_url = f"http://127.0.0.1:{model.hello}/v1"
        relays: list[Server] = []
        for name, options in ((FLOOR, ()), ("pydantic-ai, relayed", ("--pydantic-ai",))):
            words = ("peers.relay", model_url, *options)
            relay = await stack.enter_async_context(worker(name, sys.executable, *words))
            process = psutil.Process(relay.process.pid)
            relays.append(Server(name, f"http://127.0.0.1:{relay.hello}/", process))
        ours = await stack.enter_async_context(serving(data, model_url))
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(None)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**22)
        bench = Bench(await stack.enter_async_context(session), ours, relays)
        for server in bench.servers:
            await bench.answer(server, await bench.chat(), 10, 0)
        return {
            "first": await first_words(bench, sizes),
            "answer": await long_answer(bench, sizes),
            "many": await many_turns(bench, sizes),
            "memory": await memory(bench, long, sizes),
            "paint": {
                f"{sizes.messages:,} messages": await paint(bench, f"/ui/chat/{long}", sizes.paints),
                "a tool result of 5 MB": await paint(bench, f"/ui/chat/{wide}", sizes.paints),
            },
        }


# Telling.


def report(measurements: dict[str, Any], sizes: Sizes) -> str:
    """The tables and what they are worth."""
    millis = 1000.0
    floor, ours = (measurements["first"][each] for each in (FLOOR, "toolyard"))
    lines = [["", "first word, ms", "p99, ms", "CPU per token, ms", "tokens/s"]]
    for name, each in measurements["first"].items():
        answer = measurements["answer"][name]
        numbers = (each["p50"] * millis, each["p99"] * millis, answer["cpu"] * millis)
        lines.append([name, *(f"{number:.2f}" for number in numbers), f"{answer['rate']:,.0f}"])
    crowd = [[f"{sizes.turns} turns at once", "age of a word, ms", "p99, ms", "CPU per token, ms", "seconds"]]
    for name, each in measurements["many"].items():
        numbers = (each["p50"] * millis, each["p99"] * millis, each["cpu"] * millis, each["took"])
        crowd.append([name, *(f"{number:.2f}" for number in numbers)])
    extra = (ours["p50"] - floor["p50"]) * millis
    summary_lines = [
        f"- Time from the model's first byte to the page's: {extra:.1f} ms more than through the bare relay.",
        f"- {sizes.turns} concurrent turns, {sizes.turn_tokens} tokens each: no event lost, order preserved.",
        *(f"- {verdict}" for verdict, _ in verdicts(measurements)),
    ]
    return "\n\n".join(["\n".join(summary_lines), table(lines), table(crowd)])


def verdicts(measurements: dict[str, Any]) -> list[tuple[str, bool]]:
    """What has a bar, and whether it is met."""
    grown = measurements["memory"]
    criteria = [
        (
            f"memory growth per 10,000 events read: {grown / 1e6:+.2f} MB, bar {GROWTH / 1e6:.0f} MB",
            grown <= GROWTH,
        )
    ]
    for measure, milliseconds in measurements["paint"].items():
        criteria.append(
            (
                f"first paint, {measure}: {1000 * milliseconds:.0f} ms, bar {1000 * PAINT:.0f} ms",
                milliseconds <= PAINT,
            )
        )
    return [(f"{words}, {'met' if is_met else 'missed'}", is_met) for words, is_met in criteria]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="write every number there")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--strict", action="store_true", help="a missed bar fails the run")
    options = parser.parse_args()
    machine, sizes = describe(), Sizes.quick() if options.quick else Sizes()
    result = asyncio.run(run(sizes))
    about = ", ".join(f"{machine_item} {value}" for machine_item, value in machine.items())
    text = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}. {about}.\n\n{report(result, sizes)}"
    print(text)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, **result}, indent=1) + "\n")
    if options.write_docs:
        DOCS.write_text(replace_between(DOCS.read_text(), START, END, text))
    return 1 if options.strict and not all(is_met for _, is_met in verdicts(result)) else 0


if __name__ == "__main__":
    sys.exit(main())
