"""People on a real database, with a clock that the test moves and passwords that cost little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from argon2 import PasswordHasher

from toolyard.accounts import AccountService
from toolyard.accounts.passwords import AsyncPasswordHasher
from toolyard.config.settings.table import PeopleMode, Settings


@dataclass
class Clock:
    """Seconds since the epoch, as the test has them."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cheap() -> AsyncPasswordHasher:
    """Real Argon2, with the least that it takes."""
    return AsyncPasswordHasher(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@pytest.fixture
def make_people(database: Any, clock: Clock, cheap: AsyncPasswordHasher) -> Callable[..., AccountService]:
    """``make_people("proxy", admins=("ann",))``: one process's view of the database."""

    def make(mode: str = "password", **settings: Any) -> AccountService:
        chosen = Settings(people_mode=PeopleMode(mode), **settings)
        return AccountService(database.accounts, chosen, clock=clock, passwords=cheap)

    return make


@pytest.fixture
def people(make_people: Callable[..., AccountService]) -> AccountService:
    """In password mode."""
    return make_people()
