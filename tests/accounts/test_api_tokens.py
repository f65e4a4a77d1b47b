"""API tokens: created and shown once, with limited rights."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.accounts import AccountService
from toolyard.accounts.errors import Invalid, NotAllowed
from toolyard.accounts.random_secrets import hash_secret
from toolyard.types.account import Right, Role, TokenScope, User

if TYPE_CHECKING:
    from tests.manual_clock import ManualClock

READ = TokenScope(frozenset({Right.READ}))


@pytest.fixture
async def ann(people: AccountService) -> User:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), "correct horse battery")
    return user


async def test_a_token_names_its_owner_and_its_limits(people: AccountService, ann: User) -> None:
    scope = TokenScope(frozenset({Right.READ, Right.CALL}), ("github",), ("gh_*", "!gh_delete*"), ())
    api_token, text = await people.create_token(ann, "  my\tlaptop ", scope, None)
    assert text.startswith("ty_")
    assert len(text) == 46
    assert api_token.name == "my laptop"
    principal = await people.authenticate_token(text)
    assert principal is not None
    token, user = principal
    assert (token.id, token.scope, user.id) == (api_token.id, scope, ann.id)


async def test_only_the_hash_is_stored(
    people: AccountService, ann: User, database_url: str | None, tmp_path: Path
) -> None:
    _, text = await people.create_token(ann, "x", READ, None)
    if database_url is None:
        with closing(sqlite3.connect(tmp_path / "data/toolyard.db")) as database:
            token_rows = str(database.execute("SELECT * FROM api_tokens").fetchall())
        assert hash_secret(text) in token_rows
        assert text not in token_rows
        assert text.removeprefix("ty_") not in token_rows


@pytest.mark.parametrize("text", ["", "ty_", "ty_" + "A" * 43, "A" * 46, "TY_" + "A" * 43, "ty_" + "é" * 43])
async def test_malformed_api_tokens_are_refused(people: AccountService, ann: User, text: str) -> None:
    await people.create_token(ann, "x", READ, None)
    assert await people.authenticate_token(text) is None


async def test_a_token_ends_when_it_should(
    people: AccountService, ann: User, clock: ManualClock, database: Any
) -> None:
    api_token, text = await people.create_token(ann, "x", READ, 60)
    clock.now += 59
    assert await people.authenticate_token(text)
    clock.now += 2
    assert await people.authenticate_token(text) is None
    _, text = await people.create_token(ann, "y", READ, None)
    assert not await database.accounts.delete_token("somebody else", api_token.id)
    await database.accounts.set_disabled(ann.id, True)
    assert await people.authenticate_token(text) is None
    await database.accounts.set_disabled(ann.id, False)
    assert await people.authenticate_token(text)
    await database.accounts.delete_user(ann.id)
    assert await people.authenticate_token(text) is None


@pytest.mark.parametrize(
    ("name", "scope", "expires_in", "fields"),
    [
        ("", READ, None, ["name"]),
        ("x" * 101, READ, None, ["name"]),
        ("a\0b", READ, 0, ["name", "expires_in"]),
        ("x", READ, -1, ["expires_in"]),
        ("x", READ, float("nan"), ["expires_in"]),
        ("x", READ, float("inf"), ["expires_in"]),
        ("x", TokenScope(frozenset()), None, ["scope.rights"]),
        ("x", replace(READ, servers=("",), tools=("x" * 201,)), None, ["scope.servers", "scope.tools"]),
        ("x", replace(READ, agents=("a",) * 201), None, ["scope.agents"]),
    ],
)
async def test_tokens_that_make_no_sense(
    people: AccountService,
    ann: User,
    name: str,
    scope: TokenScope,
    expires_in: float | None,
    fields: list[str],
) -> None:
    with pytest.raises(Invalid) as exc_info:
        await people.create_token(ann, name, scope, expires_in)
    assert [problem.path for problem in exc_info.value.problems] == fields


async def test_only_admins_make_tokens_for_admins(people: AccountService, ann: User, database: Any) -> None:
    scope = TokenScope(frozenset({Right.ADMIN}))
    with pytest.raises(NotAllowed):
        await people.create_token(ann, "x", scope, None)
    await database.accounts.set_role(ann.id, Role.ADMIN)
    _, text = await people.create_token(replace(ann, role=Role.ADMIN), "x", scope, None)
    await database.accounts.set_role(ann.id, Role.USER)
    principal = await people.authenticate_token(text)
    assert principal is not None
    assert principal[1].role is Role.USER, "the right is worth something only while its owner is an admin"


async def test_when_it_was_last_used_is_known_to_a_minute(
    people: AccountService, ann: User, clock: ManualClock, database: Any
) -> None:
    _, text = await people.create_token(ann, "x", READ, None)
    start = clock.now
    for seconds, usage_times in ((1, 1), (30, 1), (60, 91)):
        clock.now += seconds
        assert await people.authenticate_token(text)
        assert (await database.accounts.list_tokens(ann.id))[0].last_used_at == start + usage_times


async def test_there_is_an_end_to_tokens(people: AccountService, ann: User) -> None:
    for number in range(200):
        await people.create_token(ann, str(number), READ, None)
    with pytest.raises(Invalid, match="already have 200 tokens"):
        await people.create_token(ann, "x", READ, None)


async def test_the_local_users_tokens_count_in_the_mode_none_only(
    make_people: Callable[..., AccountService],
) -> None:
    alone = make_people("none")
    scope = TokenScope(frozenset({Right.READ, Right.ADMIN}))
    _, text = await alone.create_token(await alone.local_user(), "x", scope, None)
    assert await alone.authenticate_token(text)
    for mode in ("password", "proxy", "oidc"):
        later = make_people(mode, oidc_issuer="https://id.example", oidc_client_id="x")
        assert await later.authenticate_token(text) is None


async def test_tokens_of_password_accounts_after_a_change_of_mode_are_judged_by_the_new_settings(
    make_people: Callable[..., AccountService],
) -> None:
    passwords = make_people()
    ann, _ = await passwords.accept_invite(await passwords.invite("ann", Role.ADMIN), "correct horse battery")
    _, text = await passwords.create_token(ann, "x", TokenScope(frozenset({Right.READ, Right.ADMIN})), None)
    # An identity provider names people by their subject, which an account with a password does not have.
    oidc = make_people("oidc", admins=("ann",), oidc_issuer="https://id.example", oidc_client_id="x")
    assert await oidc.authenticate_token(text) is None
    # A proxy names people by the account's name: it is the same person, and the setting now decides on the
    # role.
    for admins, role in (((), Role.USER), (("ann",), Role.ADMIN)):
        principal = await make_people("proxy", admins=admins).authenticate_token(text)
        assert principal is not None
        assert (principal[1].id, principal[1].role) == (ann.id, role)
    principal = await passwords.authenticate_token(text)
    assert principal is not None
    assert principal[1].role is Role.ADMIN


async def test_tokens_of_users_stop_working_once_the_proxy_no_longer_names_them(
    make_people: Callable[..., AccountService], clock: ManualClock
) -> None:
    people = make_people("proxy", proxy_token_days=30)
    ann = await people.authenticate_proxy_name("ann")
    _, text = await people.create_token(ann, "x", READ, None)
    for _ in range(29):
        clock.now += 86_400.0
        assert await people.authenticate_token(text) is not None
    clock.now += 2 * 86_400.0
    assert await people.authenticate_token(text) is None
    assert await make_people("proxy", proxy_token_days=0).authenticate_token(text) is not None
    await people.authenticate_proxy_name("ann")
    assert await people.authenticate_token(text) is not None
    # Access does not end when the clock is set back.
    clock.now -= 365 * 86_400.0
    assert await people.authenticate_token(text) is not None
