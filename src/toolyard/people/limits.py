"""How often somebody may try. Counted in the store, so that replicas and restarts share the count.

Three counts, all of failures: for a name from one address, for an address whatever the name, and for a name
from everywhere. The first is the narrow one: who guesses from one place is stopped there, and the owner
of the name, elsewhere, notices nothing. The last is wide, for those who guess from many places. Attempts that
are refused do not count, so the way is free again minutes after the last one that was heard; and a link from
an admin (``toolyard users invite``) is not counted at all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from unicodedata import normalize

from toolyard.people.digests import digest
from toolyard.people.errors import TooManySignIns
from toolyard.people.names import as_name
from toolyard.people.storage import PeopleStorage

__all__ = ["ACCOUNT", "ADDRESS", "BEGUN", "PAIR", "Limit", "Limits", "network_of"]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many failures in so many seconds."""

    most: int
    seconds: float


PAIR = Limit(10, 300)
ADDRESS = Limit(30, 300)
ACCOUNT = Limit(100, 900)
BEGUN = Limit(60, 300)
"""Sign-ins that one address may begin at the identity provider: each leaves a record that waits."""


class Limits:
    """Counts failed sign-ins and refuses where there were too many."""

    def __init__(self, storage: PeopleStorage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock

    async def check(self, name: str, address: str) -> None:
        """Raises TooManySignIns."""
        now = self._clock()
        for key, limit in _keys(name, address).items():
            if await self._storage.count_attempts(key, now - limit.seconds) >= limit.most:
                minutes = round(limit.seconds / 60)
                raise TooManySignIns(
                    "there were too many failed sign-ins",
                    retry_after=limit.seconds,
                    hint=f"try again in {minutes} minutes, or ask an admin for a link to sign in with",
                )

    async def begun(self, address: str) -> None:
        """One more sign-in that is begun elsewhere. Raises TooManySignIns."""
        now, key = self._clock(), f"begun:{network_of(address)}"
        if await self._storage.count_attempts(key, now - BEGUN.seconds) >= BEGUN.most:
            raise TooManySignIns(
                "too many sign-ins were begun from this address",
                retry_after=BEGUN.seconds,
                hint=f"try again in {BEGUN.seconds / 60:.0f} minutes",
            )
        await self._storage.add_attempt(key, now)

    async def failed(self, name: str, address: str) -> None:
        """One more."""
        now = self._clock()
        for key in _keys(name, address):
            await self._storage.add_attempt(key, now)

    async def succeeded(self, name: str, address: str) -> None:
        """Forget the failures of this name. Those of the address stay: an account of one's own is no way to
        guess others for longer."""
        for key, limit in _keys(name, address).items():
            if limit is not ADDRESS:
                await self._storage.clear_attempts(key)


def _keys(name: str, address: str) -> dict[str, Limit]:
    # Names may be of any length, and may be a password that was typed into the wrong field.
    account, network = digest(_one_spelling(name))[:32], network_of(address)
    return {
        f"pair:{account}:{network}": PAIR,
        f"address:{network}": ADDRESS,
        f"account:{account}": ACCOUNT,
    }


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
