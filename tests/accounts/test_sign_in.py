"""Names and passwords: signing in, links, changing the password, on each database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher

from toolyard.accounts import People
from toolyard.accounts.device_cookies import Device, Devices
from toolyard.accounts.errors import Invalid, NotAllowed, SignInRefused, TooManySignIns
from toolyard.accounts.passwords import Passwords
from toolyard.accounts.startup import first_admin
from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings
from toolyard.types.account import Role, User

if TYPE_CHECKING:
    from tests.accounts.conftest import Clock

HERE, THERE = "192.0.2.1", "198.51.100.7"
PASSWORD = "correct horse battery"


async def _ann(people: People, role: Role = Role.USER) -> User:
    user, _ = await people.accept(await people.invite("Ann", role), PASSWORD)
    return user


async def test_somebody_signs_in_without_regard_to_case(people: People) -> None:
    ann = await _ann(people)
    user, cookie = await people.sign_in(" aNN ", PASSWORD, HERE)
    assert user.id == ann.id
    found = await people.from_cookie(cookie)
    assert found is not None
    assert found[1].id == ann.id


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
async def test_whatever_is_wrong_the_words_are_the_same(people: People, name: str, password: str) -> None:
    await _ann(people)
    with pytest.raises(SignInRefused, match=r"^name or password is wrong\nhint: check both, and try again$"):
        await people.sign_in(name, password, HERE)


async def test_a_disabled_account_is_refused_in_the_same_words(people: People, database: Any) -> None:
    ann = await _ann(people)
    await database.people.disable_user(ann.id, True)
    with pytest.raises(SignInRefused, match="name or password is wrong"):
        await people.sign_in("Ann", PASSWORD, HERE)


async def test_an_account_without_a_password_opens_to_none(people: People) -> None:
    await people.invite("Bob", Role.USER)
    for password in ("", "None", PASSWORD):
        with pytest.raises(SignInRefused):
            await people.sign_in("Bob", password, HERE)


async def test_a_password_is_hashed_anew_when_the_parameters_have_changed(
    people: People, database: Any, clock: Clock
) -> None:
    ann = await _ann(people)
    before = await database.people.password_hash(ann.id)
    dearer = Passwords(PasswordHasher(time_cost=2, memory_cost=16, parallelism=1))
    later = People(database.people, Settings(people_mode=PeopleMode.PASSWORD), clock=clock, passwords=dearer)
    with pytest.raises(SignInRefused):
        await later.sign_in("Ann", "wrong", HERE)
    assert await database.people.password_hash(ann.id) == before
    await later.sign_in("Ann", PASSWORD, HERE)
    assert "m=16,t=2" in await database.people.password_hash(ann.id)
    await later.sign_in("Ann", PASSWORD, HERE)


@pytest.mark.parametrize("mode", ["none", "proxy", "oidc"])
async def test_passwords_count_in_no_other_mode(make_people: Callable[..., People], mode: str) -> None:
    await _ann(make_people())
    people = make_people(mode, oidc_issuer="https://id.example", oidc_client_id="x")
    for doing in (
        people.sign_in("Ann", PASSWORD, HERE),
        people.invite("Ann", Role.USER),
        people.accept("x", PASSWORD),
    ):
        with pytest.raises(NotAllowed, match=f"in the mode {mode}"):
            await doing


# How often.


async def _fail(people: People, name: str, address: str, times: int) -> None:
    for _ in range(times):
        with pytest.raises(SignInRefused):
            await people.sign_in(name, "wrong", address)


async def _wait(people: People, address: str, device: Device | None = None) -> float:
    """The seconds for which an attempt with the right password is refused."""
    with pytest.raises(TooManySignIns) as caught:
        await people.sign_in("aNN", PASSWORD, address, device=device)
    return caught.value.retry_after


async def test_each_failure_makes_the_next_attempt_from_there_wait_longer(
    people: People, clock: Clock
) -> None:
    await _ann(people)
    await _fail(people, "Ann", THERE, 5)
    waits: list[float] = []
    for _ in range(10):
        waits.append(await _wait(people, THERE))
        # Attempts that come too early do not count.
        assert await _wait(people, THERE) == waits[-1]
        clock.now += waits[-1]
        await _fail(people, "Ann", THERE, 1)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    await people.sign_in("Ann", PASSWORD, HERE)
    clock.now += 300
    await people.sign_in("Ann", PASSWORD, THERE)


async def test_strangers_cannot_keep_the_owner_out_of_a_browser_that_is_known(
    people: People, clock: Clock
) -> None:
    ann = await _ann(people)
    devices = Devices(b"a key")
    known, others = devices.read(devices.new(ann.id)), devices.read(devices.new("somebody else"))
    for number in range(60):
        clock.now += 15
        await _fail(people, "Ann", f"203.0.113.{number}", 1)
    assert await _wait(people, HERE) > 0
    assert await _wait(people, HERE, others) > 0, "a device of another account is a stranger's"
    for _ in range(3):
        await people.sign_in("Ann", PASSWORD, HERE, device=known)


async def test_a_known_browser_has_a_counter_of_its_own(people: People) -> None:
    ann = await _ann(people)
    devices = Devices(b"a key")
    one, two = (devices.read(devices.new(ann.id)) for _ in range(2))
    for _ in range(10):
        with pytest.raises(SignInRefused):
            await people.sign_in("Ann", "wrong", HERE, device=one)
    assert await _wait(people, HERE, one) > 0
    await people.sign_in("Ann", PASSWORD, HERE, device=two)


@pytest.mark.parametrize(
    "change", [lambda text: text[:-1], lambda text: "x" + text[1:], lambda _: "", str.upper]
)
def test_a_device_cookie_that_we_did_not_sign_names_no_device(change: Callable[[str], str]) -> None:
    devices = Devices(b"a key")
    text = devices.new("u1")
    assert devices.read(text) is not None
    assert devices.read(change(text)) is None
    assert Devices(b"another key").read(text) is None


@pytest.mark.parametrize("name", ["Ann", "nobody"])
async def test_every_spelling_of_a_name_has_the_same_count(people: People, name: str) -> None:
    await _ann(people)
    wide = "".join(chr(ord(char) + 0xFEE0) for char in name)
    for spelling in (name.upper(), f"  {name} ", wide, f"{name[0]}{wide[1:]}", f"\u3000{wide.upper()}"):
        await _fail(people, spelling, THERE, 1)
    with pytest.raises(TooManySignIns):
        await people.sign_in(name, PASSWORD, THERE)


async def test_names_that_nobody_has_are_limited_too(people: People) -> None:
    await _fail(people, "nobody", THERE, 5)
    with pytest.raises(TooManySignIns):
        await people.sign_in("nobody", "wrong", THERE)


async def test_an_address_that_tries_many_names_waits_whatever_the_name(people: People) -> None:
    await _ann(people)
    for number in range(20):
        await _fail(people, f"name {number}", f"2001:db8:0:1::{number:x}", 1)
    with pytest.raises(TooManySignIns):
        await people.sign_in("Ann", PASSWORD, "2001:db8:0:1::ffff")
    await people.sign_in("Ann", PASSWORD, "2001:db8:0:2::1")


async def test_an_account_of_ones_own_does_not_free_the_address(people: People) -> None:
    await _ann(people)
    for number in range(20):
        await _fail(people, f"name {number}", THERE, 1)
        if number % 5 == 0:
            await people.sign_in("Ann", PASSWORD, THERE)
    with pytest.raises(TooManySignIns):
        await people.sign_in("Ann", PASSWORD, THERE)


async def test_guessing_from_many_places_makes_strangers_wait_seconds_and_a_link_does_not_wait(
    people: People, clock: Clock
) -> None:
    await _ann(people)
    for number in range(100):
        clock.now += 15
        await _fail(people, "Ann", f"203.0.113.{number}", 1)
    assert 0 < await _wait(people, HERE) <= 15
    assert await people.accept(await people.invite("Ann", Role.USER), "another password")
    clock.now += 15
    await people.sign_in("Ann", "another password", HERE)


async def test_the_count_is_shared_by_processes_and_outlives_them(make_people: Callable[..., People]) -> None:
    one, other = make_people(), make_people()
    await _ann(one)
    await _fail(one, "Ann", THERE, 3)
    await _fail(other, "Ann", THERE, 2)
    with pytest.raises(TooManySignIns):
        await make_people().sign_in("Ann", PASSWORD, THERE)


async def test_a_crowd_at_once_gets_no_more_guesses_than_one_after_another(people: People) -> None:
    await _ann(people)
    outcomes = await asyncio.gather(
        *(people.sign_in("Ann", "wrong", THERE) for _ in range(60)), return_exceptions=True
    )
    heard = sum(isinstance(each, SignInRefused) for each in outcomes)
    assert 5 <= heard <= 6, "each process may let as many slip through as it hashes at once"
    assert all(isinstance(each, SignInRefused | TooManySignIns) for each in outcomes)


async def test_a_success_forgets_the_failures_of_its_name(people: People) -> None:
    await _ann(people)
    for _ in range(3):
        await _fail(people, "Ann", HERE, 4)
        await people.sign_in("Ann", PASSWORD, HERE)


# Links.


async def test_a_link_works_once(people: People) -> None:
    text = await people.invite("Ann", Role.ADMIN)
    invited = await people.invited(text)
    assert invited is not None
    assert (invited.name, invited.role) == ("Ann", Role.ADMIN)
    user, cookie = await people.accept(text, PASSWORD)
    assert (user.role, user.has_password) == (Role.ADMIN, True)
    assert await people.from_cookie(cookie)
    assert await people.invited(text) is None
    with pytest.raises(SignInRefused, match="was used before"):
        await people.accept(text, "another password")
    await people.sign_in("Ann", PASSWORD, HERE)


async def test_two_who_use_a_link_at_once_are_one(people: People) -> None:
    text = await people.invite("Ann", Role.USER)
    outcomes = await asyncio.gather(
        *(people.accept(text, f"password number {number}") for number in range(5)), return_exceptions=True
    )
    assert sum(not isinstance(each, BaseException) for each in outcomes) == 1


async def test_a_link_ends_after_a_day_and_with_the_next_one(people: People, clock: Clock) -> None:
    first = await people.invite("Ann", Role.USER)
    second = await people.invite("ann", Role.USER)
    assert await people.invited(first) is None
    clock.now += 86_401
    assert await people.invited(second) is None
    with pytest.raises(SignInRefused):
        await people.accept(second, PASSWORD)


async def test_a_password_that_is_refused_does_not_use_the_link_up(people: People) -> None:
    text = await people.invite("Ann", Role.USER)
    with pytest.raises(Invalid):
        await people.accept(text, "short")
    await people.accept(text, PASSWORD)


@pytest.mark.parametrize("text", ["", "x", "../../etc", "A" * 43, "ä" * 43, "x" * 100_000])
async def test_a_link_that_was_never_made(people: People, text: str) -> None:
    assert await people.invited(text) is None
    with pytest.raises(SignInRefused):
        await people.accept(text, PASSWORD)


async def test_a_link_gives_no_role_to_one_who_exists(people: People, database: Any) -> None:
    ann = await _ann(people, Role.ADMIN)
    text = await people.invite("Ann", Role.ADMIN)
    await database.people.set_role(ann.id, Role.USER)
    user, _ = await people.accept(text, "another password")
    assert (user.id, user.role) == (ann.id, Role.USER)


async def test_a_link_sets_the_password_of_its_own_account_whatever_names_become(
    people: People, database: Any
) -> None:
    admin = await _ann(people, Role.ADMIN)
    text = await people.invite("Bob", Role.USER)
    bob = await people.find("Bob")
    assert bob is not None
    await database.people.rename(bob.id, "Robert")
    await database.people.rename(admin.id, "Bob")
    assert await people.invited(text) is None, "a rename voids the link"
    with pytest.raises(SignInRefused):
        await people.accept(text, "another password")
    await people.sign_in("Bob", PASSWORD, HERE)


async def test_a_link_is_void_once_its_owner_changed_the_password_or_was_disabled(
    people: People, database: Any
) -> None:
    ann = await _ann(people)
    text = await people.invite_user(ann)
    await people.change_password(ann, PASSWORD, "another password", HERE)
    assert await people.invited(text) is None
    text = await people.invite_user(ann)
    await database.people.disable_user(ann.id, True)
    await database.people.disable_user(ann.id, False)
    assert await people.invited(text) is None


async def test_a_link_brings_nobody_back_who_was_deleted_or_disabled(people: People, database: Any) -> None:
    ann = await _ann(people)
    text = await people.invite("Ann", Role.USER)
    await database.people.disable_user(ann.id, True)
    assert await people.invited(text) is None
    with pytest.raises(SignInRefused):
        await people.accept(text, "another password")
    await database.people.disable_user(ann.id, False)
    text = await people.invite("Ann", Role.USER)
    await database.people.delete_user(ann.id)
    with pytest.raises(SignInRefused):
        await people.accept(text, "another password")
    assert await people.find("Ann") is None


async def test_a_new_password_by_link_ends_every_session(people: People) -> None:
    await _ann(people)
    _, old = await people.sign_in("Ann", PASSWORD, HERE)
    _, new = await people.accept(await people.invite("Ann", Role.USER), "another password")
    assert await people.from_cookie(old) is None
    assert await people.from_cookie(new)


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "a\0b", "x" * 101, "two  spaces", "\u202eevil"])
async def test_names_that_cannot_be_one(people: People, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        await people.invite(name, Role.USER)
    assert caught.value.problems[0].path == "name"


# Changing the password.


async def test_changing_the_password_needs_the_old_one_and_signs_other_browsers_out(people: People) -> None:
    ann = await _ann(people)
    _, other = await people.sign_in("Ann", PASSWORD, HERE)
    with pytest.raises(SignInRefused, match="the old password is wrong"):
        await people.change_password(ann, "wrong", "another password", HERE)
    with pytest.raises(Invalid):
        await people.change_password(ann, PASSWORD, "short", HERE)
    assert await people.from_cookie(other)
    cookie = await people.change_password(ann, PASSWORD, "another password", HERE)
    assert await people.from_cookie(other) is None
    assert await people.from_cookie(cookie)
    await people.sign_in("Ann", "another password", HERE)


async def test_a_stolen_session_cannot_guess_the_old_password(people: People) -> None:
    ann = await _ann(people)
    for _ in range(10):
        with pytest.raises(SignInRefused):
            await people.change_password(ann, "wrong", "another password", THERE)
    with pytest.raises(TooManySignIns):
        await people.change_password(ann, PASSWORD, "another password", THERE)


async def test_failures_of_strangers_do_not_keep_the_owner_from_changing_the_password(people: People) -> None:
    ann = await _ann(people)
    await _fail(people, "Ann", HERE, 5)
    assert await _wait(people, HERE) > 0
    await people.change_password(ann, PASSWORD, "another password", HERE)


# The first admin.


async def test_the_first_admin_comes_by_a_link_until_one_can_sign_in(people: People, database: Any) -> None:
    settings, base = Settings(people_mode=PeopleMode.PASSWORD), "http://127.0.0.1:8420"
    first, second = [await first_admin(people, settings, base) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert first.startswith(f"{base}/ui/invite/")
    assert await people.invited(first.rpartition("/")[2]) is None, "a new start, a new link"
    user, _ = await people.accept(second.rpartition("/")[2], PASSWORD)
    assert (user.name, user.role) == ("admin", Role.ADMIN)
    assert await first_admin(people, settings, base) is None
    await database.people.disable_user(user.id, True)
    third = await first_admin(people, settings, base)
    assert third is not None
    other, _ = await people.accept(third.rpartition("/")[2], PASSWORD)
    assert (other.name, other.role) == ("admin-2", Role.ADMIN)


async def test_replicas_that_start_together_all_have_a_first_admin(people: People) -> None:
    settings, base = Settings(people_mode=PeopleMode.PASSWORD), "http://127.0.0.1:8420"
    links = await asyncio.gather(*(first_admin(people, settings, base) for _ in range(3)))
    works = [link for link in links if link and await people.invited(link.rpartition("/")[2])]
    assert len(works) == 1
    user, _ = await people.accept(works[0].rpartition("/")[2], PASSWORD)
    assert (user.name, user.role) == ("admin", Role.ADMIN)


async def test_a_user_who_is_called_admin_does_not_become_one(people: People) -> None:
    await people.accept(await people.invite("Admin", Role.USER), PASSWORD)
    link = await first_admin(people, Settings(people_mode=PeopleMode.PASSWORD), "http://x")
    assert link is not None
    user, _ = await people.accept(link.rpartition("/")[2], PASSWORD)
    assert user.name == "admin-2"


async def test_the_local_user_of_another_mode_is_no_admin_here(make_people: Callable[..., People]) -> None:
    local = await make_people("none").local_user()
    assert local.role is Role.ADMIN
    people = make_people()
    assert not await people.has_admin()
    with pytest.raises(NotAllowed):
        await people.invite(local.name, Role.USER)
