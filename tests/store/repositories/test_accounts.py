"""The people of the store, in both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from toolyard.accounts.errors import NameTaken
from toolyard.auth.storage import OAuthGrant, PendingSignIn
from toolyard.store import Database
from toolyard.store.errors import Conflict
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.types.account import ApiToken, BrowserSession, Invite, Right, Role, TokenScope, User
from toolyard.types.registry import Instance

NOW_SECONDS = 1_800_000_000.0
DAY_SECONDS = 86_400.0


def session(user: User, **more: Any) -> BrowserSession:
    return BrowserSession(
        **{"id": "s-1", "user_id": user.id, "created_at": NOW_SECONDS, "expires_at": NOW_SECONDS + 60, **more}
    )


def token(user: User, **more: Any) -> ApiToken:
    scope = TokenScope(frozenset({Right.READ, Right.CALL}), ("github",), ("get_*", "!get_secret"), ())
    return ApiToken(
        **{"id": "t-1", "user_id": user.id, "name": "CI", "scope": scope, "created_at": NOW_SECONDS, **more}
    )


# Users.


async def test_a_user_comes_back_as_they_were_added(database: Database) -> None:
    user = await database.accounts.add_user("Ann", Role.ADMIN, user_id="local", subject="https://idp|1")
    assert user.id == "local"
    assert await database.accounts.get_user("local") == user
    assert await database.accounts.find_user_by_subject("https://idp|1") == user
    assert await database.accounts.find_user_by_subject("https://idp|2") is None
    assert user.role is Role.ADMIN
    assert not user.has_password
    assert not user.disabled


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Ann", "aNN"),
        ("Straße", "STRASSE"),
        ("Ärger", "A\u0308rger"),
        ("ﬁle", "FILE"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("Ｗｉｄｅ", "wide"),
    ],
)
async def test_names_that_look_the_same_are_the_same(database: Database, name: str, same: str) -> None:
    added_user = await database.accounts.add_user(name, Role.USER)
    assert await database.accounts.find_user_by_name(same) == added_user
    with pytest.raises(NameTaken, match="a user named"):
        await database.accounts.add_user(same, Role.USER)
    other = await database.accounts.add_user("Other", Role.USER)
    with pytest.raises(NameTaken):
        await database.accounts.rename_user(other.id, same)
    # One's own name in another spelling is no clash.
    await database.accounts.rename_user(added_user.id, same)
    assert [user.name for user in await database.accounts.list_users()] == sorted(
        ["Other", same], key=str.lower
    )


async def test_a_subject_is_one_person(database: Database) -> None:
    await database.accounts.add_user("Ann", Role.USER, subject="idp|1")
    with pytest.raises(NameTaken):
        await database.accounts.add_user("Bob", Role.USER, subject="idp|1")
    # Many have none.
    await database.accounts.add_user("Bob", Role.USER)
    await database.accounts.add_user("Cid", Role.USER)


async def test_a_name_taken_by_many_at_once_goes_to_one(database: Database) -> None:
    async def take(number: int) -> bool:
        try:
            await database.accounts.add_user("ann" if number % 2 else "ANN", Role.USER)
        except NameTaken:
            return False
        return True

    assert sum(await asyncio.gather(*map(take, range(20)))) == 1


async def test_changes_to_a_user_are_seen(database: Database, ann: User) -> None:
    people = database.accounts
    await people.set_role(ann.id, Role.ADMIN)
    await people.rename_user(ann.id, "Anna")
    await people.touch_user(ann.id, NOW_SECONDS)
    await people.set_password_hash(ann.id, "$argon2id$x")
    await people.set_disabled(ann.id, True)
    assert await people.get_user(ann.id) == replace(
        ann, role=Role.ADMIN, name="Anna", last_seen=NOW_SECONDS, has_password=True, disabled=True
    )
    assert await people.get_password_hash(ann.id) == "$argon2id$x"
    assert await people.find_user_by_name("ann") is None
    await people.set_password_hash(ann.id, None)
    assert await people.get_password_hash(ann.id) is None


async def test_changes_to_unknown_users_change_nothing(database: Database, ann: User) -> None:
    people = database.accounts
    await people.set_role("nobody", Role.ADMIN)
    await people.rename_user("nobody", "Ann")
    await people.delete_user("nobody")
    await people.set_disabled("nobody", True)
    assert await people.get_password_hash("nobody") is None
    assert await people.list_users() == [ann]


# Browsers.


async def test_a_session_is_found_by_its_digest_until_it_ends(database: Database, ann: User) -> None:
    people = database.accounts
    await people.add_session("d1", session(ann))
    assert await people.find_session("d1", NOW_SECONDS) == (session(ann), ann)
    assert await people.find_session("d1", NOW_SECONDS + 60) is None
    assert await people.find_session("d2", NOW_SECONDS) is None
    await people.extend_session("d1", NOW_SECONDS + 120)
    assert await people.find_session("d1", NOW_SECONDS + 60) == (
        session(ann, expires_at=NOW_SECONDS + 120),
        ann,
    )
    await people.end_session("d1")
    await people.extend_session("d1", NOW_SECONDS + 240)
    assert await people.find_session("d1", NOW_SECONDS) is None


async def test_sessions_end_with_the_user_disabled_or_all_at_once(
    database: Database, ann: User, bob: User
) -> None:
    people = database.accounts
    for number, user in enumerate((ann, ann, bob)):
        await people.add_session(f"d{number}", session(user, id=f"s{number}"))
    await people.set_disabled(ann.id, True)
    assert await people.find_session("d0", NOW_SECONDS) is None
    await people.set_disabled(ann.id, False)
    assert await people.find_session("d0", NOW_SECONDS) is None
    assert await people.find_session("d2", NOW_SECONDS) is not None
    await people.end_sessions(bob.id)
    assert await people.find_session("d2", NOW_SECONDS) is None


async def test_sessions_that_have_ended_are_forgotten(
    database: Database, ann: User, rows: Callable[[str], Any]
) -> None:
    await database.accounts.add_session("old", session(ann, id="old", expires_at=1.0))
    await database.accounts.add_session("new", session(ann, id="new", expires_at=NOW_SECONDS * 2))
    assert [row["digest"] for row in await rows("sessions")] == ["new"]


async def test_a_session_of_a_deleted_user_is_a_conflict(database: Database, ann: User) -> None:
    await database.accounts.delete_user(ann.id)
    with pytest.raises(Conflict, match="the record that this belongs to no longer exists"):
        await database.accounts.add_session("d1", session(ann))


# Tokens.


async def test_a_token_comes_back_with_its_scope(database: Database, ann: User) -> None:
    people = database.accounts
    wide = token(
        ann,
        id="t-2",
        scope=TokenScope(frozenset(Right)),
        created_at=NOW_SECONDS + 1,
        expires_at=NOW_SECONDS + 60,
    )
    await people.add_token("d1", token(ann))
    await people.add_token("d2", wide)
    assert await people.find_token("d1", NOW_SECONDS * 2) == (token(ann), ann)
    assert await people.find_token("d2", NOW_SECONDS) == (wide, ann)
    assert await people.find_token("d2", NOW_SECONDS + 60) is None
    assert await people.list_tokens(ann.id) == [wide, token(ann)]
    await people.touch_token("t-1", NOW_SECONDS + 5)
    assert (await people.list_tokens(ann.id))[1].last_used_at == NOW_SECONDS + 5


async def test_a_token_can_be_deleted_by_its_owner_only(database: Database, ann: User, bob: User) -> None:
    people = database.accounts
    await people.add_token("d1", token(ann))
    assert not await people.delete_token(bob.id, "t-1")
    assert await people.list_tokens(bob.id) == []
    assert await people.delete_token(ann.id, "t-1")
    assert not await people.delete_token(ann.id, "t-1")
    assert await people.find_token("d1", NOW_SECONDS) is None


async def test_a_disabled_user_has_tokens_that_do_not_count(database: Database, ann: User) -> None:
    people = database.accounts
    await people.add_token("d1", token(ann))
    await people.set_disabled(ann.id, True)
    assert await people.find_token("d1", NOW_SECONDS) is None
    await people.set_disabled(ann.id, False)
    assert await people.find_token("d1", NOW_SECONDS) is not None


# Invites.


async def test_an_invite_is_looked_at_often_and_taken_once(database: Database, ann: User) -> None:
    people = database.accounts
    invite = Invite(ann.id, NOW_SECONDS + 60)
    await people.put_invite("d1", invite)
    assert await people.find_invite("d1", NOW_SECONDS) == invite
    assert await people.take_invite("d1", NOW_SECONDS + 61) is None
    results = await asyncio.gather(*(people.take_invite("d1", NOW_SECONDS) for _ in range(10)))
    assert [one for one in results if one] == [invite]
    assert await people.find_invite("d1", NOW_SECONDS) is None


async def test_a_later_invite_for_the_same_user_voids_the_earlier(database: Database, ann: User) -> None:
    people = database.accounts
    await people.put_invite("d1", Invite(ann.id, NOW_SECONDS * 2))
    await people.put_invite("d2", Invite(ann.id, NOW_SECONDS * 3))
    assert await people.find_invite("d1", NOW_SECONDS) is None
    assert await people.find_invite("d2", NOW_SECONDS) == Invite(ann.id, NOW_SECONDS * 3)


# Failed sign-ins.


async def test_the_oldest_attempts_are_forgotten_where_there_are_too_many(database: Database) -> None:
    small = SqlAccountStorage(
        database.executor, database.cipher, lambda: NOW_SECONDS, database.signals, max_attempts=5
    )
    for number in range(12):
        await small.add_attempt(f"name {number}", NOW_SECONDS)
    counts = [(await small.count_attempts(f"name {number}", NOW_SECONDS - 1)).count for number in range(12)]
    assert counts == [0] * 7 + [1] * 5


async def test_attempts_of_a_clock_that_was_ahead_do_not_lock_out(database: Database) -> None:
    people = database.accounts
    for ahead in (3_000 * DAY_SECONDS, 2 * 3_600.0):
        await people.add_attempt("name:ann", NOW_SECONDS + ahead)
    await people.add_attempt("name:ann", NOW_SECONDS)
    assert (await people.count_attempts("name:ann", NOW_SECONDS - 300)).count == 1
    # The one of a clock that was days ahead is forgotten, the other one has its time.
    assert (await people.count_attempts("name:ann", NOW_SECONDS + 2 * 3_600.0)).count == 1
    assert (await people.count_attempts("name:ann", NOW_SECONDS + 3_000 * DAY_SECONDS)).count == 0


async def test_attempts_are_counted_by_key_and_time(database: Database) -> None:
    people = database.accounts
    for at in (NOW_SECONDS, NOW_SECONDS + 1, NOW_SECONDS + 2):
        await people.add_attempt("name:ann", at)
    await people.add_attempt("name:bob", NOW_SECONDS)
    assert (await people.count_attempts("name:ann", NOW_SECONDS)).count == 3
    assert (await people.count_attempts("name:ann", NOW_SECONDS + 1)).count == 2
    await people.add_attempt("name:bob", NOW_SECONDS + 1 + DAY_SECONDS)
    assert (await people.count_attempts("name:ann", NOW_SECONDS)).count == 2
    await people.clear_attempts("name:ann")
    assert (await people.count_attempts("name:ann", NOW_SECONDS)).count == 0
    assert (await people.count_attempts("name:bob", NOW_SECONDS + 1 + DAY_SECONDS)).count == 1


async def test_the_key_of_an_attempt_may_be_anything(database: Database, rows: Callable[[str], Any]) -> None:
    for key in ("a\0b", "\ud800", "x" * 100_000):
        await database.accounts.add_attempt(key, NOW_SECONDS)
        assert (await database.accounts.count_attempts(key, NOW_SECONDS)).count == 1
    assert all(len(row["digest"]) == 64 for row in await rows("attempts"))


# Sign-ins at the identity provider.


async def test_a_sign_in_that_was_begun_is_taken_once(database: Database) -> None:
    people = database.accounts
    await people.put_sign_in("d1", b"\0nonce\xff", NOW_SECONDS)
    results = await asyncio.gather(*(people.take_sign_in("d1", NOW_SECONDS - 1) for _ in range(10)))
    assert [one for one in results if one] == [b"\0nonce\xff"]


async def test_an_old_sign_in_is_of_no_use(database: Database, rows: Callable[[str], Any]) -> None:
    people = database.accounts
    await people.put_sign_in("d1", b"x", NOW_SECONDS)
    assert await people.take_sign_in("d1", NOW_SECONDS + 1) is None
    await people.put_sign_in("d2", b"x", NOW_SECONDS)
    await people.put_sign_in("d3", b"x", NOW_SECONDS + DAY_SECONDS + 1)
    assert [row["digest"] for row in await rows("sign_ins")] == ["d3"]


# Leaving.


async def test_a_deleted_user_leaves_nothing_but_the_audit_log(
    database: Database,
    ann: User,
    bob: User,
    instance: Instance,
    grant: OAuthGrant,
    pending: PendingSignIn,
    rows: Callable[[str], Any],
) -> None:
    people, auth = database.accounts, database.auth
    await people.add_session("d1", session(ann))
    await people.add_token("d1", token(ann))
    await people.put_invite("d1", Invite(ann.id, NOW_SECONDS * 2))
    keys = [instance.grant_key, f"user:{ann.id}:files", f"user:{ann.id}0:files", f"user:{bob.id}:files"]
    for key in keys:
        await auth.put_grant(key, grant)
        await auth.put_pending(replace(pending, key=key, state=key))

    await people.delete_user(ann.id)

    assert await people.list_users() == [bob]
    assert {row["key"] for row in await rows("auth_grants")} == set(keys[2:])
    assert {row["key"] for row in await rows("auth_pending")} == set(keys[2:])
    for table in ("sessions", "api_tokens", "invites", "instances"):
        assert await rows(table) == []
    assert await database.registry.get_server(instance.server_id) is not None
