"""How a conversation begins: which era a server speaks, asked once and remembered."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

from toolyard.clients.session import Deadline, McpSession
from toolyard.config.file_writer import write_private_file
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
from toolyard.protocol.client import HandshakeResult, ProbeResult, interpret_probe, parse_initialize_result
from toolyard.protocol.constants import LATEST_LEGACY_VERSION, LATEST_MODERN_VERSION, UNSUPPORTED_VERSION
from toolyard.protocol.pending import RpcFailure

__all__ = ["Era", "EraCache", "EraStore", "FileEraCache", "discover", "initialize", "negotiate_era"]


Era: TypeAlias = Literal["modern", "legacy", "sse"]
"""What is remembered of a server definition. ``sse``: legacy, by the older transport."""

_PROBE_HEAD_START_SECONDS = 3.0
"""Seconds until a probe that is not answered gets company: initialize is sent beside it, and whichever is
answered in its own era decides. A server that is slow to start thus loses nothing."""


class EraStore(Protocol):
    """Remembers eras by the fingerprint of a server's definition."""

    def recall(self, key: str) -> Era | None: ...

    def remember(self, key: str, era: Era | None) -> None: ...


class EraCache:
    """Remembers for the life of the process."""

    def __init__(self) -> None:
        self._eras: dict[str, Era] = {}

    def recall(self, key: str) -> Era | None:
        return self._eras.get(key)

    def remember(self, key: str, era: Era | None) -> None:
        if era is None:
            self._eras.pop(key, None)
        else:
            self._eras[key] = era


async def discover(session: McpSession, deadline: Deadline) -> HandshakeResult | ProbeResult:
    """Probe with ``server/discover``. Raises what says nothing about the era: no way to it, no sign-in,
    too busy, broken."""
    version = LATEST_MODERN_VERSION
    for _ in range(2):
        session.request_builder.set_version(version)
        session.transport.set_protocol_version(version, modern=True)
        try:
            result = await session.request("server/discover", None, deadline)
            outcome = interpret_probe(result, None)
        except RpcError as error:
            outcome = interpret_probe(None, RpcFailure(error.code, error.message, error.data))
        except SessionLost:
            outcome = ProbeResult.LEGACY
        except HttpStatus as error:
            if error.status >= 500:
                error.hint = 'if it is an older server, set "protocol": "legacy"'
                raise
            outcome = ProbeResult.LEGACY
        except BadAnswer:
            outcome = ProbeResult.LEGACY
        if not isinstance(outcome, str):
            return outcome
        version = outcome
    return ProbeResult.INCOMPATIBLE


async def initialize(session: McpSession, deadline: Deadline) -> HandshakeResult:
    """The handshake of the legacy era."""
    session.request_builder.set_version(LATEST_LEGACY_VERSION)
    result = await session.request("initialize", session.request_builder.initialize_params(), deadline)
    facts = parse_initialize_result(result)
    if isinstance(facts, str):
        raise BadAnswer(facts)
    return facts


async def complete_handshake(session: McpSession, result: HandshakeResult) -> HandshakeResult:
    """Both sides agree: speak this revision from now on."""
    session.handshake_result = result
    session.request_builder.set_version(result.version)
    session.transport.set_protocol_version(result.version, modern=result.modern)
    if not result.modern:
        # Waited for, because servers refuse requests that overtake it.
        await session.send_notification("notifications/initialized")
    return result


async def negotiate_era(session: McpSession, deadline: Deadline) -> HandshakeResult:
    """Modern first; fall back on any answer that is not modern, or on silence. Raises ServerError."""
    loop = asyncio.get_running_loop()
    probe = loop.create_task(discover(session, deadline))
    greeting: asyncio.Task[HandshakeResult] | None = None
    try:
        await asyncio.wait({probe}, timeout=_PROBE_HEAD_START_SECONDS)
        if not probe.done():
            greeting = loop.create_task(initialize(session, deadline))
            await asyncio.wait({probe, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if not probe.done() and greeting is not None:
            if greeting.exception() is None:
                return await complete_handshake(session, greeting.result())
            await asyncio.wait({probe})
        outcome = probe.result()
        if isinstance(outcome, HandshakeResult):
            return await complete_handshake(session, outcome)
        if outcome is ProbeResult.INCOMPATIBLE:
            raise BadAnswer("speaks a revision of MCP that we do not know")
        return await complete_handshake(session, await (greeting or initialize(session, deadline)))
    finally:
        await _cancel_tasks(probe, greeting)


async def _cancel_tasks(
    *tasks: asyncio.Task[HandshakeResult | ProbeResult] | asyncio.Task[HandshakeResult] | None,
) -> None:
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


_MAX_FILE_ERAS = 1000
_ERA_VALUES = ("modern", "legacy", "sse")


class FileEraCache:
    """What is in the file is a hint: a lost or broken file costs a probe and nothing else."""

    def __init__(self, path: Path, key: Callable[[], bytes] = bytes) -> None:
        """``key`` gives the key of the hashes by which servers are named in the file."""
        self._path = path
        self._key = key
        self._eras: dict[str, Era] | None = None

    def recall(self, key: str) -> Era | None:
        return self._load_file().get(self._name(key))

    def _name(self, key: str) -> str:
        return hmac.digest(self._key(), key.encode(), "sha256").hex()

    def remember(self, key: str, era: Era | None) -> None:
        known, key = self._load_file(), self._name(key)
        if known.get(key) == era:
            return
        known.pop(key, None)
        if era is not None:
            known[key] = era
        self._save_file(dict(list(known.items())[-_MAX_FILE_ERAS:]))

    def _load_file(self) -> dict[str, Era]:
        if self._eras is None:
            self._eras = {}
            with contextlib.suppress(OSError, ValueError, RecursionError):
                read: object = json.loads(self._path.read_bytes())
                if isinstance(read, dict):
                    items = cast("dict[str, Any]", read).items()
                    self._eras = {key: era for key, era in items if era in _ERA_VALUES}
        return self._eras

    def _save_file(self, eras: dict[str, Era]) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self._path, json.dumps(eras).encode())
