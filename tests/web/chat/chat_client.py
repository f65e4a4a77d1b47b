"""Chats from outside: a model that does what it is told, and the stream of a chat's events."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).parents[3]
RESULTS_SERVER = ROOT / "tests/servers/results_server.py"
EVENT_DEADLINE_SECONDS = 30.0
"""Seconds that the next event may take."""


def models_at(url: str) -> dict[str, Any]:
    """The setting that names it."""
    return {"fake": {"model": "openai:fake-1", "base_url": f"{url}/v1", "api_key": "good"}}


def results_server() -> dict[str, Any]:
    """The entry of a server with pictures, questions and something that writes."""
    return {"command": sys.executable, "args": ["-I", "-S", str(RESULTS_SERVER)]}


@dataclass(frozen=True)
class ReceivedEvent:
    """One event of a stream."""

    seq: int
    name: str
    data: dict[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        return self.data["body"]


@dataclass
class Stream:
    """What arrives, one after the other, each within a deadline. None: the stream ended."""

    response: aiohttp.ClientResponse
    seen: list[ReceivedEvent] = field(default_factory=list[ReceivedEvent])
    comments: int = 0

    async def following(self) -> ReceivedEvent | None:
        fields: dict[str, str] = {}
        while True:
            line = (await asyncio.wait_for(self.response.content.readline(), EVENT_DEADLINE_SECONDS)).decode()
            if not line:
                return None
            name, _, value = line.rstrip("\n").partition(": ")
            if line == "\n" and "data" in fields:
                received_event = ReceivedEvent(
                    int(fields.get("id", 0)), fields["event"], json.loads(fields["data"])
                )
                self.seen.append(received_event)
                return received_event
            if line == "\n":
                fields = {}
            elif name:
                fields[name] = value
            else:
                self.comments += 1

    async def until(self, *names: str, times: int = 1) -> ReceivedEvent:
        """Go on until an event of such a name came, so many times."""
        while (sse_event := await self.following()) is not None:
            if sse_event.name in names:
                times -= 1
                if not times:
                    return sse_event
        raise AssertionError(f"the stream ended before {names}; it had {[each.name for each in self.seen]}")


@asynccontextmanager
async def open_stream(
    client: Any, chat: str, *, after: int | None = None, last: int | None = None
) -> AsyncIterator[Stream]:
    """The stream of a chat, from an event on that the address names, or the header."""
    query = "" if after is None else f"?after={after}"
    headers = {**client.headers, **({} if last is None else {"Last-Event-ID": str(last)})}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=EVENT_DEADLINE_SECONDS)
    url = f"{client.url}/api/v1/chats/{chat}/stream{query}"
    async with client.session.get(url, headers=headers, timeout=timeout) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def begin(client: Any, **values: Any) -> str:
    """A chat, by its id."""
    answer = await client.post("/api/v1/chats", values)
    assert answer.status == 201, answer.text
    return answer.json["id"]


async def say(client: Any, chat: str, *lines: str) -> int:
    """Tell the model what to do; the turn's number."""
    answer = await client.post(f"/api/v1/chats/{chat}/messages", {"text": "\n".join(lines)})
    assert answer.status == 202, answer.text
    return answer.json["turn"]


async def run(client: Any, chat: str, name: str, **arguments: Any) -> int:
    """Call a tool without a model; the turn's number."""
    body = {"name": name, "arguments": arguments}
    answer = await client.post(f"/api/v1/chats/{chat}/runs", body)
    assert answer.status == 202, answer.text
    return answer.json["turn"]


async def wait_for_end(client: Any, chat: str, after: int = 0) -> list[ReceivedEvent]:
    """All events of a stream up to the end of a turn that begins after a number."""
    async with open_stream(client, chat, after=after) as stream:
        await stream.until("end")
        return stream.seen


async def of_kind(client: Any, chat: str, kind: str) -> list[dict[str, Any]]:
    """The events of a kind, as the list has them."""
    items = (await client.get(f"/api/v1/chats/{chat}/events?limit=1000")).json["items"]
    return [each for each in items if each["kind"] == kind]


def answer_text(events: Iterable[ReceivedEvent]) -> str:
    """What the model says to somebody who reads these events one after the other: pieces as they come, and
    the whole in their place."""
    parts: dict[tuple[int, str], str] = {}
    for event in events:
        part = (event.data["turn"], event.data["part"])
        if event.name == "text":
            parts[part] = parts.get(part, "") + event.body["delta"]
        elif event.name == "said":
            parts[part] = event.body["text"]
    return "\n".join(parts.values())
