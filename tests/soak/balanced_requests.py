"""How one person's programs and browser ask: each request at the next replica, as behind a balancer."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from tests.soak.accounts import SoakAccount
from tests.soak.environment import SoakEnvironment
from tests.soak.replicas import SoakReplica
from tests.soak.request_outcomes import ExpectedFailure, ExpectedRefusal, Tally, Wrong

GONE_STATUSES = frozenset({502, 503})
"""What a replica, or a balancer in its place, says while it goes."""


@dataclass(frozen=True)
class BalancedReply:
    """What came back."""

    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class BalancedClient:
    """One person's way to Toolyard."""

    person: SoakAccount
    environment: SoakEnvironment
    tally: Tally
    session: aiohttp.ClientSession
    random: random.Random

    async def ask(
        self,
        kind: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        good: Collection[int] = (200,),
        refused_statuses: Collection[int] = (),
        browser: bool = False,
        says: str = "",
    ) -> BalancedReply:
        """One request, counted. Raises Abandoned where it is not answered with a status of ``good``, or the
        answer does not have what it ``says``."""

        async def work() -> BalancedReply:
            answer = await self._ask(method, path, body, {*good, *refused_statuses}, browser)
            if answer.status in refused_statuses:
                raise ExpectedRefusal
            if says not in answer.text:
                raise Wrong(f"{says!r} is not in {answer.text[:300]}")
            return answer

        return await self.tally.counted(kind, work())

    async def _ask(
        self, method: str, path: str, body: Any, right: Collection[int], browser: bool
    ) -> BalancedReply:
        async with self.opened(method, path, body, browser=browser) as (response, replica, exchange):
            text = await response.text()
        if response.status not in right:
            raise self.odd(response.status, text, replica, exchange)
        return BalancedReply(response.status, response.headers, text)

    def odd(self, status: int, text: str, replica: SoakReplica, start: float) -> Exception:
        """What to make of a status that was not expected."""
        if status in GONE_STATUSES and replica.disturbed(start):
            return ExpectedFailure(f"status {status}")
        return Wrong(f"status {status}: {text[:300]}")

    @asynccontextmanager
    async def opened(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        browser: bool = False,
        at: SoakReplica | None = None,
        headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[tuple[aiohttp.ClientResponse, SoakReplica, float]]:
        """A request whose answer has begun, where, and since when. ``at``: only there."""
        head = {"Cookie": self.person.cookie} if browser else {"Authorization": f"Bearer {self.person.token}"}
        start = time.monotonic()
        response, replica = await self._connected(method, path, body, {**head, **(headers or {})}, at, start)
        try:
            yield response, replica, start
        except (aiohttp.ClientError, ConnectionError) as error:
            raise broken(error, replica, start) from None
        finally:
            response.close()

    async def _connected(
        self, method: str, path: str, body: Any, head: dict[str, str], at: SoakReplica | None, start: float
    ) -> tuple[aiohttp.ClientResponse, SoakReplica]:
        for replica in self.environment.in_turn() if at is None else [at]:
            try:
                response = await self.session.request(
                    method, replica.url + path, json=body, headers=head, allow_redirects=False
                )
            except aiohttp.ClientConnectorError as error:
                # Nobody listens: a balancer goes to the next one.
                if at is not None or not replica.disturbed(start):
                    raise broken(error, replica, start) from None
            except (aiohttp.ClientError, ConnectionError) as error:
                raise broken(error, replica, start) from None
            else:
                return response, replica
        raise Wrong("no replica takes connections")


def broken(error: Exception, replica: SoakReplica, start: float) -> Exception:
    """What to make of a connection that broke."""
    if replica.disturbed(start):
        return ExpectedFailure("the connection was lost")
    return Wrong(f"replica {replica.number}: {type(error).__name__}: {error}")


async def events(response: aiohttp.ClientResponse) -> AsyncGenerator[Any]:
    """The data of server-sent events, as JSON."""
    async for line in response.content:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
