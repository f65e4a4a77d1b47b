"""The weight and speed of a chat's page, measured by ``bench/web.py`` in Chromium with a real ``serve``.

Every load has an empty cache. Loads of all pages, and of another version of Toolyard beside this one, are
interleaved, so that a busy machine slows all of them down alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.async_api import Browser, async_playwright

from harness.processes import ROOT
from harness.report import table
from toolyard import Result
from toolyard.agents.chat.result_event import result_event
from toolyard.store import Database
from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState

__all__ = ["ChatPages", "PageLoad", "measure_chat_pages", "report"]

OWNER, RUNNER = "local", "nobody"
SHORT, LONG = "13 turns", "2,000 events"
TURNS = {SHORT: 13, LONG: 223}
"""Turns of each chat. A turn has nine events."""
MAX_WIRE_BYTES, MAX_FIRST_BYTE_SECONDS = 60_000, 0.030
MAX_RATIO_TO_BASE, MAX_RATIO_OF_LONG_CHAT = 0.7, 1.2
START_SECONDS = 60.0
WARM_UP_ROUNDS = 2
"""Rounds that are not counted: the first loads also load templates and lexers."""


@dataclass(frozen=True)
class PageLoad:
    """One load of a page with an empty cache, in bytes and seconds."""

    wire_bytes: int
    page_bytes: int
    """Of the document alone, as it is sent."""
    requests: int
    elements: int
    first_byte: float
    dom_ready: float
    main_thread: float
    """Time that the page's main thread was busy until it was loaded."""


@dataclass(frozen=True)
class ChatPages:
    """Loads by version and chat. The version ``base`` is there if another one was measured beside this."""

    loads: dict[tuple[str, str], list[PageLoad]]

    def median(self, version: str, chat: str, column: str) -> float:
        return median(getattr(each, column) for each in self.loads[version, chat])

    def ratio(self, column: str, one: tuple[str, str], other: tuple[str, str]) -> float:
        """Return the ratio of the medians of two kinds of loads, which took turns."""
        return self.median(*one, column) / self.median(*other, column)


# The chats. The base version stores them with this same code.


def _turn(number: int) -> Iterator[NewChatEvent]:
    # Text of its own in each turn: repeated text would be compressed to almost nothing.
    rng, matches = random.Random(number), re.findall(r"[a-z]{2,}", (ROOT / "README.md").read_text())

    def write(words: int) -> str:
        return " ".join(rng.choices(matches, k=words))

    rows = [
        {"number": rng.randrange(10_000), "title": write(6), "state": "open", "labels": [write(1)]}
        for _ in range(12)
    ]
    lines = [
        f"{rng.randrange(10**6):06} GET /{write(1)}/{write(1)} {rng.randrange(900)} ms" for _ in range(40)
    ]
    listed_text, log = json.dumps(rows), "\n".join(lines)
    text = f"Turn {number}: {write(14)}?"
    yield NewChatEvent(Kind.USER, {"text": text, "model": "gpt-5-mini", "agent": None, "again": None})
    yield _answer("step-1", f"I will look at {write(12)}.", 2)
    for call, (name, arguments) in enumerate(
        (
            ("tracker_list_issues", {"state": "open", "query": "retries"}),
            ("files_read_log", {"path": "a.log"}),
        )
    ):
        body = {
            "id": f"{number}-{call}",
            "name": name,
            "tool": f"x/{name}",
            "server": name.split("_")[0].title(),
        }
        yield NewChatEvent(Kind.CALL, {**body, "native": False, "title": None, "arguments": arguments})
    for call, output in enumerate((listed_text, log)):
        result = Result(None, output)
        yield result_event(f"{number}-{call}", result, ok=True, seconds=0.3)
    yield _answer("step-2", _ANSWER.format(*(write(words) for words in (5, 40, 6, 9, 6, 9, 30, 30))), 0)
    yield NewChatEvent(Kind.USAGE, {"input": 3515, "output": 112, "cached": 2100, "cost": 0.0021})
    yield NewChatEvent(Kind.END, {"why": "done", "error": None, "hint": None, "seconds": 3.1})


_ANSWER = """## About {}

{}, because its timeout is shorter than the **server's**.

| issue | cause | next step |
|---|---|---|
| 101 | {} | {} |
| 102 | {} | add `random()` to {} |

```python
async def fetch(url: str, attempts: int = 3) -> bytes:
    for attempt in range(attempts):
        with suppress(TimeoutError):
            return await get(url, timeout=30)
        await asyncio.sleep(2**attempt + random())
    raise Unreachable(url)
```

- {}.
- {}.
"""


def _answer(step: str, text: str, calls: int) -> NewChatEvent:
    return NewChatEvent(
        Kind.MODEL_MESSAGE, {"text": text, "reasoning": "", "model": "gpt-5-mini", "calls": calls}, part=step
    )


def _chat_id(chat: str) -> str:
    return f"{TURNS[chat]:024}"


async def fill(data: Path) -> None:
    """Store the chats in a data directory."""
    database = await Database.open(data, url=None, secret_key=None)
    for chat, turns in TURNS.items():
        now = time.time()
        await database.chats.create(Chat(_chat_id(chat), OWNER, f"A chat of {chat}", now, now))
        for number in range(turns):
            begin, *rest = _turn(number)
            assert await database.chats.claim(_chat_id(chat), RUNNER, TurnState.IDLE, [begin], new_turn=True)
            await database.chats.append(_chat_id(chat), RUNNER, rest, next_state=TurnState.IDLE)
    await database.close()


