"""A clock that was set back or ahead by a year neither extends access nor locks people out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from toolyard.accounts.errors import SignInRefused
from toolyard.accounts.service import AccountService
from toolyard.types.account import Right, Role, TokenScope

if TYPE_CHECKING:
    from tests.manual_clock import ManualClock

YEAR_SECONDS = 366 * 86_400.0
PASSWORD = "correct horse battery"


async def test_a_session_begun_while_the_clock_was_ahead_ends_with_the_correction(
    people: AccountService, clock: ManualClock
) -> None:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), PASSWORD)
    clock.now += YEAR_SECONDS
    cookie = await people.begin_session(user)
    assert await people.authenticate_cookie(cookie)
    clock.now -= YEAR_SECONDS
    assert await people.authenticate_cookie(cookie) is None


async def test_an_invite_link_made_while_the_clock_was_ahead_is_void(
    people: AccountService, clock: ManualClock
) -> None:
    clock.now += YEAR_SECONDS
    link = await people.invite("Ann", Role.USER)
    assert await people.find_invited_user(link)
    clock.now -= YEAR_SECONDS
    assert await people.find_invited_user(link) is None


async def test_the_last_visit_is_updated_after_the_clock_was_set_back(
    people: AccountService, clock: ManualClock
) -> None:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), PASSWORD)
    clock.now += YEAR_SECONDS
    await people.begin_session(user)
    clock.now -= YEAR_SECONDS
    cookie = await people.begin_session(user)
    clock.now += 3600.0
    await people.authenticate_cookie(cookie)
    found_user = await people.find_user("Ann")
    assert found_user is not None
    assert found_user.last_seen == clock.now


async def test_failed_sign_ins_while_the_clock_was_ahead_do_not_block_for_a_year(
    people: AccountService, clock: ManualClock
) -> None:
    await people.accept_invite(await people.invite("Ann", Role.USER), PASSWORD)
    clock.now += YEAR_SECONDS
    for _ in range(5):
        with pytest.raises(SignInRefused):
            await people.sign_in("Ann", "wrong password", "192.0.2.1")
    clock.now -= YEAR_SECONDS
    user, _ = await people.sign_in("Ann", PASSWORD, "192.0.2.1")
    assert user.name == "Ann"


async def test_a_token_outlives_a_clock_that_was_wrong_for_a_while_and_is_not_extended(
    people: AccountService, clock: ManualClock
) -> None:
    user, _ = await people.accept_invite(await people.invite("Ann", Role.USER), PASSWORD)
    _, text = await people.create_token(user, "x", TokenScope(frozenset({Right.READ})), 90 * 86_400.0)
    clock.now += YEAR_SECONDS
    assert await people.authenticate_token(text) is None
    clock.now -= YEAR_SECONDS
    assert await people.authenticate_token(text) is not None
    clock.now -= YEAR_SECONDS
    assert await people.authenticate_token(text) is not None
    clock.now += YEAR_SECONDS + 91 * 86_400.0
    assert await people.authenticate_token(text) is None
