"""Passwords: Argon2id, in a thread, a few at a time."""

from __future__ import annotations

import asyncio
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from toolyard.accounts.errors import Invalid
from toolyard.errors import Problem

__all__ = ["MAX_PASSWORD_CHARACTERS", "MIN_PASSWORD_CHARACTERS", "AsyncPasswordHasher", "check_password"]

MIN_PASSWORD_CHARACTERS = 10
MAX_PASSWORD_CHARACTERS = 1_000

_MAX_PARALLEL_HASHES = 2
"""Each takes a core and 46 MB for as long as it runs."""


def check_password(password: str, field: str = "password") -> None:
    """Raises Invalid where a text cannot become a password. Length is what counts; nothing else is asked."""
    size = len(_normalize_password(password))
    if size < MIN_PASSWORD_CHARACTERS:
        problem = Problem(f"a password has at least {MIN_PASSWORD_CHARACTERS} characters", path=field)
    elif len(password) > MAX_PASSWORD_CHARACTERS or size > MAX_PASSWORD_CHARACTERS:
        problem = Problem(f"a password has at most {MAX_PASSWORD_CHARACTERS:,} characters", path=field)
    else:
        return
    raise Invalid([problem])


class AsyncPasswordHasher:
    """Hashes and verifies. Call either while holding a ``turn``, so that a crowd waits and nothing swaps."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        # 50 to 100 ms on the machines of 2025.
        self._hasher = hasher or PasswordHasher(time_cost=2, memory_cost=46 * 1024, parallelism=1)
        self.hash_slots = asyncio.Semaphore(_MAX_PARALLEL_HASHES)

    async def hash(self, password: str) -> str:
        """What is stored."""
        return await asyncio.to_thread(self._hasher.hash, _encode_password(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Whether it is the one. Nothing stored takes as long as a wrong one, so that nobody learns who has
        an account here."""
        if stored is None:
            await self.hash(password[:MAX_PASSWORD_CHARACTERS])
            return False
        return (
            await asyncio.to_thread(self._verify_blocking, password[:MAX_PASSWORD_CHARACTERS], stored)
            and len(password) <= MAX_PASSWORD_CHARACTERS
        )

    def is_outdated(self, stored: str) -> bool:
        """Whether it was hashed with other parameters than ours."""
        return self._hasher.check_needs_rehash(stored)

    def _verify_blocking(self, password: str, stored: str) -> bool:
        try:
            return self._hasher.verify(stored, _encode_password(password))
        except (VerificationError, InvalidHashError):
            return False


def _normalize_password(password: str) -> str:
    """The same on every keyboard."""
    return unicodedata.normalize("NFKC", password)


def _encode_password(password: str) -> bytes:
    return _normalize_password(password).encode("utf-8", "surrogatepass")
