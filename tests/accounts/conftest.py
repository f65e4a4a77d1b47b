"""Accounts in a real database, with a clock that the test sets and cheap password hashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from argon2 import PasswordHasher
from tests.manual_clock import ManualClock

from toolyard.accounts import AccountService
from toolyard.accounts.passwords import AsyncPasswordHasher
from toolyard.config.settings.table import PeopleMode, Settings


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cheap() -> AsyncPasswordHasher:
    """Real Argon2 with its lowest cost."""
    return AsyncPasswordHasher(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@pytest.fixture
def make_people(
    database: Any, clock: ManualClock, cheap: AsyncPasswordHasher
) -> Callable[..., AccountService]:
    """``make_people("proxy", admins=("ann",))``: one process's view of the database."""

    def make(mode: str = "password", **settings: Any) -> AccountService:
        chosen_settings = Settings(people_mode=PeopleMode(mode), **settings)
        return AccountService(database.accounts, chosen_settings, clock=clock, passwords=cheap)

    return make


@pytest.fixture
def people(make_people: Callable[..., AccountService]) -> AccountService:
    """The accounts of a process in password mode."""
    return make_people()
