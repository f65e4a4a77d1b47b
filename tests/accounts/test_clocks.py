"""A clock that was set back or ahead by a year extends nothing and blocks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolyard.accounts.service import AccountService
from toolyard.types.account import Role

if TYPE_CHECKING:
    from tests.accounts.conftest import Clock

YEAR = 366 * 86_400.0
PASSWORD = "correct horse battery"


async def test_a_session_begun_while_the_clock_was_ahead_ends_with_the_correction(
    people: AccountService, clock: Clock
) -> None:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), PASSWORD)
    clock.now += YEAR
    cookie = await people.begin_session(user)
    assert await people.authenticate_cookie(cookie)
    clock.now -= YEAR
    assert await people.authenticate_cookie(cookie) is None


async def test_an_invite_link_made_while_the_clock_was_ahead_is_void(
    people: AccountService, clock: Clock
) -> None:
    clock.now += YEAR
    link = await people.invite("Ann", Role.USER)
    assert await people.find_invited_user(link)
    clock.now -= YEAR
    assert await people.find_invited_user(link) is None


async def test_the_last_visit_is_updated_after_the_clock_was_set_back(
    people: AccountService, clock: Clock
) -> None:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), PASSWORD)
    clock.now += YEAR
    await people.begin_session(user)
    clock.now -= YEAR
    cookie = await people.begin_session(user)
    clock.now += 3600.0
    await people.authenticate_cookie(cookie)
    found = await people.find_user("Ann")
    assert found is not None
    assert found.last_seen == clock.now
