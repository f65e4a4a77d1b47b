"""Values that a database refuses, or takes for something else: the same answer from both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from toolyard.store import Database
from toolyard.store.errors import Unstorable
from toolyard.types.account import ApiToken, Right, Role, TokenScope, User
from toolyard.types.registry import AuthChoice, AuthKind, Instance, InstanceState, RegistryServer

STRANGE = [
    "'; DROP TABLE users; --",
    '"quoted" \\ back',
    "%like_ :bind ? $1 {format}",
    "\u202egnirts\u2066",
    "👩‍👩‍👧‍👦" * 10,
    "tab\tline\nreturn\r\x01\x7f",
    " leading and trailing ",
    "\ufeff\ufffe\uffff",
    "\U0010ffff",
]
REFUSED_TEXTS = {"NUL": "a\0b", "half a character": "a\ud800b"}


@pytest.mark.parametrize("text", STRANGE)
async def test_strange_texts_come_back_as_they_were(database: Database, ann: User, text: str) -> None:
    user = await database.accounts.add_user(text, Role.USER, subject=text)
    assert await database.accounts.find_user_by_name(text) == user
    assert await database.accounts.find_user_by_subject(text) == user
    server = RegistryServer(
        text,
        text,
        id=text,
        description=text,
        allow_tools=(text, ""),
        choices=(AuthChoice(AuthKind.HEADER, text, id=text),),
    )
    await database.registry.add_server(server)
    assert await database.registry.get_server(text) == server
    instance = Instance(
        text, text, text, text, id=text, user_id=ann.id, value=text, tool_filter=(text,), reason=text
    )
    await database.registry.add_instance(instance)
    assert await database.registry.list_instances(ann.id) == [(instance, server)]
    assert await database.registry.delete_instance(ann.id, text)
    assert await database.registry.delete_server(text)


@pytest.mark.parametrize(("why", "text"), REFUSED_TEXTS.items())
async def test_unstorable_values_are_refused_with_a_message(
    database: Database, ann: User, server: RegistryServer, instance: Instance, why: str, text: str
) -> None:
    token = ApiToken("t", ann.id, text, TokenScope(frozenset({Right.READ})), 1.0)
    scoped_token = replace(token, name="x", scope=TokenScope(frozenset({Right.READ}), tools=("ok", text)))
    twin = replace(instance, id="two", slug="two")
    attempts: list[Callable[[], Awaitable[Any]]] = [
        lambda: database.accounts.add_user(text, Role.USER),
        lambda: database.accounts.add_user("x", Role.USER, subject=text),
        lambda: database.accounts.rename_user(ann.id, text),
        lambda: database.accounts.add_token("d", token),
        lambda: database.accounts.add_token("d", scoped_token),
        lambda: database.accounts.set_verified_email(ann.id, text),
        lambda: database.registry.add_server(replace(server, id="two", name=text)),
        lambda: database.registry.save_server(replace(server, url=text)),
        lambda: database.registry.save_server(replace(server, deny_tools=(text,))),
        lambda: database.registry.save_server(
            replace(server, choices=(replace(server.choices[0], label=text), *server.choices[1:]))
        ),
        lambda: database.registry.add_instance(replace(twin, slug=text)),
        lambda: database.registry.add_instance(replace(twin, tool_filter=(text,))),
        lambda: database.registry.save_instance(replace(instance, name=text)),
        lambda: database.auth.bind_issuer("https://x.example", "us", text, for_secret=True),
    ]
    for attempt in attempts:
        with pytest.raises(Unstorable, match=why) as exc_info:
            await attempt()
        assert text not in str(exc_info.value)
    # Nothing of it was written, not even in part.
    assert [user.name for user in await database.accounts.list_users()] == ["Ann"]
    assert await database.registry.list_servers() == [server]
    assert await database.registry.list_instances(ann.id) == [(instance, server)]
    assert await database.accounts.list_tokens(ann.id) == []


@pytest.mark.parametrize("text", REFUSED_TEXTS.values())
async def test_unstorable_names_match_nothing(
    database: Database, ann: User, instance: Instance, text: str
) -> None:
    people, registry, auth = database.accounts, database.registry, database.auth
    for missing in (
        people.get_user(text),
        people.find_user_by_name(text),
        people.find_user_by_subject(text),
        people.get_password_hash(text),
        people.find_session(text, 1.0),
        people.find_token(text, 1.0),
        people.find_invite(text, 1.0),
        people.take_invite(text, 1.0),
        people.take_sign_in(text, 1.0),
        registry.get_server(text),
        registry.get_instance(text, instance.id),
        registry.get_instance(ann.id, text),
        auth.take_pending(text),
        auth.get_grant(text),
        auth.get_client(text, text),
        auth.get_bound_issuer(text, text, for_secret=False),
    ):
        assert await missing is None
    for nothing in (people.list_tokens(text), registry.list_instances(text)):
        assert list(await nothing) == []
    for operation in (
        people.delete_token(ann.id, text),
        registry.delete_server(text),
        registry.delete_instance(ann.id, text),
    ):
        assert await operation is False
    for quiet in (
        people.set_role(text, Role.ADMIN),
        people.set_disabled(text, True),
        people.delete_user(text),
        people.touch_user(text, 1.0),
        people.touch_token(text, 1.0),
        people.end_session(text),
        people.end_sessions(text),
        registry.set_instance_state(text, InstanceState.READY, None),
        registry.reset_instances(text),
        auth.drop_grant(text),
    ):
        await quiet
    async with auth.refresh_lock(text):
        pass


async def test_names_that_are_too_long_are_refused_alike(
    database: Database, ann: User, server: RegistryServer, instance: Instance
) -> None:
    """An index of PostgreSQL takes 2,704 bytes; SQLite would take anything."""
    long, huge = "é" * 600, "x" * 1_000_001
    for attempt in (
        lambda: database.accounts.add_user(long, Role.USER),
        lambda: database.accounts.rename_user(ann.id, long),
        lambda: database.registry.add_server(replace(server, id="two", name=long)),
        lambda: database.registry.save_server(replace(server, description=huge)),
        lambda: database.registry.add_instance(replace(instance, id="two", slug=long)),
    ):
        with pytest.raises(Unstorable, match="the maximum is"):
            await attempt()
    # The longest that is allowed fits into every index, though each of its characters has four bytes.
    name = "".join(chr(0x20000 + number) for number in range(500))
    user = await database.accounts.add_user(name, Role.USER)
    assert await database.accounts.find_user_by_name(name) == user
    assert await database.accounts.find_user_by_name(long) is None


async def test_large_values_come_back(
    database: Database, ann: User, server: RegistryServer, instance: Instance
) -> None:
    large = "v" * 900_000
    many = tuple(f"tool {number}" for number in range(20_000))
    changed_instance = replace(instance, value=large, tool_filter=many)
    assert await database.registry.save_instance(changed_instance)
    found_instance = await database.registry.get_instance(ann.id, instance.id)
    assert found_instance == (changed_instance, server)
