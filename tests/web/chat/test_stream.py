"""The stream of a chat: taken up again anywhere without a loss, the same for all who listen, on any replica,
after a kill; and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.web.chat.chat_client import (
    ReceivedEvent,
    Stream,
    answer_text,
    begin,
    models_at,
    of_kind,
    open_stream,
    results_server,
    run,
    say,
)

from toolyard.types.chat import Kind, NewChatEvent, TurnState
from toolyard.web.app import AppTimeouts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import ListeningProgram
    from tests.web.conftest import Opening, Starting

WORDS = " ".join(f"w{n}" for n in range(200))
KEY = "a key that both replicas have"
ANN = {"Remote-User": "ann"}


@pytest.fixture
async def local(open_site: Opening, model_program: ListeningProgram, demo: dict[str, Any]) -> Any:
    site = await open_site({"demo": demo, "chat": results_server()}, models=models_at(model_program.url))
    site.model = model_program
    return site


async def release(client: Any, model: Any) -> None:
    async with client.session.post(f"{model.url}/release") as response:
        assert (await response.json())["released"] == 1


async def read_pieces(stream: Stream, sse_events: list[ReceivedEvent], most: int) -> None:
    """Read so many pieces, or up to the last word."""
    for _ in range(most):
        event = await stream.until("text")
        sse_events.append(event)
        if event.body["delta"].endswith("w199"):
            return


# Taking it up again.


@pytest.mark.parametrize("way", ["last", "after"])
async def test_a_reconnecting_client_misses_and_repeats_nothing(local: Any, way: str) -> None:
    client = local.client()
    chat = await begin(client)
    turn = await say(client, chat, "pace 0.002", f"say {WORDS}", "hold", "say .")
    sse_events: list[ReceivedEvent] = []
    place, most = turn, 1
    while answer_text(sse_events) != WORDS:
        assert WORDS.startswith(answer_text(sse_events))
        async with open_stream(client, chat, **{way: place}) as stream:
            await read_pieces(stream, sse_events, most)
        place, most = sse_events[-1].seq, most + 1
    assert most > 3, "it has to be in the middle, or this proves nothing"
    numbers = [each.seq for each in sse_events]
    assert numbers == sorted(set(numbers))
    async with open_stream(client, chat, **{way: place}) as stream:
        await release(client, local.model)
        await stream.until("end")
    assert answer_text([*sse_events, *stream.seen]) == f"{WORDS}."
    assert min(each.seq for each in stream.seen) > place


async def test_the_header_counts_more_than_the_address(local: Any) -> None:
    """Browsers connect again at the address that they began with, and tell in the header how far they got."""
    client = local.client()
    chat = await begin(client)
    await run(client, chat, "demo_weekday", date="2026-07-28")
    async with open_stream(client, chat) as stream:
        await stream.until("end")
    async with open_stream(client, chat, after=0, last=stream.seen[-2].seq) as again:
        assert (await again.following()) == stream.seen[-1]
    for value in ("x", "-1", str(2**63)):
        headers = {"Last-Event-ID": value}
        assert (await client.get(f"/api/v1/chats/{chat}/stream", headers=headers)).status == 422


async def test_a_client_after_the_end_of_a_turn_gets_the_whole_in_place_of_the_pieces(local: Any) -> None:
    client = local.client()
    chat = await begin(client)
    await say(client, chat, "pace 0.002", f"say {WORDS}", "hold")
    async with open_stream(client, chat) as early:
        sse_events: list[ReceivedEvent] = []
        while answer_text(sse_events) != WORDS:
            sse_events.append(await early.until("text"))
        await release(client, local.model)
        await early.until("end")
    async with open_stream(client, chat, last=sse_events[1].seq) as late:
        await late.until("end")
    assert "text" not in [each.name for each in late.seen]
    assert answer_text([*sse_events[:2], *late.seen]) == answer_text(late.seen) == WORDS


async def test_two_listeners_see_the_same(local: Any) -> None:
    client = local.client()
    chat = await begin(client)
    async with open_stream(client, chat) as one, open_stream(local.client(), chat) as two:
        await say(client, chat, 'call demo_count {"to": 3, "pause": 0}', "then", f"say {WORDS}", "hold")
        for stream in (one, two):
            while WORDS not in answer_text(stream.seen):
                await stream.following()
        await release(client, local.model)
        for stream in (one, two):
            await stream.until("end")
    lasting = [[each for each in stream.seen if each.name != "progress"] for stream in (one, two)]
    assert lasting[0] == lasting[1]
    assert [each.name for each in lasting[0]].count("text") > 1


async def test_a_stream_goes_on_from_turn_to_turn(local: Any) -> None:
    client = local.client()
    chat = await begin(client)
    async with open_stream(client, chat) as stream:
        for _ in range(2):
            await run(client, chat, "demo_weekday", date="2026-07-28")
            await stream.until("end")
    items = (await client.get(f"/api/v1/chats/{chat}/events")).json["items"]
    assert [each.data for each in stream.seen if each.name != "progress"] == items


# Its ends.


async def test_a_chat_that_there_is_not_has_no_stream(local: Any) -> None:
    answer = await local.client().get("/api/v1/chats/0123456789abcdef/stream")
    assert (answer.status, answer.json["type"]) == (404, "urn:toolyard:problem:not-found")


async def test_a_stream_ends_with_its_chat(open_site: Opening, demo: dict[str, Any]) -> None:
    # At once, and not when it is next looked for.
    local = await open_site({"demo": demo}, timeouts=AppTimeouts(heartbeat=600.0))
    client = local.client()
    chat = await begin(client)
    async with open_stream(client, chat) as stream:
        await run(client, chat, "demo_weekday", date="2026-07-28")
        await stream.until("end")
        assert (await client.delete(f"/api/v1/chats/{chat}")).status == 204
        end_event = await stream.following()
        assert end_event is not None
        assert (end_event.name, end_event.data) == ("gone", {})
        assert await stream.following() is None


async def test_a_stream_ends_when_toolyard_stops(local: Any) -> None:
    client = local.client()
    chat = await begin(client)
    async with open_stream(client, chat) as stream:
        await run(client, chat, "demo_weekday", date="2026-07-28")
        await stream.until("end")
        local.services.stop()
        assert await asyncio.wait_for(stream.following(), 30) is None


async def test_a_stream_ends_in_order_when_the_database_does(
    local: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = local.client()
    chat = await begin(client)
    async with open_stream(client, chat) as stream:
        await run(client, chat, "demo_weekday", date="2026-07-28")
        await stream.until("end")
        await local.services.database.close()
        assert await stream.following() is None
    assert "the stream of a chat was ended: the store was closed" in caplog.text
    assert "unexpected" not in caplog.text


async def test_a_stream_ends_with_the_sign_in_and_beats_until_then(
    open_site: Opening,
) -> None:
    team = await open_site(people_mode="password", timeouts=AppTimeouts(heartbeat=0.1))
    ada = await team.person("ada")
    chat = await begin(ada.token)
    async with open_stream(ada.token, chat) as stream:
        reading = asyncio.create_task(stream.following())
        async with asyncio.timeout(30):
            while stream.comments < 3:
                await asyncio.sleep(0.01)
            await team.services.database.accounts.set_disabled(ada.user.id, True)
            assert await reading is None


async def test_the_stream_of_a_page_ends_in_order_with_the_sign_in(
    open_site: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    team = await open_site(people_mode="password", timeouts=AppTimeouts(heartbeat=0.1))
    ada = await team.person("ada")
    chat = await begin(ada.token)
    address, headers = f"{team.url}/ui/chat/{chat}/stream", ada.browser.headers
    async with asyncio.timeout(30), ada.browser.session.get(address, headers=headers) as stream:
        while b"still here" not in await stream.content.readline():
            pass
        await team.services.people.sign_out_everywhere(ada.user)
        await stream.content.read()
    assert "unexpected" not in caplog.text
    assert [each for each in caplog.records if each.exc_info] == []


async def test_a_page_hears_that_a_turn_begins_and_gets_the_entry_of_its_chat_at_the_end(local: Any) -> None:
    client = local.client()
    chat = await begin(client, title="Days")
    async with client.session.get(f"{client.url}/ui/chat/{chat}/stream", headers=client.headers) as response:
        stream = Stream(response)
        await run(client, chat, "demo_weekday", date="2026-07-28")
        while "idle" not in str((await stream.until("changes")).data):
            pass
    first, *later = (list_changes(event.data) for event in stream.seen)
    assert "Working" in first[f"e-{chat}-state"]
    assert "chat-title" not in first
    assert "Working" not in later[-1][f"e-{chat}"]
    assert "Days" in later[-1]["chat-title"]


async def test_a_page_shows_a_new_title_at_the_end_of_the_next_turn(local: Any) -> None:
    client = local.client()
    chat = await begin(client, title="Days")
    async with client.session.get(f"{client.url}/ui/chat/{chat}/stream", headers=client.headers) as response:
        stream = Stream(response)
        for title in ("Days", "Weeks", None):
            if title is not None:
                assert (await client.patch(f"/api/v1/chats/{chat}", {"title": title})).status == 200
            await run(client, chat, "demo_weekday", date="2026-07-28")
            while "idle" not in str((await stream.until("changes")).data):
                pass
            changes = list_changes(stream.seen[-1].data)
            if title is not None:
                assert f"<bdi>{title}</bdi>" in changes["chat-title"]
    # Without a new title, the entry has a new time only.
    assert "just now" in changes[f"e-{chat}-state"]
    assert not {"chat-title", f"e-{chat}"} & changes.keys()


def list_changes(changes: Any) -> dict[str, str]:
    """The new HTML of a page's parts, by id."""
    return {each["id"]: each["html"] for each in changes if "html" in each and "id" in each}


