"""One soak: people who do what people do, for some minutes, and what was seen meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import aiohttp
from tests.soak.accounts import SoakAccount
from tests.soak.api_user import ApiUser
from tests.soak.balanced_requests import BalancedClient
from tests.soak.chat_user import ChatUser
from tests.soak.environment import SoakEnvironment, open_environment
from tests.soak.gateway_user import GatewayUser
from tests.soak.legacy_gateway_user import Sessions
from tests.soak.process_samples import Sample, Sampler
from tests.soak.request_outcomes import RequestFailure, Tally
from tests.soak.verdicts import SPARE_DESCRIPTORS, FinalState, Verdict, judge
from tests.tasks import cancel

SHAPES = {"one": "one process on SQLite", "three": "three replicas on PostgreSQL"}
_SETTLE_SECONDS = 360.0
"""Time for idle connections and children to close after the last request: connections of a chat or a client
close after 300 s."""
_READ_AHEAD = 4 * 1024 * 1024
_OPEN = re.compile(r"^toolyard_http_requests_open (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """How much, for how long. The same seed gives the same people doing the same things."""

    minutes: float
    users: int
    seed: int
    think: float = 0.5
    """Seconds between two things that one person does, on average."""
    deadline: float = 60.0


@dataclass(frozen=True)
class SoakResult:
    """What came of one shape."""

    shape: str
    seconds: float
    tally: Tally
    samples: Sequence[Sample]
    verdicts: Sequence[Verdict]
    restarted: float | None
    """When a replica was restarted, in seconds since the beginning."""

    @property
    def well(self) -> bool:
        return all(each.met is not False for each in self.verdicts)


class SimulatedUser:
    """One person, and all that they do."""

    def __init__(self, line: BalancedClient) -> None:
        self._line = line
        self._talking = ChatUser(line)
        self._gateway, self._sessions = GatewayUser(line), Sessions(line)
        self._api = ApiUser(line, self._talking)

    async def live(self, wait_until: float, think: float) -> None:
        """Do things until then, and tidy up."""
        draw = self._line.random
        does = (self._talking.one, self._gateway.one, self._sessions.one, self._api.one, self._api.page)
        await asyncio.sleep(draw.uniform(0, 2 * think))
        # Half of them have an instance of their own that stays.
        if self._line.person.number % 2 == 0:
            slug = await self._api.settle_in(self._line.environment.registered["shop"])
            self._talking.instance = self._gateway.instance = slug
        while time.monotonic() < wait_until:
            with contextlib.suppress(RequestFailure):
                await draw.choices(does, (6, 8, 1, 6, 2))[0]()
            await asyncio.sleep(draw.expovariate(1 / think))
        for tidy in (self._talking.leave, self._api.move_out):
            with contextlib.suppress(RequestFailure):
                await tidy()


@contextlib.asynccontextmanager
async def _line(
    environment: SoakEnvironment, person: SoakAccount, tally: Tally, plan: Plan
) -> AsyncGenerator[BalancedClient]:
    draw = random.Random(f"{plan.seed} {person.number}")
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(None),
        read_bufsize=_READ_AHEAD,
    )
    async with session:
        yield BalancedClient(person, environment, tally, session, draw)


async def soak(shape: str, plan: Plan) -> SoakResult:
    """All of it, in one shape."""
    tally = Tally(plan.deadline)
    async with open_environment(shape, plan.users) as environment:
        await _register(environment, plan)
        sampler = Sampler(environment, tally)
        start = [each for replica in environment.replicas if (each := sampler.look(replica)) is not None]
        sampling = asyncio.create_task(sampler.run())
        restarting = asyncio.create_task(_restart(environment, plan, sampler))
        try:
            until = time.monotonic() + plan.minutes * 60
            async with asyncio.TaskGroup() as group:
                for person in environment.people:
                    group.create_task(_person(environment, person, tally, plan, until))
            restart_count = await restarting
            seconds = sampler.now
        finally:
            await cancel(sampling, restarting)
        samples = list(sampler.samples)
        final_state = await _wait_until_settled(environment, sampler, start)
        tracebacks = sum(replica.tracebacks() for replica in environment.replicas)
        ending = FinalState(final_state, await _still_open(environment, plan), tracebacks)
    return SoakResult(shape, seconds, tally, samples, judge(tally, samples, start, ending), restart_count)


async def _person(
    environment: SoakEnvironment, person: SoakAccount, tally: Tally, plan: Plan, wait_until: float
) -> None:
    async with _line(environment, person, tally, plan) as line:
        await SimulatedUser(line).live(wait_until, plan.think)


async def _register(environment: SoakEnvironment, plan: Plan) -> None:
    """The servers that an admin enters, before anybody comes."""
    async with _line(environment, environment.people[0], Tally(plan.deadline), plan) as line:
        for name in ("shop", "docs"):
            draft = {"name": name, "url": environment.origins[name], "private_addresses": True}
            server = await line.ask("register", "POST", "/api/v1/servers", draft, good=(201,))
            environment.registered[name] = server.json["id"]
        for replica in environment.replicas:
            # Until the shared servers are connected and listed.
            async with line.opened("GET", "/api/v1/tools", at=replica) as (response, _, _):
                await response.read()


async def _still_open(environment: SoakEnvironment, plan: Plan) -> int:
    """Requests that the replicas are still answering, besides the one that asks."""
    count = 0
    async with _line(environment, environment.people[0], Tally(plan.deadline), plan) as line:
        for replica in environment.replicas:
            async with line.opened("GET", "/metrics", at=replica) as (response, _, _):
                (open_count,) = _OPEN.findall(await response.text())
            count += int(float(open_count)) - 1
    return count


async def _restart(environment: SoakEnvironment, plan: Plan, sampler: Sampler) -> float | None:
    """Halfway, where there are others that go on."""
    if len(environment.replicas) == 1:
        return None
    await asyncio.sleep(plan.minutes * 30)
    at = sampler.now
    await environment.replicas[1].restart()
    return at


async def _wait_until_settled(
    environment: SoakEnvironment, sampler: Sampler, start: Sequence[Sample]
) -> list[Sample]:
    """Each process, once it holds what it held before, or had the time to."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        now = [each for replica in environment.replicas if (each := sampler.look(replica)) is not None]
        if time.monotonic() > deadline or all(
            after.descriptors <= before.descriptors + SPARE_DESCRIPTORS and after.children <= before.children
            for before, after in zip(start, now, strict=True)
        ):
            return now
        await asyncio.sleep(0.5)
