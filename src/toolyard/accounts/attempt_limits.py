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
from toolyard.accounts.random_secrets import digest
from toolyard.accounts.storage import PeopleStorage
from toolyard.accounts.user_names import as_name

__all__ = [
    "ACCOUNT",
    "ADDRESS",
    "BEGUN",
    "DEVICE",
    "PAIR",
    "Counters",
    "Limit",
    "Limits",
    "Slowdown",
    "guest_counters",
    "network_of",
    "owner_counters",
]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """After ``free`` failures in ``seconds``, wait one second before the next attempt, then two, four, …"""

    free: int
    max_delay: float
    seconds: float

    def delay(self, failures: int) -> float:
        """Seconds that must have passed since the last of so many failures."""
        late = failures - self.free
        return 0.0 if late < 0 else min(self.max_delay, 2.0 ** min(late, 30))


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many in so many seconds."""

    most: int
    seconds: float


PAIR = Slowdown(free=5, max_delay=300, seconds=3_600)
ADDRESS = Slowdown(free=20, max_delay=60, seconds=900)
ACCOUNT = Slowdown(free=50, max_delay=15, seconds=900)
DEVICE = Slowdown(free=10, max_delay=300, seconds=3_600)
BEGUN = Limit(60, 300)
"""Sign-ins that one address may begin at the identity provider: each leaves a record that waits."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of an attempt by their keys. ``cleared`` are those that a success empties."""

    slowdowns: Mapping[str, Slowdown]
    cleared: frozenset[str] = field(default_factory=frozenset[str])


def guest_counters(name: str, address: str) -> Counters:
    """Return the counters of somebody in a browser that the account does not know."""
    # Names may be of any length, and may be a password that was typed into the wrong field.
    account, network = digest(_one_spelling(name))[:32], network_of(address)
    pair, everywhere = f"pair:{account}:{network}", f"account:{account}"
    slowdowns = {pair: PAIR, f"address:{network}": ADDRESS, everywhere: ACCOUNT}
    # The block's own counter stays: an account of one's own is no way to guess others for longer. So does
    # that of the name from everywhere, which its owner need not pass a second time.
    return Counters(slowdowns, frozenset({pair}))


def owner_counters(key: str) -> Counters:
    """Return the counter of somebody who has proven before to own the account: a device, a session."""
    return Counters({key: DEVICE}, frozenset({key}))


class Limits:
    """Counts failed sign-ins, and refuses the next one until its time has come."""

    def __init__(self, storage: PeopleStorage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock

    async def check(self, counters: Counters) -> None:
        """Raises TooManySignIns."""
        now = self._clock()
        wait = 0.0
        for key, slowdown in counters.slowdowns.items():
            found = await self._storage.attempts(key, now - slowdown.seconds)
            wait = max(wait, found.latest + slowdown.delay(found.count) - now)
        if wait > 0:
            raise TooManySignIns(
                "there were too many failed sign-ins",
                retry_after=wait,
                hint=f"try again in {_in_words(wait)}, or ask an admin for a link to sign in with",
            )

    async def begun(self, address: str) -> None:
        """One more sign-in that is begun elsewhere. Raises TooManySignIns."""
        now, key = self._clock(), f"begun:{network_of(address)}"
        if (await self._storage.attempts(key, now - BEGUN.seconds)).count >= BEGUN.most:
            raise TooManySignIns(
                "too many sign-ins were begun from this address",
                retry_after=BEGUN.seconds,
                hint=f"try again in {BEGUN.seconds / 60:.0f} minutes",
            )
        await self._storage.add_attempt(key, now)

    async def failed(self, counters: Counters) -> None:
        """Count one more failure."""
        now = self._clock()
        for key in counters.slowdowns:
            await self._storage.add_attempt(key, now)

    async def succeeded(self, counters: Counters) -> None:
        """Forget failures after a success."""
        for key in counters.cleared:
            await self._storage.clear_attempts(key)


def _in_words(seconds: float) -> str:
    whole = math.ceil(seconds)
    if whole >= 120:
        return f"{math.ceil(whole / 60)} minutes"
    return "1 second" if whole == 1 else f"{whole} seconds"


def _one_spelling(name: str) -> str:
    """The same for all spellings that sign in to one account, whether there is such an account or not:
    otherwise each of them would have its own count."""
    once = normalize("NFKD", normalize("NFD", as_name(name) or name).casefold())
    return normalize("NFKD", once.casefold())


def network_of(address: str) -> str:
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
