"""Passwords: what is accepted, what is stored, what it costs."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest
from argon2 import PasswordHasher

from toolyard.people.errors import Invalid
from toolyard.people.passwords import Passwords, check_password


@pytest.mark.parametrize(
    "password", ["", "short", "123456789", "x" * 1001, "\N{LATIN SMALL LIGATURE FI}" * 501]
)
def test_too_short_and_too_long_ones_are_refused(password: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_password(password, "new_password")
    assert [problem.path for problem in caught.value.problems] == ["new_password"]
    assert password not in str(caught.value) or not password


@pytest.mark.parametrize("password", ["1234567890", "x" * 1000, "десять букв", "          "])
def test_length_is_all_that_is_asked(password: str) -> None:
    check_password(password)


async def test_a_hash_is_argon2id_and_never_the_same_twice(cheap: Passwords) -> None:
    one, other = await cheap.hash("correct horse"), await cheap.hash("correct horse")
    assert one.startswith("$argon2id$")
    assert one != other
    assert await cheap.verify("correct horse", one)
    assert not await cheap.verify("correct horsf", one)


async def test_the_same_password_from_another_keyboard_fits(cheap: Passwords) -> None:
    stored = await cheap.hash("caf\u00e9 au lait")
    assert await cheap.verify("cafe\u0301 au lait", stored)


@pytest.mark.parametrize("stored", ["", "not a hash", "$argon2id$v=19$m=8,t=1,p=1$broken"])
async def test_a_damaged_hash_fits_nothing(cheap: Passwords, stored: str) -> None:
    assert not await cheap.verify("correct horse", stored)


@pytest.mark.parametrize("password", ["\ud800" * 12, "nul \0 in the middle", "x" * 100_000])
async def test_odd_texts_are_no_accident(cheap: Passwords, password: str) -> None:
    assert not await cheap.verify(password, await cheap.hash("correct horse"))
    assert not await cheap.verify(password, None)


async def test_one_that_is_too_long_does_not_fit_by_its_beginning(cheap: Passwords) -> None:
    assert not await cheap.verify("x" * 1001, await cheap.hash("x" * 1000))


def test_other_parameters_are_outdated(cheap: Passwords) -> None:
    assert cheap.is_outdated(PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash("correct horse"))
    assert not cheap.is_outdated(
        PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("correct horse")
    )


async def test_nothing_stored_costs_as_much_as_a_wrong_password() -> None:
    ours = Passwords()
    stored = await ours.hash("correct horse")

    async def cost(stored: str | None) -> float:
        before = time.process_time()
        assert not await ours.verify("wrong horse battery", stored)
        return time.process_time() - before

    rounds = [(await cost(stored), await cost(None)) for _ in range(5)]
    wrong, nothing = (statistics.median(each) for each in zip(*rounds, strict=True))
    assert 0.7 < nothing / wrong < 1.4, f"{nothing * 1000:.0f} ms beside {wrong * 1000:.0f} ms"
    assert wrong > 0.02, "a password that costs nothing protects nobody"


async def test_the_loop_goes_on_while_a_password_is_hashed() -> None:
    ours, beats = Passwords(), 0
    hashing = asyncio.ensure_future(ours.hash("correct horse"))
    while not hashing.done():
        await asyncio.sleep(0.001)
        beats += 1
    assert beats > 3
