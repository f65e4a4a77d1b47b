"""How a conversation begins: which era a server speaks, asked once and remembered."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol, TypeAlias

from toolyard.clients.session import Link, Patience
from toolyard.errors import (
    BadAnswer,
    CallTimeout,
    HttpStatus,
    OutcomeUnknown,
    RpcError,
    ServerError,
    SessionLost,
    Unreachable,
)
from toolyard.protocol.client import Facts, Verdict, judge_probe, read_initialize
from toolyard.protocol.constants import LEGACY_LATEST, MODERN_LATEST, UNSUPPORTED_VERSION
from toolyard.protocol.pending import Failure

__all__ = ["Era", "EraMemory", "Eras", "discover", "initialize", "negotiate"]

Era: TypeAlias = Literal["modern", "legacy", "sse"]
"""What is remembered of a server definition. ``sse``: legacy, by the older transport."""

_PROBE = 3.0
"""Seconds until a probe that is not answered gets company: initialize is sent beside it, and whichever is
answered in its own era decides. A server that is slow to start thus loses nothing."""


class EraMemory(Protocol):
    """Remembers eras by the fingerprint of a server's definition."""

    def recall(self, key: str) -> Era | None: ...

    def remember(self, key: str, era: Era | None) -> None: ...


class Eras:
    """Remembers for the life of the process."""

    def __init__(self) -> None:
        self._known: dict[str, Era] = {}

    def recall(self, key: str) -> Era | None:
        return self._known.get(key)

    def remember(self, key: str, era: Era | None) -> None:
        if era is None:
            self._known.pop(key, None)
        else:
            self._known[key] = era


async def discover(link: Link, patience: Patience) -> Facts | Verdict:
    """Probe with ``server/discover``. Raises what says nothing about the era: no way to it, no sign-in,
    too busy, broken."""
    version = MODERN_LATEST
    for _ in range(2):
        link.speaker.adopt(version)
        link.transport.adopt(version, modern=True)
        try:
            result = await link.request("server/discover", None, patience)
            outcome = judge_probe(result, None)
        except RpcError as error:
            outcome = judge_probe(None, Failure(error.code, error.message, error.data))
        except SessionLost:
            outcome = Verdict.LEGACY
        except HttpStatus as error:
            if error.status >= 500:
                error.hint = 'if it is an older server, set "protocol": "legacy"'
                raise
            outcome = Verdict.LEGACY
        except BadAnswer:
            outcome = Verdict.LEGACY
        if not isinstance(outcome, str):
            return outcome
        version = outcome
    return Verdict.INCOMPATIBLE


async def initialize(link: Link, patience: Patience) -> Facts:
    """The handshake of the legacy era."""
    link.speaker.adopt(LEGACY_LATEST)
    result = await link.request("initialize", link.speaker.initialize_params(), patience)
    facts = read_initialize(result)
    if isinstance(facts, str):
        raise BadAnswer(facts)
    return facts


async def settle(link: Link, facts: Facts) -> Facts:
    """Both sides agree: speak this revision from now on."""
    link.facts = facts
    link.speaker.adopt(facts.version)
    link.transport.adopt(facts.version, modern=facts.modern)
    if not facts.modern:
        # Waited for, because servers refuse requests that overtake it.
        await link.tell("notifications/initialized")
    return facts


async def negotiate(link: Link, patience: Patience) -> Facts:
    """Modern first; fall back on any answer that is not modern, or on silence. Raises ServerError."""
    loop = asyncio.get_running_loop()
    probe = loop.create_task(discover(link, patience))
    greeting: asyncio.Task[Facts] | None = None
    try:
        await asyncio.wait({probe}, timeout=_PROBE)
        if not probe.done():
            greeting = loop.create_task(initialize(link, patience))
            await asyncio.wait({probe, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if not probe.done() and greeting is not None:
            if greeting.exception() is None:
                return await settle(link, greeting.result())
            await asyncio.wait({probe})
        outcome = probe.result()
        if isinstance(outcome, Facts):
            return await settle(link, outcome)
        if outcome is Verdict.INCOMPATIBLE:
            raise BadAnswer("speaks a revision of MCP that we do not know")
        return await settle(link, await (greeting or initialize(link, patience)))
    finally:
        await _drop(probe, greeting)


async def _drop(*tasks: asyncio.Task[Facts | Verdict] | asyncio.Task[Facts] | None) -> None:
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


def connect_error(error: ServerError) -> ServerError:
    """A failure to begin, as the caller of a connect should hear it: nothing was executed."""
    if isinstance(error, RpcError):
        if error.code == UNSUPPORTED_VERSION:
            return BadAnswer(f"speaks no revision of MCP that we know: {error.cause}")
        return Unreachable(f"refused to begin: {error.cause}")
    if isinstance(error, OutcomeUnknown | CallTimeout):
        return Unreachable(error.cause, hint=error.hint)
    return error
