"""Slows down guessing of passwords, without locking anybody out.

Failed sign-ins are counted in the store, so that replicas and restarts share the counts. After some failures
the next attempt has to wait, each time twice as long as before, up to a cap. Attempts that come too early are
refused without a look at the password, and do not count.

A browser that its owner signed in with before shows so with a device cookie, and has a counter of its own:
however much strangers fail with a name, they do not slow down its owner there. Everybody else is slowed down
by three counters: for a name from one block of addresses, for a block whatever the name, and for a name from
everywhere. The last has a low cap: it bounds how many guesses a large network of machines has in a day, and
lets the owner in from a new browser within seconds once the guessing pauses. A link from an admin
(``toolyard users invite``) is not slowed down at all.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unicodedata import normalize

from toolyard.accounts.errors import TooManySignIns
from toolyard.accounts.random_secrets import hash_secret
from toolyard.accounts.storage import AccountStorage
from toolyard.accounts.user_names import normalize_name

__all__ = [
    "ACCOUNT_SLOWDOWN",
    "DEVICE_SLOWDOWN",
    "NAME_AND_NETWORK_SLOWDOWN",
    "NETWORK_SLOWDOWN",
    "PROVIDER_SIGN_IN_LIMIT",
    "AttemptCounters",
    "RateLimit",
    "SignInLimiter",
    "Slowdown",
    "address_network",
    "guest_counters",
    "owner_counters",
]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """After ``free`` failures in ``seconds``, wait one second before the next attempt, then two, four, …"""

    free_failures: int
    max_delay: float
    seconds: float

    def delay(self, failures: int) -> float:
        """Seconds that must have passed since the last of so many failures."""
        late = failures - self.free_failures
        return 0.0 if late < 0 else min(self.max_delay, 2.0 ** min(late, 30))


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most so many in so many seconds."""

    max_attempts: int
    seconds: float


NAME_AND_NETWORK_SLOWDOWN = Slowdown(free_failures=5, max_delay=300, seconds=3_600)
NETWORK_SLOWDOWN = Slowdown(free_failures=20, max_delay=60, seconds=900)
ACCOUNT_SLOWDOWN = Slowdown(free_failures=50, max_delay=15, seconds=900)
DEVICE_SLOWDOWN = Slowdown(free_failures=10, max_delay=300, seconds=3_600)
PROVIDER_SIGN_IN_LIMIT = RateLimit(60, 300)
"""Sign-ins that one address may begin at the identity provider: each leaves a record that waits."""


@dataclass(frozen=True, slots=True)
class AttemptCounters:
    """The counters of an attempt by their keys. ``cleared`` are those that a success empties."""

    slowdowns: Mapping[str, Slowdown]
    reset_on_success: frozenset[str] = field(default_factory=frozenset[str])


def guest_counters(name: str, address: str) -> AttemptCounters:
    """Return the counters of somebody in a browser that the account does not know."""
    # Names may be of any length, and may be a password that was typed into the wrong field.
    account, network = hash_secret(_fold_name(name))[:32], address_network(address)
    pair, everywhere = f"pair:{account}:{network}", f"account:{account}"
    slowdowns = {
        pair: NAME_AND_NETWORK_SLOWDOWN,
        f"address:{network}": NETWORK_SLOWDOWN,
        everywhere: ACCOUNT_SLOWDOWN,
    }
    # The block's own counter stays: an account of one's own is no way to guess others for longer. So does
    # that of the name from everywhere, which its owner need not pass a second time.
    return AttemptCounters(slowdowns, frozenset({pair}))


def owner_counters(key: str) -> AttemptCounters:
    """Return the counter of somebody who has proven before to own the account: a device, a session."""
    return AttemptCounters({key: DEVICE_SLOWDOWN}, frozenset({key}))


class SignInLimiter:
    """Counts failed sign-ins, and refuses the next one until its time has come."""

    def __init__(self, storage: AccountStorage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock

    async def check(self, counters: AttemptCounters) -> None:
        """Raises TooManySignIns."""
        now = self._clock()
        wait = 0.0
        for key, slowdown in counters.slowdowns.items():
            found = await self._storage.count_attempts(key, now - slowdown.seconds)
            wait = max(wait, found.latest + slowdown.delay(found.count) - now)
        if wait > 0:
            raise TooManySignIns(
                "there were too many failed sign-ins",
                retry_after=wait,
                hint=f"try again in {_format_wait(wait)}, or ask an admin for a link to sign in with",
            )

    async def count_provider_sign_in(self, address: str) -> None:
        """One more sign-in that is begun elsewhere. Raises TooManySignIns."""
        now, key = self._clock(), f"begun:{address_network(address)}"
        if (
            await self._storage.count_attempts(key, now - PROVIDER_SIGN_IN_LIMIT.seconds)
        ).count >= PROVIDER_SIGN_IN_LIMIT.max_attempts:
            raise TooManySignIns(
                "too many sign-ins were begun from this address",
                retry_after=PROVIDER_SIGN_IN_LIMIT.seconds,
                hint=f"try again in {PROVIDER_SIGN_IN_LIMIT.seconds / 60:.0f} minutes",
            )
        await self._storage.add_attempt(key, now)

    async def record_failure(self, counters: AttemptCounters) -> None:
        """Count one more failure."""
        now = self._clock()
        for key in counters.slowdowns:
            await self._storage.add_attempt(key, now)

    async def record_success(self, counters: AttemptCounters) -> None:
        """Forget failures after a success."""
        for key in counters.reset_on_success:
            await self._storage.clear_attempts(key)


def _format_wait(seconds: float) -> str:
    whole = math.ceil(seconds)
    if whole >= 120:
        return f"{math.ceil(whole / 60)} minutes"
    return "1 second" if whole == 1 else f"{whole} seconds"


def _fold_name(name: str) -> str:
    """The same for all spellings that sign in to one account, whether there is such an account or not:
    otherwise each of them would have its own count."""
    once = normalize("NFKD", normalize("NFD", normalize_name(name) or name).casefold())
    return normalize("NFKD", once.casefold())


def address_network(address: str) -> str:
    """What counts as one address: of IPv6 the network, since whoever has one address there has all of it."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)
