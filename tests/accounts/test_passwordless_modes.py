"""Modes without passwords of our own: the local user, users of a proxy, users of an identity provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from toolyard.accounts import AccountService
from toolyard.accounts.effective_role import Identity, effective_role, resolve_effective_user
from toolyard.accounts.errors import NotAllowed, SignInRefused
from toolyard.accounts.provisioning import parse_identity
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.types.account import Right, Role, TokenScope, User

ISSUER = "https://id.example"


async def test_the_local_user_is_made_once_and_is_an_admin(
    make_people: Callable[..., AccountService],
) -> None:
    one, other = make_people("none"), make_people("none")
    users = await asyncio.gather(*(people.local_user() for people in (one, other, one, other)))
    assert {(user.id, user.role) for user in users} == {("local", Role.ADMIN)}


async def test_another_users_name_does_not_lock_out_the_local_user(
    make_people: Callable[..., AccountService], database: Any
) -> None:
    await database.accounts.add_user("Local User", Role.USER)
    user = await make_people("none").local_user()
    assert (user.id, user.name) == ("local", "local user-2")


async def test_the_proxy_names_people_and_accounts_come_at_first_sight(
    make_people: Callable[..., AccountService],
) -> None:
    people = make_people("proxy", admins=("root",))
    ann, root = await people.authenticate_proxy_name("ann"), await people.authenticate_proxy_name("root")
    assert (ann.role, root.role) == (Role.USER, Role.ADMIN)
    assert (await people.authenticate_proxy_name("ann")).id == ann.id
    crowd = await asyncio.gather(*(people.authenticate_proxy_name("new") for _ in range(10)))
    assert len({user.id for user in crowd}) == 1


async def test_the_setting_decides_at_every_request_who_is_an_admin(
    make_people: Callable[..., AccountService], database: Any
) -> None:
    before = make_people("proxy", admins=("ann",))
    ann = await before.authenticate_proxy_name("ann")
    _, token = await before.create_token(ann, "x", TokenScope(frozenset({Right.ADMIN})), None)
    after = make_people("proxy", admins=("bob",))
    principal = await after.authenticate_token(token)
    assert principal is not None
    assert principal[1].role is Role.USER
    assert (await after.authenticate_proxy_name("ann")).role is Role.USER
    assert (await database.accounts.get_user(ann.id)).role is Role.USER


async def test_another_spelling_of_an_admins_name_is_not_an_admin(
    make_people: Callable[..., AccountService],
) -> None:
    people = make_people("proxy", admins=("ann",))
    assert (await people.authenticate_proxy_name("Ann")).role is Role.USER


async def test_the_setting_admins_leaves_nothing_behind_for_the_mode_password(
    make_people: Callable[..., AccountService], database: Any
) -> None:
    await make_people("proxy", admins=("ann",)).authenticate_proxy_name("ann")
    passwords = make_people()
    ann, cookie = await passwords.accept_invite(
        await passwords.invite("ann", Role.USER), "correct horse battery"
    )
    principal = await passwords.authenticate_cookie(cookie)
    assert principal is not None
    assert (principal[1].id, principal[1].role) == (ann.id, Role.USER)


async def test_an_admin_with_a_password_is_one_again_after_a_time_behind_a_proxy(
    make_people: Callable[..., AccountService],
) -> None:
    passwords = make_people()
    _, cookie = await passwords.accept_invite(
        await passwords.invite("ann", Role.ADMIN), "correct horse battery"
    )
    assert (await make_people("proxy", admins=("bob",)).authenticate_proxy_name("ann")).role is Role.USER
    principal = await passwords.authenticate_cookie(cookie)
    assert principal is not None
    assert principal[1].role is Role.ADMIN
    assert await passwords.has_admin()


@pytest.mark.parametrize(
    "other", ["Ann", "ANN", "\uff41nn", " ann", "ann ", "a\u200bnn", "", "x" * 101, "a\nb"]
)
async def test_another_spelling_is_never_the_same_account(
    make_people: Callable[..., AccountService], other: str
) -> None:
    people = make_people("proxy", admins=("ann",))
    await people.authenticate_proxy_name("ann")
    with pytest.raises(NotAllowed):
        await people.authenticate_proxy_name(other)


async def test_the_proxy_cannot_name_the_local_user_or_one_of_the_provider(
    make_people: Callable[..., AccountService], database: Any
) -> None:
    local = await make_people("none").local_user()
    await database.accounts.add_user("eve", Role.ADMIN, subject=f"{ISSUER}|1")
    people = make_people("proxy")
    for name in (local.name, "eve"):
        with pytest.raises(NotAllowed, match="belongs to another account"):
            await people.authenticate_proxy_name(name)


async def test_a_disabled_account_is_not_opened_by_the_proxy(
    make_people: Callable[..., AccountService], database: Any
) -> None:
    people = make_people("proxy")
    await database.accounts.set_disabled((await people.authenticate_proxy_name("ann")).id, True)
    with pytest.raises(NotAllowed, match="disabled"):
        await people.authenticate_proxy_name("ann")


async def test_other_modes_ignore_the_user_header_of_a_proxy(people: AccountService) -> None:
    with pytest.raises(NotAllowed):
        await people.authenticate_proxy_name("ann")
    with pytest.raises(NotAllowed):
        await people.local_user()


# Users of an identity provider.

ANN = Identity(ISSUER, "248289761001", "ann", "Ann@Example.org")


@pytest.mark.parametrize(
    ("identity", "admins", "admin"),
    [
        (ANN, ("248289761001",), True),
        (ANN, ("ann@example.org",), True),
        (ANN, ("ann",), False),
        (ANN, ("Ann@Example.org.evil",), False),
        (ANN, (), False),
        (replace(ANN, verified_email=None), ("ann@example.org",), False),
        (replace(ANN, name="ann@example.org", verified_email=None), ("ann@example.org",), False),
        (replace(ANN, name="248289761001", sub="1"), ("248289761001",), False),
        (replace(ANN, verified_email=""), ("",), False),
    ],
)
def test_only_claims_that_users_cannot_choose_make_an_admin(
    identity: Identity, admins: tuple[str, ...], admin: bool
) -> None:
    settings = Settings(people_mode=PeopleMode.OIDC, oidc_issuer=ISSUER, oidc_client_id="x", admins=admins)
    email = identity.verified_email and identity.verified_email.casefold()
    user = User("u", identity.name, Role.ADMIN, 0.0, subject=identity.subject, verified_email=email)
    assert effective_role(user, settings) is (Role.ADMIN if admin else Role.USER)


@pytest.mark.parametrize(
    ("claims", "name", "email"),
    [
        ({"preferred_username": "ann", "email": "a@b.c", "email_verified": True}, "ann", "a@b.c"),
        ({"email": "a@b.c", "email_verified": True}, "a@b.c", "a@b.c"),
        ({"email": "a@b.c"}, "a@b.c", None),
        ({"email": "a@b.c", "email_verified": "true"}, "a@b.c", None),
        ({"email": "a@b.c", "email_verified": 1}, "a@b.c", None),
        ({"email": ["a@b.c"], "email_verified": True}, "sub-1", None),
        ({"preferred_username": "  ", "email": 5}, "sub-1", None),
        ({"preferred_username": "a\nb"}, "sub-1", None),
        ({"preferred_username": "x" * 5000}, "x" * 100, None),
    ],
)
def test_names_come_from_claims_that_may_be_anything(
    claims: dict[str, Any], name: str, email: str | None
) -> None:
    identity = parse_identity(ISSUER, {"sub": "sub-1", **claims})
    assert (identity.name, identity.verified_email) == (name, email)
    assert identity.subject == f"{ISSUER}|sub-1"


@pytest.mark.parametrize("sub", [None, "", 5, "x" * 256, "a\0b", ["x"]])
def test_sign_in_without_a_usable_sub_is_refused(sub: Any) -> None:
    with pytest.raises(SignInRefused):
        parse_identity(ISSUER, {"sub": sub, "preferred_username": "ann"})


def test_accounts_of_another_provider_or_mode_do_not_count() -> None:
    settings = Settings(
        people_mode=PeopleMode.OIDC, oidc_issuer=ISSUER, oidc_client_id="x", admins=("1", "a@b.c")
    )
    user = User("u", "ann", Role.ADMIN, 0.0, subject=f"{ISSUER}|1")
    assert resolve_effective_user(user, settings) == user
    assert resolve_effective_user(replace(user, subject=f"{ISSUER}/|auth0|1"), settings), (
        "issuers may end with a slash"
    )
    for subject in ("https://evil.example|1", f"{ISSUER}.evil|1", ISSUER, None):
        assert resolve_effective_user(replace(user, subject=subject, has_password=True), settings) is None
    other_settings = replace(settings, admins=("2", "a@b.c"))
    assert resolve_effective_user(user, other_settings) == replace(user, role=Role.USER)
