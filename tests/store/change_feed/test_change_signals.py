"""Who is told of which change: people who lose something, servers and instances that are different."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.tasks import cancel

from toolyard.store import Database
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL, REVOKED_ACCESS_CHANNEL
from toolyard.types.account import ApiToken, BrowserSession, Right, Role, TokenScope, User
from toolyard.types.registry import Instance, InstanceState, RegistryServer

CollectPayloads = Callable[[str, Awaitable[Any]], Awaitable[list[str]]]


@pytest.fixture
def collect_messages(database: Database, wait_until: Callable[..., Awaitable[None]]) -> CollectPayloads:
    """``await collect_messages(channel, change)``: what is said on a channel while something is changed."""

    async def collect(channel: str, payloads: list[str]) -> None:
        async for payload in database.signals.listen(channel):
            payloads.append(payload)  # noqa: PERF401 - it is read meanwhile

    async def during(channel: str, change: Awaitable[Any]) -> list[str]:
        payloads: list[str] = []
        listening = asyncio.create_task(collect(channel, payloads))
        # Others are heard, and what that leads to has been read.
        await wait_until(lambda: payloads and database.signals.is_listening)
        await asyncio.sleep(0)
        await change
        await database.signals.send(channel, "over")
        await wait_until(lambda: "over" in payloads)
        await cancel(listening)
        return [payload for payload in payloads if payload not in ("", "over")]

    return during


@pytest.fixture
async def token(database: Database, ann: User) -> ApiToken:
    api_token = ApiToken("token-1", ann.id, "t", TokenScope(frozenset({Right.CALL})), 1.0)
    await database.accounts.add_token("digest-1", api_token)
    return api_token


async def test_users_that_lose_a_right_are_named(
    database: Database, ann: User, token: ApiToken, collect_messages: CollectPayloads
) -> None:
    people = database.accounts
    for number in range(3):
        await people.add_session(f"d{number}", BrowserSession(f"s{number}", ann.id, 1.0, 9e9))
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.end_session("d0")) == [ann.id]
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.end_session("d0")) == []
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.end_sessions(ann.id)) == [ann.id]
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.delete_token("somebody", token.id)) == []
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.delete_token(ann.id, token.id)) == [ann.id]
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.set_role(ann.id, Role.ADMIN)) == [ann.id]
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.set_disabled(ann.id, True)) == [ann.id]
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.set_disabled(ann.id, False)) == []
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.delete_user(ann.id)) == [ann.id]


async def test_changes_that_revoke_nothing_are_not_published(
    database: Database, ann: User, token: ApiToken, collect_messages: CollectPayloads
) -> None:
    people = database.accounts
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.touch_user(ann.id, 5.0)) == []
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.touch_token(token.id, 5.0)) == []
    assert (
        await collect_messages(
            REVOKED_ACCESS_CHANNEL, people.add_session("d", BrowserSession("s", ann.id, 1.0, 9e9))
        )
        == []
    )
    assert await collect_messages(REVOKED_ACCESS_CHANNEL, people.extend_session("d", 9e9)) == []


async def test_every_change_of_the_registry_is_told(
    database: Database, server: RegistryServer, ann: User, collect_messages: CollectPayloads
) -> None:
    registry = database.registry
    one = Instance(server.id, "c-header", "slug", "Name", id="instance-1", user_id=ann.id)
    assert await collect_messages(REGISTRY_CHANNEL, registry.add_server(server)) == [server.id]
    assert await collect_messages(REGISTRY_CHANNEL, registry.save_server(replace(server, name="Other"))) == [
        server.id
    ]
    assert (
        await collect_messages(
            REGISTRY_CHANNEL, registry.save_server(replace(server, id="none", name="None"))
        )
        == []
    )
    assert await collect_messages(REGISTRY_CHANNEL, registry.add_instance(one)) == [one.id]
    assert await collect_messages(REGISTRY_CHANNEL, registry.save_instance(replace(one, name="Other"))) == [
        one.id
    ]
    assert await collect_messages(
        REGISTRY_CHANNEL, registry.set_instance_state(one.id, InstanceState.READY, None)
    ) == [one.id]
    assert (
        await collect_messages(
            REGISTRY_CHANNEL, registry.set_instance_state("none", InstanceState.READY, None)
        )
        == []
    )
    assert await collect_messages(REGISTRY_CHANNEL, registry.reset_instances(server.id)) == [server.id]
    assert await collect_messages(REGISTRY_CHANNEL, registry.delete_instance("somebody", one.id)) == []
    assert await collect_messages(REGISTRY_CHANNEL, registry.delete_instance(ann.id, one.id)) == [one.id]
    assert await collect_messages(REGISTRY_CHANNEL, registry.delete_server(server.id)) == [server.id]
