"""Browser sessions: the stored data and its lifetime."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.accounts import AccountService
from toolyard.accounts.browser_sessions import describe_browser
from toolyard.accounts.random_secrets import hash_secret, is_secret
from toolyard.types.account import Role, User

if TYPE_CHECKING:
    from tests.manual_clock import ManualClock

DAY_SECONDS = 86_400


@pytest.fixture
async def ann(people: AccountService) -> User:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), "correct horse battery")
    return user


async def test_every_cookie_is_new_and_only_its_hash_is_stored(
    people: AccountService, ann: User, database_url: str | None, tmp_path: Path
) -> None:
    cookies = {await people.begin_session(ann) for _ in range(5)}
    assert len(cookies) == 5
    assert all(map(is_secret, cookies))
    if database_url is None:
        with closing(sqlite3.connect(tmp_path / "data/toolyard.db")) as database:
            session_rows = str(database.execute("SELECT * FROM sessions").fetchall())
        assert all(hash_secret(cookie) in session_rows and cookie not in session_rows for cookie in cookies)


async def test_a_session_slides_with_visits_and_ends_without(
    people: AccountService, ann: User, clock: ManualClock
) -> None:
    cookie = await people.begin_session(ann)
    for _ in range(2):
        clock.now += 29 * DAY_SECONDS
        assert await people.authenticate_cookie(cookie)
    clock.now += 30 * DAY_SECONDS + 1
    assert await people.authenticate_cookie(cookie) is None


async def test_no_session_lives_longer_than_ninety_days(
    people: AccountService, ann: User, clock: ManualClock
) -> None:
    cookie = await people.begin_session(ann)
    for _ in range(89):
        clock.now += DAY_SECONDS
        assert await people.authenticate_cookie(cookie)
    clock.now += DAY_SECONDS - 1
    assert await people.authenticate_cookie(cookie)
    clock.now += 2
    assert await people.authenticate_cookie(cookie) is None


async def test_the_end_is_moved_once_a_day_and_no_oftener(
    people: AccountService, ann: User, clock: ManualClock, database: Any
) -> None:
    cookie = await people.begin_session(ann)
    ends: list[float] = []
    for _ in range(48):
        clock.now += 3600
        await people.authenticate_cookie(cookie)
        session = await database.accounts.find_session(hash_secret(cookie), clock.now)
        ends.append(session[0].expires_at)
    assert len(set(ends)) == 3


async def test_signing_out_ends_one_browser_and_everywhere_ends_all(
    people: AccountService, ann: User
) -> None:
    one, two, three = [await people.begin_session(ann) for _ in range(3)]
    await people.sign_out(one)
    assert await people.authenticate_cookie(one) is None
    assert await people.authenticate_cookie(two)
    await people.sign_out_everywhere(ann)
    assert await people.authenticate_cookie(two) is None
    assert await people.authenticate_cookie(three) is None
    await people.sign_out("never there")


@pytest.mark.parametrize("text", ["", "x", "A" * 43, "é" * 43, "A" * 42 + "\n", "A" * 10_000])
async def test_a_cookie_that_is_none_of_ours(people: AccountService, text: str) -> None:
    assert await people.authenticate_cookie(text) is None


async def test_disabled_and_deleted_users_are_signed_out_at_once(
    people: AccountService, ann: User, database: Any
) -> None:
    cookie = await people.begin_session(ann)
    await database.accounts.set_disabled(ann.id, True)
    await database.accounts.set_disabled(ann.id, False)
    assert await people.authenticate_cookie(cookie) is None, "the session was ended, not hidden"
    cookie = await people.begin_session(ann)
    await database.accounts.delete_user(ann.id)
    assert await people.authenticate_cookie(cookie) is None


async def test_the_time_of_the_last_visit_is_known_to_minutes(
    people: AccountService, ann: User, clock: ManualClock, database: Any
) -> None:
    cookie, start = await people.begin_session(ann), clock.now
    for seconds, visit_seconds in ((299, 0), (2, 301), (100, 301), (300, 701)):
        clock.now += seconds
        await people.authenticate_cookie(cookie)
        assert (await database.accounts.get_user(ann.id)).last_seen == start + visit_seconds


@pytest.mark.parametrize("mode", ["none", "proxy", "oidc"])
async def test_a_session_of_another_mode_opens_nothing(
    people: AccountService, ann: User, make_people: Callable[..., AccountService], mode: str
) -> None:
    cookie = await people.begin_session(ann)
    later = make_people(mode, oidc_issuer="https://id.example", oidc_client_id="x")
    assert await later.authenticate_cookie(cookie) is None


# Recognition of a user's own browsers.

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"


async def test_people_see_their_browsers_and_sign_out_one(
    people: AccountService, ann: User, clock: ManualClock
) -> None:
    await people.sign_out_everywhere(ann)
    first = await people.begin_session(ann, "192.0.2.1", FIREFOX)
    clock.now += 60
    second = await people.begin_session(ann, "2001:db8:0:1::5", "<script>alert(1)</script>")
    newest, oldest = await people.list_sessions(ann)
    assert (oldest.network, oldest.browser) == ("192.0.2.1", "Firefox on Linux")
    assert (newest.network, newest.browser) == ("2001:db8:0:1::/64", ""), "no text of the header is kept"
    clock.now += 301
    assert await people.authenticate_cookie(first, "198.51.100.7")
    session, _ = await people.list_sessions(ann)
    assert (session.id, session.last_seen, session.network) == (oldest.id, clock.now, "198.51.100.7")
    assert await people.end_session(ann, oldest.id)
    assert not await people.end_session(ann, oldest.id)
    assert await people.authenticate_cookie(first) is None
    assert await people.authenticate_cookie(second)


async def test_users_cannot_sign_out_browsers_of_other_users(
    people: AccountService, ann: User, database: Any
) -> None:
    await people.sign_out_everywhere(ann)
    cookie = await people.begin_session(ann)
    (session,) = await people.list_sessions(ann)
    bob = await database.accounts.add_user("Bob", Role.ADMIN)
    assert await people.list_sessions(bob) == []
    assert not await people.end_session(bob, session.id)
    assert await people.authenticate_cookie(cookie)


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/126.0 Safari/537.36 Edg/126.0", "Edge on Windows"),
        ("Mozilla/5.0 (Linux; Android 14) Chrome/126.0 Mobile Safari/537.36", "Chrome on Android"),
        ("Mozilla/5.0 (iPhone; CPU OS 17_5 like Mac OS X) Safari/604.1", "Safari on iPhone"),
        ("curl/8.5.0", "curl"),
        ("anything else", ""),
        ("", ""),
    ],
)
def test_browsers_have_names_that_people_know(user_agent: str, name: str) -> None:
    assert describe_browser(user_agent) == name
