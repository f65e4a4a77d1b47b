"""Password hashing with Argon2id in worker threads, with limited concurrency."""

from __future__ import annotations

import asyncio
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from toolyard.accounts.errors import Invalid
from toolyard.errors import Problem

__all__ = [
    "MAX_PASSWORD_CHARACTERS",
    "MIN_PASSWORD_CHARACTERS",
    "AsyncPasswordHasher",
    "validate_new_password",
]

MIN_PASSWORD_CHARACTERS = 10
MAX_PASSWORD_CHARACTERS = 1_000

_MAX_PARALLEL_HASHES = 2
"""Each hash uses one core and 46 MB of memory while it runs."""


def validate_new_password(password: str, field: str = "password") -> None:
    """Raise Invalid if a text is not acceptable as a password. Only the length is checked."""
    size = len(_normalize_password(password))
    if size < MIN_PASSWORD_CHARACTERS:
        problem = Problem(f"a password must have at least {MIN_PASSWORD_CHARACTERS} characters", path=field)
    elif len(password) > MAX_PASSWORD_CHARACTERS or size > MAX_PASSWORD_CHARACTERS:
        problem = Problem(f"a password may have at most {MAX_PASSWORD_CHARACTERS:,} characters", path=field)
    else:
        return
    raise Invalid([problem])


class AsyncPasswordHasher:
    """Hashes and verifies passwords. Acquire ``hash_slots`` before either call.

    The semaphore makes a burst of sign-ins queue up, instead of exhausting memory.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        # Takes 50 to 100 ms on hardware of 2025.
        self._hasher = hasher or PasswordHasher(time_cost=2, memory_cost=46 * 1024, parallelism=1)
        self.hash_slots = asyncio.Semaphore(_MAX_PARALLEL_HASHES)

    async def hash(self, password: str) -> str:
        """Return the hash to store, with its parameters and salt."""
        return await asyncio.to_thread(self._hasher.hash, _encode_password(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Return whether a password matches a stored hash.

        Without a stored hash this takes as long as a mismatch, so that response times do not reveal which
        accounts exist.
        """
        if stored is None:
            await self.hash(password[:MAX_PASSWORD_CHARACTERS])
            return False
        # An overlong password is cut before hashing and refused afterwards, so that it takes as long.
        return (
            await asyncio.to_thread(self._verify_blocking, password[:MAX_PASSWORD_CHARACTERS], stored)
            and len(password) <= MAX_PASSWORD_CHARACTERS
        )

    def is_outdated(self, stored: str) -> bool:
        """Return whether a stored hash was made with parameters other than the current ones."""
        return self._hasher.check_needs_rehash(stored)

    def _verify_blocking(self, password: str, stored: str) -> bool:
        try:
            return self._hasher.verify(stored, _encode_password(password))
        except (VerificationError, InvalidHashError):
            return False


def _normalize_password(password: str) -> str:
    """Return the NFKC form, so that equal text typed on different keyboards is equal."""
    return unicodedata.normalize("NFKC", password)


def _encode_password(password: str) -> bytes:
    return _normalize_password(password).encode("utf-8", "surrogatepass")
