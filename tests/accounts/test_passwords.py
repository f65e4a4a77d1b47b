"""Passwords: accepted values, stored hashes, computing cost."""

from __future__ import annotations

import asyncio
import threading
from typing import Literal

import pytest
from argon2 import PasswordHasher, Type, extract_parameters

from toolyard.accounts.errors import Invalid
from toolyard.accounts.passwords import AsyncPasswordHasher, validate_new_password


@pytest.mark.parametrize(
    "password", ["", "short", "123456789", "x" * 1001, "\N{LATIN SMALL LIGATURE FI}" * 501]
)
def test_too_short_and_too_long_ones_are_refused(password: str) -> None:
    with pytest.raises(Invalid) as exc_info:
        validate_new_password(password, "new_password")
    assert [problem.path for problem in exc_info.value.problems] == ["new_password"]
    assert password not in str(exc_info.value) or not password


@pytest.mark.parametrize("password", ["1234567890", "x" * 1000, "десять букв", "          "])
def test_length_is_all_that_is_asked(password: str) -> None:
    validate_new_password(password)
    with pytest.raises(Invalid):
        validate_new_password(password[:9])


async def test_a_hash_is_argon2id_and_never_the_same_twice(cheap: AsyncPasswordHasher) -> None:
    one, other = await cheap.hash("correct horse"), await cheap.hash("correct horse")
    assert one.startswith("$argon2id$")
    assert one != other
    assert await cheap.verify("correct horse", one)
    assert not await cheap.verify("correct horsf", one)


async def test_the_same_password_from_another_keyboard_fits(cheap: AsyncPasswordHasher) -> None:
    password_hash = await cheap.hash("caf\u00e9 au lait")
    assert await cheap.verify("cafe\u0301 au lait", password_hash)


@pytest.mark.parametrize("password_hash", ["", "not a hash", "$argon2id$v=19$m=8,t=1,p=1$broken"])
async def test_a_damaged_hash_fits_nothing(cheap: AsyncPasswordHasher, password_hash: str) -> None:
    assert not await cheap.verify("correct horse", password_hash)


@pytest.mark.parametrize("password", ["\ud800" * 12, "nul \0 in the middle", "x" * 100_000])
async def test_unusual_passwords_are_handled(cheap: AsyncPasswordHasher, password: str) -> None:
    assert not await cheap.verify(password, await cheap.hash("correct horse"))
    assert not await cheap.verify(password, None)


async def test_one_that_is_too_long_does_not_fit_by_its_beginning(cheap: AsyncPasswordHasher) -> None:
    assert not await cheap.verify("x" * 1001, await cheap.hash("x" * 1000))


def test_other_parameters_are_outdated(cheap: AsyncPasswordHasher) -> None:
    assert cheap.is_outdated(PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash("correct horse"))
    assert not cheap.is_outdated(
        PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("correct horse")
    )


class CountingPasswordHasher(PasswordHasher):
    """Counts the expensive password hashes that it computes."""

    work = 0

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        self.work += 1
        return super().hash(password, salt=salt)

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
        self.work += 1
        return super().verify(hash, password)


async def test_nothing_stored_costs_as_much_as_a_wrong_password() -> None:
    hasher = CountingPasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    ours = AsyncPasswordHasher(hasher)
    password_hash = await ours.hash("correct horse")
    for each in (password_hash, None):
        hasher.work = 0
        assert not await ours.verify("wrong horse battery", each)
        assert hasher.work == 1


async def test_a_password_costs_enough_to_protect_it() -> None:
    costs = extract_parameters(await AsyncPasswordHasher().hash("correct horse"))
    assert costs.type is Type.ID
    assert costs.time_cost * costs.memory_cost >= 2 * 46 * 1024


async def test_the_loop_goes_on_while_a_password_is_hashed() -> None:
    loop, entered, beats = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    class BlockingPasswordHasher(PasswordHasher):
        def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
            loop.call_soon_threadsafe(entered.set)
            assert beats.wait(30), "the loop stands still"
            return super().hash(password, salt=salt)

    hashing = asyncio.ensure_future(
        AsyncPasswordHasher(BlockingPasswordHasher(1, 8, 1)).hash("correct horse")
    )
    await entered.wait()
    assert not hashing.done()
    beats.set()
    assert await hashing
