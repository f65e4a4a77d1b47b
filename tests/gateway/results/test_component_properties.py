"""The small parts of the gateway that have laws: states, pages, places, streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.clients import ConnectionManager
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.http.event_streams import EventStream
from toolyard.gateway.input_required.request_state import REQUEST_STATE_SECONDS, RequestStateSealer
from toolyard.gateway.subscriptions import ClientSubscriptions, Subscription
from toolyard.gateway.surface.list_repair import paginate_items
from toolyard.gateway.surface.resources import ResourceMap
from toolyard.protocol.codec import decode, encode, encode_fragment
from toolyard.types.account import Principal
from toolyard.types.server import HttpSpec, Server

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# States.


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_a_state_opens_for_the_same_request_in_any_round(params: dict[str, Any]) -> None:
    sealer = RequestStateSealer()
    sealed_text = sealer.seal({"a": 1}, "ann", "tools/call", {**params, "_meta": 1})
    again = {**params, "_meta": 2, "requestState": sealed_text, "inputResponses": {}}
    assert sealer.open(sealed_text, "ann", "tools/call", again) == {"a": 1}


def test_a_state_opens_for_nothing_else() -> None:
    sealer = RequestStateSealer()
    sealed_text = sealer.seal({}, "ann", "tools/call", {"name": "x"})
    for principal, method, params, text in (
        ("ben", "tools/call", {"name": "x"}, sealed_text),
        ("ann", "prompts/get", {"name": "x"}, sealed_text),
        ("ann", "tools/call", {"name": "y"}, sealed_text),
        ("ann", "tools/call", {"name": "x"}, sealed_text + "="),
        ("ann", "tools/call", {"name": "x"}, "ä"),
        ("ann", "tools/call", {"name": "x"}, 7),
        ("ann", "tools/call", {"name": "x"}, ""),
    ):
        with pytest.raises(RpcErrorResponse):
            sealer.open(text, principal, method, params)
    with pytest.raises(RpcErrorResponse):
        RequestStateSealer().open(sealed_text, "ann", "tools/call", {"name": "x"})


def test_a_state_expires_and_replicas_share_it() -> None:
    now = [1000.0]
    one, other = (RequestStateSealer(b"k" * 32, lambda: now[0]) for _ in range(2))
    sealed_state = one.seal({}, "ann", "m", {})
    now[0] += REQUEST_STATE_SECONDS - 1
    assert other.open(sealed_state, "ann", "m", {}) == {}
    now[0] += 2
    with pytest.raises(RpcErrorResponse, match="expired"):
        other.open(sealed_state, "ann", "m", {})


# Pages.


@given(st.lists(st.integers(), max_size=50), st.integers(1, 7))
def test_pages_hold_every_entry_once_and_in_order(items: list[int], size: int) -> None:
    sizes: list[int] = []
    params: dict[str, Any] = {}
    while True:
        one = paginate_items("x", items, params, size)
        assert len(one["x"]) <= max(size, len(items) if not params else size)
        sizes += one["x"]
        if "nextCursor" not in one:
            break
        params = {"cursor": one["nextCursor"]}
    assert sizes == items


@pytest.mark.parametrize("cursor", ["", "x", "YXQgLTE=", "YXQgMTIzNDU2Nzg5MDEy", 7, {}])
def test_a_cursor_that_was_never_given_is_refused(cursor: object) -> None:
    with pytest.raises(RpcErrorResponse):
        paginate_items("x", [1, 2, 3], {"cursor": cursor})


# Places of resources.

URIS = st.lists(st.sampled_from(["a:1", "a:2", "b:1", "toolyard://one/a:1"]), max_size=4, unique=True)


@given(URIS, URIS)
def test_every_listed_uri_leads_to_the_resource_that_it_is_listed_for(one: list[str], two: list[str]) -> None:
    servers = [Server(name, HttpSpec("http://x")) for name in ("one", "two")]
    named_servers = zip(servers, (one, two), strict=True)
    lists = [(server, [{"uri": uri, "name": server.id} for uri in uris]) for server, uris in named_servers]
    places = ResourceMap.from_listings(lists, [])
    assert len({each["uri"] for each in places.exposed_resources}) == len(one) + len(two)
    for each in places.exposed_resources:
        place = places.find(each["uri"])
        assert place is not None
        assert place[0] == each["name"]
        assert place[1] in (one if each["name"] == "one" else two)


# Streams.


async def collect_stream(stream: EventStream, **options: Any) -> bytes:
    chunks: list[bytes] = []

    async def send(message: Any) -> None:
        chunks.append(message.get("body", b""))

    async with asyncio.timeout(30):
        await stream.write_to(send, **options)
    return b"".join(chunks)


async def test_a_slow_reader_loses_notifications_and_no_answer() -> None:
    stream = EventStream()
    for number in range(5000):
        stream.put({"method": "notifications/progress", "params": {"progress": number}})
    stream.put({"id": 1, "result": {}})
    stream.end()
    body = await collect_stream(stream)
    assert body.count(b"data: ") < 1100
    assert body.endswith(b'data: {"id":1,"result":{}}\n\n')


async def test_a_reader_that_reconnects_gets_the_missed_events() -> None:
    stream = EventStream("s")
    for number in range(3):
        stream.put({"id": number})
    stream.end()
    first = await collect_stream(stream)
    assert first.startswith(b"id: s/0\nretry: ")
    again = await collect_stream(stream, after=1)
    assert b"".join(again.split()) == b'id:s/2data:{"id":1}id:s/3data:{"id":2}'


# What is written once.


@given(JSON, st.integers())
def test_written_events_are_read_back(value: Any, other: int) -> None:
    assert decode(encode({"a": [encode_fragment(value)], "b": other})) == {"a": [value], "b": other}
    assert json.loads(encode(encode_fragment(2**70))) == 2**70


# What servers say unasked.


async def test_messages_of_a_server_are_for_the_principal_of_their_connection() -> None:
    servers = [Server("own", HttpSpec("http://x")), Server("common", HttpSpec("http://x"), shared=True)]
    manager = ConnectionManager(servers)
    hub = ClientSubscriptions(manager)
    notifications: list[tuple[str, str]] = []
    for name in ("ann", "ben"):
        watch = Subscription(
            Principal(name), lambda _: True, lambda method, _, name=name: notifications.append((name, method))
        )
        watch.kinds.add("tools")
        hub.add(watch)
    list_changed = "notifications/tools/list_changed"
    hub.on_notification("own", "ann", list_changed, {})
    assert notifications == [("ann", list_changed)]
    notifications.clear()
    hub.on_notification("common", "local", list_changed, {})
    assert sorted(notifications) == [("ann", list_changed), ("ben", list_changed)]
    notifications.clear()
    hub.on_notification("own", "ann", "notifications/prompts/list_changed", {})
    assert notifications == []
    await hub.close()
    await manager.close_all()
