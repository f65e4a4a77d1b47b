"""Measure how long the worst inputs of servers and callers block the event loop.

python bench/loop.py [NAME…]

In each case, a second task counts the iterations of the event loop. The time is this process's CPU time
between two iterations, so that other processes on the machine do not distort it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from harness.processes import ROOT
from harness.report import table
from toolyard.agents.builtin_tools.web_fetch import decode_body
from toolyard.agents.chat.markdown_export import format_code_fence
from toolyard.catalog.listing_codec import validate_listing
from toolyard.catalog.lock import LOCK_FILE_NAME, LockFile, build_pins, write_lock
from toolyard.catalog.lock.pins import Pin, ServerPins, pack_pins
from toolyard.catalog.search import SearchIndex
from toolyard.catalog.tool_validation import validate_tools
from toolyard.protocol.codec import encode_large_members
from toolyard.protocol.framing import SSE_STEP_BYTES, LineFramer, SseParser
from toolyard.protocol.incremental_decoder import MessageLimitExceeded, decode_message
from toolyard.results import ResultLimits
from toolyard.results.model_result import shape_and_store
from toolyard.results.redaction import redact_secrets
from toolyard.results.result_store import MemoryResultStore
from toolyard.types.server import Trust
from toolyard.types.tool import Definition, RawListing, ValidatedListing
from toolyard.types.visible_text import visible
from toolyard.web.middleware.request_body import has_too_many_values
from toolyard.web.rendering.markdown_blocks import split_blocks
from toolyard.web.ui.chat.fragments import FragmentContext

sys.path.append(str(ROOT))

from tests.loop_watch import LoopWatch

MAX_MILLISECONDS = 150
MB = 1_000_000
TOOLS: list[dict[str, Any]] = [
    {"name": f"t{number}", "description": f"word{number} " * 500, "inputSchema": {"type": "object"}}
    for number in range(10_000)
]


async def decode(data: bytes) -> None:
    with contextlib.suppress(MessageLimitExceeded):
        await decode_message(data)


async def shape(text: str, *, is_error: bool = False) -> None:
    raw = {"content": [{"type": "text", "text": text}], "isError": is_error}
    await shape_and_store(raw, ResultLimits(), Trust.UNTRUSTED, MemoryResultStore())


async def parse_events(data: bytes) -> None:
    parser = SseParser(64 * MB)
    for start in range(0, len(data), SSE_STEP_BYTES):
        parser.feed(data[start : start + SSE_STEP_BYTES])
        await asyncio.sleep(0)


async def call(work: Callable[..., object], *arguments: object) -> None:
    work(*arguments)


def index_tools() -> None:
    index = SearchIndex()
    index.put(
        "s", {each["name"]: Definition("s", each["name"], None, each["description"], {}) for each in TOOLS}
    )
    index.search("word17", 10)


def load_lock(folder: Path) -> None:
    contents = ValidatedListing("s", "h", RawListing(), validate_tools("s", TOOLS).definitions)
    write_lock(folder / LOCK_FILE_NAME, {"s": build_pins(contents)})
    LockFile(folder / LOCK_FILE_NAME).quarantine_reasons(contents)


async def reload_lock() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(load_lock, Path(folder))


def pack_tools() -> None:
    pack_pins(ServerPins({each["name"]: Pin("", each) for each in TOOLS}))


CASES: dict[str, Callable[[], Awaitable[object]]] = {
    "message: 20 million empty lists": lambda: decode(b"[" + b"[]," * (20 * MB) + b"[]]"),
    "message: one string of 60 MB": lambda: decode(b'["' + b"x" * (60 * MB) + b'"]'),
    "result: text of 60 MB": lambda: shape("a b\n" * (15 * MB)),
    "result: error of 5 MB with secrets": lambda: shape("token=abc def\n" * (MB // 3), is_error=True),
    "events: 4 MB of empty lines": lambda: parse_events(b"\n" * (4 * MB)),
    "events: 4 MB of ids": lambda: parse_events(b"id\n\n" * MB),
    "tools: 10,000 with long texts, validate": lambda: asyncio.to_thread(
        validate_listing, "s", RawListing(tools=tuple(TOOLS)), None
    ),
    "tools: 10,000 with long texts, index": lambda: asyncio.to_thread(index_tools),
    "tools: 10,000 with long texts, mcp.lock": reload_lock,
    "export: result of 40 MB with code": lambda: asyncio.to_thread(format_code_fence, "` " * (20 * MB)),
    "tools: 10,000 with long texts, pin": lambda: asyncio.to_thread(pack_tools),
    "request body: escaped quotes, 8 MB": lambda: call(
        has_too_many_values, b'["' + rb"\"," * (8 * MB // 3) + b'"]'
    ),
    "page: 200,000 characters of fences": lambda: asyncio.to_thread(
        split_blocks, "- a ```\n\n* b\n\n+ c\n\n" * 10_526
    ),
    "question: 100,000 hidden characters": lambda: call(visible, "x\u200d" * 50_000),
    "page: a million letters with accents": lambda: call(visible, "\u00e9" * MB),
    "page: a million hidden characters": lambda: asyncio.to_thread(visible, "\ufe0f" * MB),
    "web_fetch: 4 MB that are not valid": lambda: asyncio.to_thread(
        decode_body, b"\x81" * (4 * MB), "cp1252"
    ),
    "approval: arguments of 256 KB": lambda: asyncio.to_thread(
        FragmentContext.to_approve, {"a": [{"b": "\ufe0f" * 20}] * 2_000}
    ),
    "HTTP error: body of 64 KB with secrets": lambda: call(redact_secrets, '"token":"' * 7_000, ["secret"]),
    "stderr: 256 KB of blank lines": lambda: call(LineFramer(64 * 1024).feed, b"\n" * 256 * 1024),
    "response: text of 60 MB with line breaks": lambda: encode_large_members({"text": "\n" * (30 * MB)}),
    "response: 1,500 integers of 4,200 digits": lambda: encode_large_members({"a": [10**4200] * 1_500}),
    "response: 60 MB with an unpaired surrogate": lambda: encode_large_members(
        {"text": "x" * (60 * MB) + "\ud800"}
    ),
}


async def main(names: Sequence[str]) -> None:
    lines = [["case", "longest wait, CPU, ms", ""]]
    for name, start in CASES.items():
        if names and not any(each in name for each in names):
            continue
        work = start()  # builds the input, which is not measured
        async with LoopWatch() as watch:
            await work
        milliseconds = watch.longest_seconds * 1_000
        lines.append([name, f"{milliseconds:.0f}", "" if milliseconds <= MAX_MILLISECONDS else "too long"])
    print(table(lines))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