async def test_a_disconnected_client_is_forgotten_at_once(
    local: Any, wait_until: Callable[..., Awaitable[None]]
) -> None:
    client = local.client()
    chat = await begin(client)
    before = asyncio.all_tasks()
    async with open_stream(client, chat) as stream:
        await run(client, chat, "demo_weekday", date="2026-07-28")
        await stream.until("end")
        waiting_tasks = [each for each in asyncio.all_tasks() - before if "wait" in str(each.get_coro())]
        assert waiting_tasks
    await wait_until(lambda: not [each for each in waiting_tasks if not each.done()])


async def test_a_slow_reader_costs_only_the_bytes_on_their_way(
    local: Any, wait_until: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = local.client()
    chat = await begin(client)
    numbers = await fill(local.services.database.chats, chat, count=4_000, size=10_000)
    fetch_count = 0
    waiters = local.services.database.chats.event_waiters
    follow = waiters.follow

    @contextlib.contextmanager
    def follow_with_count(chat_id: str) -> Any:
        with follow(chat_id) as wait:

            async def count(after: int, seconds: float) -> Any:
                nonlocal fetch_count
                state = await wait(after, seconds)
                fetch_count += len(state)
                return state

            yield count

    monkeypatch.setattr(waiters, "follow", follow_with_count)
    reader, writer = await slow(local.url, f"/api/v1/chats/{chat}/stream")
    stands: list[int] = []

    def stands_still() -> bool:
        stands.append(fetch_count)
        return fetch_count > 0 and len(stands) > 50 and len(set(stands[-50:])) == 1

    await wait_until(stands_still, 30)
    assert fetch_count < len(numbers) / 2
    event_ids: list[int] = []
    while len(event_ids) < len(numbers):
        line = await asyncio.wait_for(reader.readline(), 30)
        if line.startswith(b"id: "):
            event_ids.append(int(line[4:]))
    assert event_ids == numbers
    writer.close()
    await writer.wait_closed()


async def fill(store: Any, chat: str, *, count: int, size: int) -> list[int]:
    """Events of a turn, as one that ran would have written them."""
    new_chat_event = NewChatEvent(Kind.USER, {"text": "x", "model": None, "agent": None, "again": None})
    events = list(await store.claim(chat, "nobody", TurnState.IDLE, [new_chat_event], new_turn=True))
    note = NewChatEvent(Kind.NOTE, {"text": "n" * size, "hint": None})
    for _ in range(count // 100):
        events += await store.append(chat, "nobody", [note] * 100)
    events += await store.append(
        chat, "nobody", [NewChatEvent(Kind.END, {"why": "done"})], next_state=TurnState.IDLE
    )
    return [each.seq for each in events]


async def slow(url: str, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Somebody who asks, takes little at a time, and does not begin to read."""
    host, port = url.removeprefix("http://").split(":")
    taking = socket.socket()
    taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    taking.setblocking(False)
    await asyncio.get_running_loop().sock_connect(taking, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=taking, limit=2**16)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


# Another process.


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_listener_on_another_replica_sees_the_same_in_the_same_order(
    serve: Starting, model_program: ListeningProgram, demo: dict[str, Any], postgres_url: str
) -> None:
    env = {
        "TOOLYARD_DATABASE_URL": postgres_url,
        "TOOLYARD_SECRET_KEY": KEY,
        "TOOLYARD_PEOPLE_MODE": "proxy",
        "TOOLYARD_TRUSTED_PROXIES": "127.0.0.1",
        "TOOLYARD_MODELS": json.dumps(models_at(model_program.url)),
        "TOOLYARD_WRITE_TOOLS": "ask",
    }
    config = {"demo": demo, "chat": results_server()}
    replicas = await asyncio.gather(serve(config, **env), serve(config, **env))
    one, two = (client_of(each.url) for each in replicas)
    try:
        chat = await begin(one)
        async with open_stream(one, chat) as here, open_stream(two, chat) as other_stream:
            turn = await say(one, chat, 'call chat_write {"text": "x"}', "then", f"say {WORDS}", "hold")
            event_body = await other_stream.until("ask")
            answer = await two.post(f"/api/v1/approvals/{event_body.body['approval']}", {"yes": True})
            assert answer.status == 204, answer.text
            for stream in (here, other_stream):
                while WORDS not in answer_text(stream.seen):
                    assert await stream.following() is not None
            await release(one, model_program)
            for stream in (here, other_stream):
                await stream.until("end")
            assert lasting(here) == lasting(other_stream)
            assert {each.data["turn"] for each in here.seen} == {turn}
            assert [each.name for each in here.seen].count("text") > 1

            # Said on one, stopped on the other.
            await say(two, chat, "say One", "hold")
            await here.until("text")
            assert (await one.post(f"/api/v1/chats/{chat}/stop")).status == 202
            assert (await other_stream.until("end")).body["why"] == "stopped"
            assert (await here.until("end")).body["why"] == "stopped"
            assert lasting(here) == lasting(other_stream)

            # Deleted on one, gone on the other.
            assert (await one.delete(f"/api/v1/chats/{chat}")).status == 204
            assert (await other_stream.until("gone")).data == {}
    finally:
        await one.close()
        await two.close()


def lasting(stream: Stream) -> list[ReceivedEvent]:
    """What everybody sees: a piece that was gone before somebody looked is in the whole."""
    return [each for each in stream.seen if each.name not in ("progress", "text")]


def client_of(url: str) -> Any:
    from tests.web.conftest import HttpClient

    return HttpClient(url, dict(ANN))


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_killed_server_leaves_an_interrupted_turn_that_can_be_retried(
    serve: Starting, model_program: ListeningProgram, demo: dict[str, Any], tmp_path: Path
) -> None:
    env = {"TOOLYARD_MODELS": json.dumps(models_at(model_program.url))}
    data = tmp_path / "kept"
    site = await serve({"demo": demo}, data=data, **env)
    client = client_of(site.url)
    chat = await begin(client)
    turn = await say(client, chat, "pace 0.002", f"say {WORDS}", "hold", "say .")
    sse_events: list[ReceivedEvent] = []
    async with open_stream(client, chat, after=turn - 1) as stream:
        while answer_text(sse_events) != WORDS:
            sse_events.append(await stream.until("text"))
        os.kill(site.process.pid, signal.SIGKILL)
        with contextlib.suppress(aiohttp.ClientError):
            while await stream.following() is not None:
                pass
    await client.close()
    await site.ended()

    site = await serve({"demo": demo}, data=data, **env)
    client = client_of(site.url)
    try:
        async with open_stream(client, chat, last=sse_events[2].seq) as stream:
            end = await stream.until("end")
            assert (end.body["why"], end.data["turn"]) == ("interrupted", turn)
            assert answer_text([*sse_events[:3], *stream.seen]) == WORDS, "what had arrived is kept"
            assert (await client.get(f"/api/v1/chats/{chat}")).json["state"] == "idle"
            answer = await client.post(f"/api/v1/chats/{chat}/retry")
            assert answer.status == 202, answer.text
            again: list[ReceivedEvent] = []
            while answer_text(again) != WORDS:
                again.append(await stream.until("text"))
            await release_all(client, model_program)
            assert (await stream.until("end")).body["why"] == "done"
        assert (await of_kind(client, chat, "said"))[-1]["body"]["text"] == f"{WORDS}."
    finally:
        await client.close()


async def release_all(client: Any, model: Any) -> None:
    """The one that was killed may still be held."""
    async with client.session.post(f"{model.url}/release") as response:
        assert (await response.json())["released"] >= 1
