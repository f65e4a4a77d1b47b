"""Delays against password guessing, without account lockout.

Failed sign-ins are counted in the storage, so that replicas and restarts share the counts. After a number of
failures, the next attempt is delayed; the delay doubles with each failure, up to a maximum. Attempts during
the delay are refused without checking the password, and are not counted.

A browser with an earlier sign-in sends a device cookie and has a separate counter, so failures of other
clients under the same name do not delay its owner. All other clients are subject to three counters: name and
network, network alone, and name alone. The last one has a low maximum delay: it limits the number of guesses
that a large botnet has per day, and still lets the owner sign in from a new browser within seconds once the
guessing pauses. Invite links from an admin (``toolyard users invite``) are never delayed.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from toolyard.accounts.errors import TooManySignIns
from toolyard.accounts.provisioning import normalize_name
from toolyard.accounts.random_secrets import hash_secret
from toolyard.net import parse_ip_address
from toolyard.store.sql.stored_values import fold_case

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = [
    "ACCOUNT_DELAYS",
    "DEVICE_DELAYS",
    "NAME_AND_NETWORK_DELAYS",
    "NETWORK_DELAYS",
    "AttemptCounters",
    "DelaySchedule",
    "SignInLimiter",
    "address_network",
    "guest_counters",
    "owner_counters",
]


@dataclass(frozen=True, slots=True)
class DelaySchedule:
    """Exponential delay: after ``free_failures`` in ``window_seconds``, one second, then two, four, …"""

    free_failures: int
    max_delay_seconds: float
    window_seconds: float

    def delay(self, failures: int) -> float:
        """Return the required delay after the last of so many failures, in seconds."""
        excess = failures - self.free_failures
        return 0.0 if excess < 0 else min(self.max_delay_seconds, 2.0 ** min(excess, 30))


NAME_AND_NETWORK_DELAYS = DelaySchedule(free_failures=5, max_delay_seconds=300, window_seconds=3_600)
NETWORK_DELAYS = DelaySchedule(free_failures=20, max_delay_seconds=60, window_seconds=900)
ACCOUNT_DELAYS = DelaySchedule(free_failures=50, max_delay_seconds=15, window_seconds=900)
DEVICE_DELAYS = DelaySchedule(free_failures=10, max_delay_seconds=300, window_seconds=3_600)
_MAX_PROVIDER_SIGN_INS = 60
"""Sign-ins that one network may start at the identity provider; each one stores a pending record."""
_PROVIDER_SIGN_IN_SECONDS = 300
"""Time in which they are counted."""


@dataclass(frozen=True, slots=True)
class AttemptCounters:
    """The counters of a sign-in attempt, by key. A success resets those in ``reset_on_success``."""

    schedules: Mapping[str, DelaySchedule]
    reset_on_success: frozenset[str] = field(default_factory=frozenset[str])


def guest_counters(name: str, address: str) -> AttemptCounters:
    """Return the counters of a browser without an earlier sign-in to the account."""
    # The name is hashed: it may be of any length, or a password typed into the wrong field.
    account, network = hash_secret(_fold_name(name))[:32], address_network(address)
    pair, everywhere = f"pair:{account}:{network}", f"account:{account}"
    schedules = {
        pair: NAME_AND_NETWORK_DELAYS,
        f"address:{network}": NETWORK_DELAYS,
        everywhere: ACCOUNT_DELAYS,
    }
    # A success does not reset the network's counter: otherwise an attacker with an account could reset it
    # between guesses at other accounts. Nor that of the name alone, which no longer applies to the owner's
    # browser once it has a device cookie.
    return AttemptCounters(schedules, frozenset({pair}))


def owner_counters(key: str) -> AttemptCounters:
    """Return the counter of a client known to belong to the account's owner: a device or a session."""
    return AttemptCounters({key: DEVICE_DELAYS}, frozenset({key}))


class SignInLimiter:
    """Counts failed sign-ins, and refuses attempts during a delay."""

    def __init__(self, storage: SqlAccountStorage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock

    async def check(self, counters: AttemptCounters) -> None:
        """Raise TooManySignIns if any counter demands a delay."""
        now = self._clock()
        wait_seconds = 0.0
        for key, schedule in counters.schedules.items():
            failures = await self._storage.count_attempts(key, now - schedule.window_seconds)
            wait_seconds = max(wait_seconds, failures.latest + schedule.delay(failures.count) - now)
        if wait_seconds > 0:
            raise TooManySignIns(
                "too many failed sign-ins",
                retry_after=wait_seconds,
                hint=f"try again in {_format_wait(wait_seconds)}, or ask an admin for an invite link",
            )

    async def count_provider_sign_in(self, address: str) -> None:
        """Count a sign-in started at the identity provider. Raises TooManySignIns."""
        now, key = self._clock(), f"begun:{address_network(address)}"
        started = await self._storage.count_attempts(key, now - _PROVIDER_SIGN_IN_SECONDS)
        if started.count >= _MAX_PROVIDER_SIGN_INS:
            raise TooManySignIns(
                "too many sign-ins were started from this address",
                retry_after=_PROVIDER_SIGN_IN_SECONDS,
                hint=f"try again in {_PROVIDER_SIGN_IN_SECONDS / 60:.0f} minutes",
            )
        await self._storage.add_attempt(key, now)

    async def record_failure(self, counters: AttemptCounters) -> None:
        """Count one more failure."""
        now = self._clock()
        for key in counters.schedules:
            await self._storage.add_attempt(key, now)

    async def record_success(self, counters: AttemptCounters) -> None:
        """Reset the counters that a success clears."""
        for key in counters.reset_on_success:
            await self._storage.clear_attempts(key)


def _format_wait(seconds: float) -> str:
    whole = math.ceil(seconds)
    if whole >= 120:
        return f"{math.ceil(whole / 60)} minutes"
    return "1 second" if whole == 1 else f"{whole} seconds"


def _fold_name(name: str) -> str:
    """Return one form for all spellings that sign in to the same account, whether it exists or not.

    Otherwise an attacker could get a new counter for each spelling.
    """
    return fold_case(normalize_name(name) or name)


@lru_cache(maxsize=256)
def address_network(address: str) -> str:
    """Return the unit that is limited: an IPv4 address, or the /64 network of an IPv6 address.

    An IPv6 client usually has a whole /64 network at its disposal.
    """
    ip = parse_ip_address(address)
    if ip is None:
        return address[:64]
    return str(ipaddress.ip_network((ip, 64), strict=False) if ip.version == 6 else ip)
