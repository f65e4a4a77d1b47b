"""Protocol handshake: find out which era of MCP a server supports, and remember it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

from toolyard.clients.session import McpSession
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.config.file_reader import read_regular_file
from toolyard.config.file_writer import write_private_file
from toolyard.errors import (
    BadAnswer,
    CallTimeout,
    ConfigError,
    HttpStatus,
    OutcomeUnknown,
    RpcError,
    ServerError,
    SessionLost,
    Unreachable,
)
from toolyard.protocol.client import (
    HandshakeResult,
    InconclusiveProbe,
    interpret_probe,
    parse_initialize_result,
)
from toolyard.protocol.constants import LATEST_LEGACY_VERSION, LATEST_MODERN_VERSION, UNSUPPORTED_VERSION
from toolyard.protocol.pending import RpcFailure
from toolyard.types.call import McpRequest
from toolyard.types.server import Timeouts

__all__ = ["Era", "EraCache", "EraStore", "FileEraCache", "discover", "initialize", "negotiate_era"]


Era: TypeAlias = Literal["modern", "legacy", "sse"]
"""Remembered result for a server definition. ``sse`` means legacy over the HTTP+SSE transport of
2024-11-05."""

_PROBE_HEAD_START_SECONDS = 3.0
"""Seconds to wait for the modern probe before ``initialize`` is sent beside it. Whichever of the two succeeds
first decides, so that a server that is slow to start is not penalised."""


class EraStore(Protocol):
    """Stores eras by the fingerprint of a server's definition."""

    def recall(self, key: str) -> Era | None: ...

    def remember(self, key: str, era: Era | None) -> None: ...


class EraCache:
    """In-memory EraStore, for the lifetime of the process."""

    def __init__(self) -> None:
        self._eras: dict[str, Era] = {}

    def recall(self, key: str) -> Era | None:
        return self._eras.get(key)

    def remember(self, key: str, era: Era | None) -> None:
        if era is None:
            self._eras.pop(key, None)
        else:
            self._eras[key] = era


async def discover(session: McpSession, timeouts: Timeouts) -> HandshakeResult | InconclusiveProbe:
    """Probe with ``server/discover``. Raise only errors that say nothing about the era: unreachable, not
    signed in, throttled, or a server error (5xx)."""
    version = LATEST_MODERN_VERSION
    for _ in range(2):
        # Second round: the server rejected our version and named one that we support too.
        session.request_builder.set_version(version)
        session.transport.set_protocol_version(version, modern=True)
        try:
            result = await session.request(McpRequest("server/discover"), timeouts)
            outcome = interpret_probe(result, None)
        except RpcError as error:
            outcome = interpret_probe(None, RpcFailure(error.code, error.message, error.data))
        except SessionLost:
            outcome = InconclusiveProbe.LEGACY
        # A legacy server answers an unknown method in many ways: a JSON-RPC error, 4xx, or something
        # unreadable.
        except HttpStatus as error:
            if error.status >= 500:
                error.hint = 'if it is an older server, set "protocol": "legacy"'
                raise
            outcome = InconclusiveProbe.LEGACY
        except BadAnswer:
            outcome = InconclusiveProbe.LEGACY
        if not isinstance(outcome, str):
            return outcome
        version = outcome
    return InconclusiveProbe.INCOMPATIBLE


async def initialize(session: McpSession, timeouts: Timeouts) -> HandshakeResult:
    """Perform the legacy handshake. Raise BadAnswer if the result is invalid."""
    session.request_builder.set_version(LATEST_LEGACY_VERSION)
    result = await session.request(
        McpRequest("initialize", session.request_builder.initialize_params()), timeouts
    )
    handshake = parse_initialize_result(result)
    if isinstance(handshake, str):
        raise BadAnswer(handshake)
    return handshake


async def complete_handshake(session: McpSession, result: HandshakeResult) -> HandshakeResult:
    """Use the negotiated version from now on; in the legacy era also send ``notifications/initialized``."""
    session.handshake_result = result
    session.request_builder.set_version(result.version)
    session.transport.set_protocol_version(result.version, modern=result.modern)
    if not result.modern:
        # Wait until it is sent, because servers refuse requests that arrive before it.
        await session.send_notification("notifications/initialized")
    return result