# Measuring.


@contextlib.asynccontextmanager
async def _serve(source: Path, port: int) -> AsyncIterator[str]:
    """Start the version of Toolyard whose package is in ``source``, with its chats; yield its URL."""
    with tempfile.TemporaryDirectory(prefix="bench-chat-page-") as folder:
        env = {**os.environ, "HOME": folder, "TOOLYARD_DATA_DIR": folder, "OPENAI_API_KEY": "none"}
        env |= {"TOOLYARD_MODEL": "openai:gpt-5-mini", "PYTHONPATH": f"{source}{os.pathsep}{ROOT / 'bench'}"}
        subprocess_exec = await asyncio.create_subprocess_exec(sys.executable, __file__, folder, env=env)
        assert await subprocess_exec.wait() == 0, "the chats could not be stored"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolyard", "serve", "--port", str(port)),
            env=env,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    with contextlib.suppress(OSError):
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.close()
                        break
                    await asyncio.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()


async def _load(browser: Browser, url: str) -> PageLoad:
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        sizes: list[int] = []
        session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
        await session.send("Network.enable")
        await session.send("Performance.enable")
        response = await page.goto(url, wait_until="load")
        assert response is not None
        assert response.ok, f"{url}: {response.status}"
        times = await page.evaluate(
            "() => { const [t] = performance.getEntriesByType('navigation');"
            " return [t.responseStart - t.requestStart, t.domContentLoadedEventEnd - t.requestStart,"
            " t.transferSize, document.querySelectorAll('*').length]; }"
        )
        metrics = (await session.send("Performance.getMetrics"))["metrics"]
        busy = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
        return PageLoad(sum(sizes), times[2], len(sizes), times[3], times[0] / 1000, times[1] / 1000, busy)
    finally:
        await context.close()


async def measure_chat_pages(ports: Sequence[int], rounds: int, base: Path | None = None) -> ChatPages:
    """Load each page ``rounds`` times. ``base`` is a working copy of another version to measure too."""
    sources = {"now": ROOT / "src"} | ({} if base is None else {"base": base / "src"})
    browser_path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    loads: dict[tuple[str, str], list[PageLoad]] = {}
    async with contextlib.AsyncExitStack() as stack:
        urls = {
            version: await stack.enter_async_context(_serve(source, port))
            for (version, source), port in zip(sources.items(), ports, strict=False)
        }
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        stack.push_async_callback(browser.close)
        order = [(version, chat) for version in urls for chat in TURNS]
        for number in range(-WARM_UP_ROUNDS, rounds):
            # Shuffled: the page that always followed the heaviest one would be the slower for it.
            for version, chat in random.Random(number).sample(order, len(order)):
                load = await _load(browser, f"{urls[version]}/ui/chat/{_chat_id(chat)}")
                if number >= 0:
                    loads.setdefault((version, chat), []).append(load)
    return ChatPages({each: loads[each] for each in order})


COLUMNS = (
    ("on the wire, KB", "wire_bytes", 0.001, 1),
    ("document, KB", "page_bytes", 0.001, 1),
    ("requests", "requests", 1, 0),
    ("elements", "elements", 1, 0),
    ("first byte, ms", "first_byte", 1000, 1),
    ("DOM ready, ms", "dom_ready", 1000, 0),
    ("main thread, ms", "main_thread", 1000, 0),
)
"""Heading, field, factor and decimals."""


def report(pages: ChatPages) -> tuple[str, bool]:
    """Return the table of all loads with the verdicts, and whether all bars are met."""
    lines = [["chat page", *(heading for heading, *_ in COLUMNS)]]
    for version, chat in pages.loads:
        cells = [
            f"{scale * pages.median(version, chat, column):.{decimals}f}"
            for _, column, scale, decimals in COLUMNS
        ]
        lines.append([chat if version == "now" else f"{chat}, base version", *cells])
    bars = [
        ("on the wire, 13 turns, KB", pages.median("now", SHORT, "wire_bytes") / 1000, MAX_WIRE_BYTES / 1000),
        (
            "first byte, 13 turns, ms",
            1000 * pages.median("now", SHORT, "first_byte"),
            1000 * MAX_FIRST_BYTE_SECONDS,
        ),
        (
            "DOM ready, 2,000 events over 13 turns",
            pages.ratio("dom_ready", ("now", LONG), ("now", SHORT)),
            MAX_RATIO_OF_LONG_CHAT,
        ),
    ]
    if ("base", SHORT) in pages.loads:
        ratio = pages.ratio("dom_ready", ("now", SHORT), ("base", SHORT))
        bars.append(("DOM ready, 13 turns over the base version", ratio, MAX_RATIO_TO_BASE))
    verdicts = [["what", "bar", "measured", ""]]
    verdicts += [
        [column, f"at most {limit:g}", f"{value:.2f}", "met" if value <= limit else "missed"]
        for column, value, limit in bars
    ]
    return f"{table(verdicts)}\n\n{table(lines)}", all(value <= limit for _, value, limit in bars)


if __name__ == "__main__":
    asyncio.run(fill(Path(sys.argv[1])))
