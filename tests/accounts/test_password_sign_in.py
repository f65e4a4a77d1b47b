"""Names and passwords on each database: sign-in, invitation links, password changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher

from toolyard.accounts import AccountService
from toolyard.accounts.browser_sessions import Device, DeviceCookies
from toolyard.accounts.errors import Invalid, NotAllowed, SignInRefused, TooManySignIns
from toolyard.accounts.passwords import AsyncPasswordHasher
from toolyard.accounts.startup import create_first_admin_link
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.types.account import Role, User

if TYPE_CHECKING:
    from tests.manual_clock import ManualClock

HERE, OTHER_ADDRESS = "192.0.2.1", "198.51.100.7"
PASSWORD = "correct horse battery"


async def _ann(people: AccountService, role: Role = Role.USER) -> User:
    user, _ = await people.accept_invite(await people.invite("Ann", role), PASSWORD)
    return user


async def test_user_names_are_case_insensitive_at_sign_in(people: AccountService) -> None:
    ann = await _ann(people)
    user, cookie = await people.sign_in(" aNN ", PASSWORD, HERE)
    assert user.id == ann.id
    principal = await people.authenticate_cookie(cookie)
    assert principal is not None
    assert principal[1].id == ann.id


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("Ann", "wrong"),
        ("Ann", ""),
        ("Bob", PASSWORD),
        ("", PASSWORD),
        ("\0", "x" * 5000),
        ("x" * 5000, "\ud800"),
    ],
)
async def test_every_sign_in_failure_has_the_same_message(
    people: AccountService, name: str, password: str
) -> None:
    await _ann(people)
    with pytest.raises(SignInRefused, match=r"^name or password is wrong\nhint: check both, and try again$"):
        await people.sign_in(name, password, HERE)


async def test_a_disabled_account_is_refused_in_the_same_words(people: AccountService, database: Any) -> None:
    ann = await _ann(people)
    await database.accounts.set_disabled(ann.id, True)
    with pytest.raises(SignInRefused, match="name or password is wrong"):
        await people.sign_in("Ann", PASSWORD, HERE)


async def test_an_account_without_a_password_opens_to_none(people: AccountService) -> None:
    await people.invite("Bob", Role.USER)
    for password in ("", "None", PASSWORD):
        with pytest.raises(SignInRefused):
            await people.sign_in("Bob", password, HERE)


async def test_a_password_is_rehashed_when_the_parameters_have_changed(
    people: AccountService, database: Any, clock: ManualClock
) -> None:
    ann = await _ann(people)
    before = await database.accounts.get_password_hash(ann.id)
    dearer = AsyncPasswordHasher(PasswordHasher(time_cost=2, memory_cost=16, parallelism=1))
    later = AccountService(
        database.accounts, Settings(people_mode=PeopleMode.PASSWORD), clock=clock, passwords=dearer
    )
    with pytest.raises(SignInRefused):
        await later.sign_in("Ann", "wrong", HERE)
    assert await database.accounts.get_password_hash(ann.id) == before
    await later.sign_in("Ann", PASSWORD, HERE)
    assert "m=16,t=2" in await database.accounts.get_password_hash(ann.id)
    await later.sign_in("Ann", PASSWORD, HERE)


@pytest.mark.parametrize("mode", ["none", "proxy", "oidc"])
async def test_passwords_count_in_no_other_mode(
    make_people: Callable[..., AccountService], mode: str
) -> None:
    await _ann(make_people())
    people = make_people(mode, oidc_issuer="https://id.example", oidc_client_id="x")
    for doing in (
        people.sign_in("Ann", PASSWORD, HERE),
        people.invite("Ann", Role.USER),
        people.accept_invite("x", PASSWORD),
    ):
        with pytest.raises(NotAllowed, match=f"in {mode} mode"):
            await doing


# Rate limits.


async def _fail(people: AccountService, name: str, address: str, times: int) -> None:
    for _ in range(times):
        with pytest.raises(SignInRefused):
            await people.sign_in(name, "wrong", address)


async def _wait(people: AccountService, address: str, device: Device | None = None) -> float:
    """Return the seconds for which an attempt with the right password is refused."""
    with pytest.raises(TooManySignIns) as exc_info:
        await people.sign_in("aNN", PASSWORD, address, device=device)
    return exc_info.value.retry_after


async def test_each_failure_makes_the_next_attempt_from_there_wait_longer(
    people: AccountService, clock: ManualClock
) -> None:
    await _ann(people)
    await _fail(people, "Ann", OTHER_ADDRESS, 5)
    waits: list[float] = []
    for _ in range(10):
        waits.append(await _wait(people, OTHER_ADDRESS))
        # Attempts during the delay do not count.
        assert await _wait(people, OTHER_ADDRESS) == waits[-1]
        clock.now += waits[-1]
        await _fail(people, "Ann", OTHER_ADDRESS, 1)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    await people.sign_in("Ann", PASSWORD, HERE)
    clock.now += 300
    await people.sign_in("Ann", PASSWORD, OTHER_ADDRESS)


async def test_strangers_cannot_keep_the_owner_out_of_a_browser_that_is_known(
    people: AccountService, clock: ManualClock
) -> None:
    ann = await _ann(people)
    devices = DeviceCookies(b"a key")
    known_devices, others = devices.read(devices.issue(ann.id)), devices.read(devices.issue("somebody else"))
    for number in range(60):
        clock.now += 15
        await _fail(people, "Ann", f"203.0.113.{number}", 1)
    assert await _wait(people, HERE) > 0
    assert await _wait(people, HERE, others) > 0, "a device of another account is a stranger's"
    for _ in range(3):
        await people.sign_in("Ann", PASSWORD, HERE, device=known_devices)


async def test_a_known_browser_has_a_counter_of_its_own(people: AccountService) -> None:
    ann = await _ann(people)
    devices = DeviceCookies(b"a key")
    one, two = (devices.read(devices.issue(ann.id)) for _ in range(2))
    for _ in range(10):
        with pytest.raises(SignInRefused):
            await people.sign_in("Ann", "wrong", HERE, device=one)
    assert await _wait(people, HERE, one) > 0
    await people.sign_in("Ann", PASSWORD, HERE, device=two)


@pytest.mark.parametrize(
    "change", [lambda text: text[:-1], lambda text: "x" + text[1:], lambda _: "", str.upper]
)
def test_a_device_cookie_that_we_did_not_sign_names_no_device(change: Callable[[str], str]) -> None:
    devices = DeviceCookies(b"a key")
    text = devices.issue("u1")
    assert devices.read(text) is not None
    assert devices.read(change(text)) is None
    assert DeviceCookies(b"another key").read(text) is None


@pytest.mark.parametrize("name", ["Ann", "nobody"])
async def test_every_spelling_of_a_name_has_the_same_count(people: AccountService, name: str) -> None:
    await _ann(people)
    wide = "".join(chr(ord(char) + 0xFEE0) for char in name)
    for spelling in (name.upper(), f"  {name} ", wide, f"{name[0]}{wide[1:]}", f"\u3000{wide.upper()}"):
        await _fail(people, spelling, OTHER_ADDRESS, 1)
    with pytest.raises(TooManySignIns):
        await people.sign_in(name, PASSWORD, OTHER_ADDRESS)


async def test_unknown_names_are_rate_limited_too(people: AccountService) -> None:
    await _fail(people, "nobody", OTHER_ADDRESS, 5)
    with pytest.raises(TooManySignIns):
        await people.sign_in("nobody", "wrong", OTHER_ADDRESS)


async def test_an_address_that_tries_many_names_waits_for_every_name(people: AccountService) -> None:
    await _ann(people)
    for number in range(20):
        await _fail(people, f"name {number}", f"2001:db8:0:1::{number:x}", 1)
    with pytest.raises(TooManySignIns):
        await people.sign_in("Ann", PASSWORD, "2001:db8:0:1::ffff")
    await people.sign_in("Ann", PASSWORD, "2001:db8:0:2::1")


async def test_an_account_of_ones_own_does_not_free_the_address(people: AccountService) -> None:
    await _ann(people)
    for number in range(20):
        await _fail(people, f"name {number}", OTHER_ADDRESS, 1)
        if number % 5 == 0:
            await people.sign_in("Ann", PASSWORD, OTHER_ADDRESS)
    with pytest.raises(TooManySignIns):
        await people.sign_in("Ann", PASSWORD, OTHER_ADDRESS)


async def test_guessing_from_many_places_makes_strangers_wait_seconds_and_a_link_does_not_wait(
    people: AccountService, clock: ManualClock
) -> None:
    await _ann(people)
    for number in range(100):
        clock.now += 15
        await _fail(people, "Ann", f"203.0.113.{number}", 1)
    assert 0 < await _wait(people, HERE) <= 15
    assert await people.accept_invite(await people.invite("Ann", Role.USER), "another password")
    clock.now += 15
    await people.sign_in("Ann", "another password", HERE)


async def test_the_count_is_shared_by_processes_and_outlives_them(
    make_people: Callable[..., AccountService],
) -> None:
    one, other = make_people(), make_people()
    await _ann(one)
    await _fail(one, "Ann", OTHER_ADDRESS, 3)
    await _fail(other, "Ann", OTHER_ADDRESS, 2)
    with pytest.raises(TooManySignIns):
        await make_people().sign_in("Ann", PASSWORD, OTHER_ADDRESS)


async def test_a_crowd_at_once_gets_no_more_guesses_than_one_after_another(people: AccountService) -> None:
    await _ann(people)
    outcomes = await asyncio.gather(
        *(people.sign_in("Ann", "wrong", OTHER_ADDRESS) for _ in range(60)), return_exceptions=True
    )
    refusal_count = sum(isinstance(each, SignInRefused) for each in outcomes)
    assert 5 <= refusal_count <= 6, "each process may let as many slip through as it hashes at once"
    assert all(isinstance(each, SignInRefused | TooManySignIns) for each in outcomes)


async def test_a_success_forgets_the_failures_of_its_name(people: AccountService) -> None:
    await _ann(people)
    for _ in range(3):
        await _fail(people, "Ann", HERE, 4)
        user, _ = await people.sign_in("Ann", PASSWORD, HERE)
        assert user.name == "Ann"


# Links.


async def test_a_link_works_once(people: AccountService) -> None:
    text = await people.invite("Ann", Role.ADMIN)
    invited_user = await people.find_invited_user(text)
    assert invited_user is not None
    assert (invited_user.name, invited_user.role) == ("Ann", Role.ADMIN)
    user, cookie = await people.accept_invite(text, PASSWORD)
    assert (user.role, user.has_password) == (Role.ADMIN, True)
    assert await people.authenticate_cookie(cookie)
    assert await people.find_invited_user(text) is None
    with pytest.raises(SignInRefused, match="was used before"):
        await people.accept_invite(text, "another password")
    await people.sign_in("Ann", PASSWORD, HERE)


async def test_a_link_used_twice_at_once_creates_one_user(people: AccountService) -> None:
    text = await people.invite("Ann", Role.USER)
    outcomes = await asyncio.gather(
        *(people.accept_invite(text, f"password number {number}") for number in range(5)),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["SignInRefused"] * 4 + ["tuple"]


async def test_a_link_ends_after_a_day_and_with_the_next_one(
    people: AccountService, clock: ManualClock
) -> None:
    first = await people.invite("Ann", Role.USER)
    second = await people.invite("ann", Role.USER)
    assert await people.find_invited_user(first) is None
    clock.now += 86_401
    assert await people.find_invited_user(second) is None
    with pytest.raises(SignInRefused):
        await people.accept_invite(second, PASSWORD)


async def test_a_password_that_is_refused_does_not_use_the_link_up(people: AccountService) -> None:
    text = await people.invite("Ann", Role.USER)
    with pytest.raises(Invalid):
        await people.accept_invite(text, "short")
    await people.accept_invite(text, PASSWORD)


@pytest.mark.parametrize("text", ["", "x", "../../etc", "A" * 43, "ä" * 43, "x" * 100_000])
async def test_a_link_that_was_never_made(people: AccountService, text: str) -> None:
    assert await people.find_invited_user(text) is None
    with pytest.raises(SignInRefused):
        await people.accept_invite(text, PASSWORD)


async def test_a_link_does_not_change_the_role_of_an_existing_user(
    people: AccountService, database: Any
) -> None:
    ann = await _ann(people, Role.ADMIN)
    text = await people.invite("Ann", Role.ADMIN)
    await database.accounts.set_role(ann.id, Role.USER)
    user, _ = await people.accept_invite(text, "another password")
    assert (user.id, user.role) == (ann.id, Role.USER)


async def test_a_link_sets_the_password_of_its_own_account_after_renames(
    people: AccountService, database: Any
) -> None:
    admin = await _ann(people, Role.ADMIN)
    text = await people.invite("Bob", Role.USER)
    bob = await people.find_user("Bob")
    assert bob is not None
    await database.accounts.rename_user(bob.id, "Robert")
    await database.accounts.rename_user(admin.id, "Bob")
    assert await people.find_invited_user(text) is None, "a rename voids the link"
    with pytest.raises(SignInRefused):
        await people.accept_invite(text, "another password")
    await people.sign_in("Bob", PASSWORD, HERE)


async def test_a_link_is_void_once_its_owner_changed_the_password_or_was_disabled(
    people: AccountService, database: Any
) -> None:
    ann = await _ann(people)
    text = await people.invite_user(ann)
    await people.change_password(ann, PASSWORD, "another password", HERE)
    assert await people.find_invited_user(text) is None
    text = await people.invite_user(ann)
    await database.accounts.set_disabled(ann.id, True)
    await database.accounts.set_disabled(ann.id, False)
    assert await people.find_invited_user(text) is None


async def test_a_link_does_not_restore_deleted_or_disabled_users(
    people: AccountService, database: Any
) -> None:
    ann = await _ann(people)
    text = await people.invite("Ann", Role.USER)
    await database.accounts.set_disabled(ann.id, True)
    assert await people.find_invited_user(text) is None
    with pytest.raises(SignInRefused):
        await people.accept_invite(text, "another password")
    await database.accounts.set_disabled(ann.id, False)
    text = await people.invite("Ann", Role.USER)
    await database.accounts.delete_user(ann.id)
    with pytest.raises(SignInRefused):
        await people.accept_invite(text, "another password")
    assert await people.find_user("Ann") is None


async def test_a_new_password_by_link_ends_every_session(people: AccountService) -> None:
    await _ann(people)
    _, old = await people.sign_in("Ann", PASSWORD, HERE)
    _, new = await people.accept_invite(await people.invite("Ann", Role.USER), "another password")
    assert await people.authenticate_cookie(old) is None
    assert await people.authenticate_cookie(new)


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "a\0b", "x" * 101, "two  spaces", "\u202eevil"])
async def test_names_that_cannot_be_one(people: AccountService, name: str) -> None:
    with pytest.raises(Invalid) as exc_info:
        await people.invite(name, Role.USER)
    assert exc_info.value.problems[0].path == "name"


# Password changes.


async def test_changing_the_password_needs_the_old_one_and_signs_other_browsers_out(
    people: AccountService,
) -> None:
    ann = await _ann(people)
    _, other = await people.sign_in("Ann", PASSWORD, HERE)
    with pytest.raises(SignInRefused, match="the old password is wrong"):
        await people.change_password(ann, "wrong", "another password", HERE)
    with pytest.raises(Invalid):
        await people.change_password(ann, PASSWORD, "short", HERE)
    assert await people.authenticate_cookie(other)
    cookie = await people.change_password(ann, PASSWORD, "another password", HERE)
    assert await people.authenticate_cookie(other) is None
    assert await people.authenticate_cookie(cookie)
    await people.sign_in("Ann", "another password", HERE)


async def test_a_stolen_session_cannot_guess_the_old_password(people: AccountService) -> None:
    ann = await _ann(people)
    for _ in range(10):
        with pytest.raises(SignInRefused):
            await people.change_password(ann, "wrong", "another password", OTHER_ADDRESS)
    with pytest.raises(TooManySignIns):
        await people.change_password(ann, PASSWORD, "another password", OTHER_ADDRESS)


async def test_failures_of_strangers_do_not_keep_the_owner_from_changing_the_password(
    people: AccountService,
) -> None:
    ann = await _ann(people)
    await _fail(people, "Ann", HERE, 5)
    assert await _wait(people, HERE) > 0
    await people.change_password(ann, PASSWORD, "another password", HERE)


# The first admin.


async def test_the_first_admin_comes_by_a_link_until_one_can_sign_in(
    people: AccountService, database: Any
) -> None:
    settings, base = Settings(people_mode=PeopleMode.PASSWORD), "http://127.0.0.1:8420"
    first, second = [await create_first_admin_link(people, settings, base) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert first.startswith(f"{base}/ui/invite/")
    assert await people.find_invited_user(first.rpartition("/")[2]) is None, "a new start, a new link"
    user, _ = await people.accept_invite(second.rpartition("/")[2], PASSWORD)
    assert (user.name, user.role) == ("admin", Role.ADMIN)
    assert await create_first_admin_link(people, settings, base) is None
    await database.accounts.set_disabled(user.id, True)
    third = await create_first_admin_link(people, settings, base)
    assert third is not None
    other, _ = await people.accept_invite(third.rpartition("/")[2], PASSWORD)
    assert (other.name, other.role) == ("admin-2", Role.ADMIN)


async def test_replicas_that_start_together_all_have_a_first_admin(people: AccountService) -> None:
    settings, base = Settings(people_mode=PeopleMode.PASSWORD), "http://127.0.0.1:8420"
    links = await asyncio.gather(*(create_first_admin_link(people, settings, base) for _ in range(3)))
    works = [link for link in links if link and await people.find_invited_user(link.rpartition("/")[2])]
    assert len(works) == 1
    user, _ = await people.accept_invite(works[0].rpartition("/")[2], PASSWORD)
    assert (user.name, user.role) == ("admin", Role.ADMIN)


async def test_a_user_named_admin_does_not_become_one(people: AccountService) -> None:
    await people.accept_invite(await people.invite("Admin", Role.USER), PASSWORD)
    link = await create_first_admin_link(people, Settings(people_mode=PeopleMode.PASSWORD), "http://x")
    assert link is not None
    user, _ = await people.accept_invite(link.rpartition("/")[2], PASSWORD)
    assert user.name == "admin-2"


async def test_the_local_user_of_another_mode_is_not_an_admin(
    make_people: Callable[..., AccountService],
) -> None:
    local = await make_people("none").local_user()
    assert local.role is Role.ADMIN
    people = make_people()
    assert not await people.has_admin()
    with pytest.raises(NotAllowed):
        await people.invite(local.name, Role.USER)