async def negotiate_era(session: McpSession, timeouts: Timeouts) -> HandshakeResult:
    """Try the modern era first and fall back to legacy on a legacy answer or on silence. Raise a ServerError.

    Some legacy servers never answer a method they do not implement. After a head start for the probe,
    ``initialize`` therefore runs in parallel. The probe decides if it has finished; otherwise a successful
    ``initialize`` does. If ``initialize`` fails first, the probe gets the rest of the deadline.
    """
    loop = asyncio.get_running_loop()
    probe = loop.create_task(discover(session, timeouts))
    initialize_task: asyncio.Task[HandshakeResult] | None = None
    try:
        # The order matters for servers that accept both: only without an answer to the probe may the legacy
        # handshake decide (decision 0002).
        await asyncio.wait({probe}, timeout=_PROBE_HEAD_START_SECONDS)
        if not probe.done():
            initialize_task = loop.create_task(initialize(session, timeouts))
            await asyncio.wait({probe, initialize_task}, return_when=asyncio.FIRST_COMPLETED)
        if not probe.done() and initialize_task is not None:
            if initialize_task.exception() is None:
                return await complete_handshake(session, initialize_task.result())
            await asyncio.wait({probe})
        outcome = probe.result()
        if isinstance(outcome, HandshakeResult):
            return await complete_handshake(session, outcome)
        if outcome is InconclusiveProbe.INCOMPATIBLE:
            raise BadAnswer(
                "uses a version of MCP that Toolyard does not support", hint="update the server or Toolyard"
            )
        return await complete_handshake(session, await (initialize_task or initialize(session, timeouts)))
    finally:
        await cancel_tasks(task for task in (probe, initialize_task) if task is not None)


def connect_error(error: ServerError) -> ServerError:
    """Convert an error of the handshake for the caller of ``connect``: nothing was executed."""
    if isinstance(error, RpcError):
        if error.code == UNSUPPORTED_VERSION:
            return BadAnswer(f"supports no version of MCP that Toolyard supports: {error.cause}")
        return Unreachable(f"refused the handshake: {error.cause}")
    if isinstance(error, OutcomeUnknown | CallTimeout):
        return Unreachable(error.cause, hint=error.hint)
    return error


_MAX_FILE_ERAS = 1000
_ERA_VALUES = ("modern", "legacy", "sse")


class FileEraCache:
    """EraStore in a JSON file. Its content is only a hint: a lost or damaged file costs one probe per
    server."""

    def __init__(self, path: Path, key: Callable[[], bytes] = bytes) -> None:
        """``key`` returns the HMAC key for the hashes that identify servers in the file."""
        self._path = path
        self._key = key
        self._eras: dict[str, Era] | None = None

    def recall(self, key: str) -> Era | None:
        return self._load_file().get(self._hash_key(key))

    def _hash_key(self, key: str) -> str:
        return hmac.digest(self._key(), key.encode(), "sha256").hex()

    def remember(self, key: str, era: Era | None) -> None:
        eras, key = self._load_file(), self._hash_key(key)
        if eras.get(key) == era:
            return
        # Re-inserting moves the entry to the end, so that the oldest ones are dropped first.
        eras.pop(key, None)
        if era is not None:
            eras[key] = era
        self._save_file(dict(list(eras.items())[-_MAX_FILE_ERAS:]))

    def _load_file(self) -> dict[str, Era]:
        if self._eras is None:
            self._eras = {}
            with contextlib.suppress(ConfigError, ValueError, RecursionError):
                content: object = json.loads(read_regular_file(self._path))
                if isinstance(content, dict):
                    items = cast("dict[str, Any]", content).items()
                    self._eras = {key: era for key, era in items if era in _ERA_VALUES}
        return self._eras

    def _save_file(self, eras: dict[str, Era]) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self._path, json.dumps(eras).encode())
