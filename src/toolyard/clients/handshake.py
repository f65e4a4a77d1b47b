"""Protocol handshake: find out which era of MCP a server supports, and remember it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from toolyard.clients.session import McpSession
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.config.file_io import read_regular_file, write_private_file
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
from toolyard.protocol.constants import UNSUPPORTED_VERSION
from toolyard.protocol.eras import ERAS, Era
from toolyard.protocol.handshake import (
    HandshakeResult,
    InconclusiveProbe,
    interpret_probe,
    parse_initialize_result,
)
from toolyard.protocol.jsonrpc import RpcFailure
from toolyard.transports.transport import NOT_MCP_URL_HINT
from toolyard.transports.transport_table import TRANSPORTS
from toolyard.types.call import McpRequest
from toolyard.types.server import Timeouts

__all__ = ["EraCache", "EraStore", "FileEraCache", "connect_error", "negotiate_era"]


_PROBE_HEAD_START_SECONDS = 3.0
"""Seconds to wait for the handshake of one era before that of older ones runs beside it. Whichever of the two
succeeds first decides, so that a server that is slow to start is not penalised."""


class EraStore(Protocol):
    """Stores, by the fingerprint of a server's definition, the name of its era, or of the transport that had
    to be used in place of the configured one."""

    def recall(self, key: str) -> str | None: ...

    def remember(self, key: str, name: str | None) -> None: ...


class EraCache:
    """In-memory EraStore, for the lifetime of the process."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def recall(self, key: str) -> str | None:
        return self._names.get(key)

    def remember(self, key: str, name: str | None) -> None:
        if name is None:
            self._names.pop(key, None)
        else:
            self._names[key] = name


async def negotiate_era(session: McpSession, eras: Sequence[Era], timeouts: Timeouts) -> HandshakeResult:
    """Complete the handshake in the newest of these eras that the server supports. Raise a ServerError.

    Some servers never answer a method that they do not implement. After a head start, the handshake of older
    eras therefore runs in parallel. That of the newer era decides if it has finished; otherwise a successful
    one of an older era does. If the older ones fail first, the newer one gets the rest of the deadline.
    """
    tasks: list[asyncio.Task[Any]] = []
    try:
        result = await _negotiate(session, eras, timeouts, tasks)
        session.handshake_result = result
        session.request_builder.set_version(result.version)
        session.transport.set_protocol_version(result.version)
        if result.era.has_sessions:
            # Wait until it is sent, because servers refuse requests that arrive before it.
            await session.send_notification("notifications/initialized")
        return result
    finally:
        await cancel_tasks(tasks)


async def _negotiate(
    session: McpSession, eras: Sequence[Era], timeouts: Timeouts, tasks: list[asyncio.Task[Any]]
) -> HandshakeResult:
    """Return the result of the handshake. The caller cancels the ``tasks`` that were started for it."""
    era, *older_eras = eras
    if era.has_sessions:
        return await _initialize(session, era, timeouts)
    if not older_eras:
        outcome = await _discover(session, era, timeouts)
        if isinstance(outcome, HandshakeResult):
            return outcome
        hint = f'remove "protocol": "{era.name}" to let Toolyard detect the protocol version'
        raise BadAnswer(f"does not support protocol version {era.latest_version}", hint=hint)
    loop = asyncio.get_running_loop()
    probe = loop.create_task(_discover(session, era, timeouts))
    tasks.append(probe)
    older: asyncio.Task[HandshakeResult] | None = None
    # The order matters for servers that accept both: only without an answer to the probe may an older
    # handshake decide (decision 0002).
    await asyncio.wait({probe}, timeout=_PROBE_HEAD_START_SECONDS)
    if not probe.done():
        older = loop.create_task(_negotiate(session, older_eras, timeouts, tasks))
        tasks.append(older)
        await asyncio.wait({probe, older}, return_when=asyncio.FIRST_COMPLETED)
    if not probe.done() and older is not None:
        if older.exception() is None:
            return older.result()
        await asyncio.wait({probe})
    outcome = probe.result()
    if isinstance(outcome, HandshakeResult):
        return outcome
    if outcome is InconclusiveProbe.INCOMPATIBLE:
        raise BadAnswer(
            "uses a version of MCP that Toolyard does not support", hint="update the server or Toolyard"
        )
    return await (older or _negotiate(session, older_eras, timeouts, tasks))


async def _discover(session: McpSession, era: Era, timeouts: Timeouts) -> HandshakeResult | InconclusiveProbe:
    """Probe with ``server/discover``. Raise only errors that say nothing about the era: unreachable, not
    signed in, throttled, or a server error (5xx)."""
    version = era.latest_version
    for _ in range(2):
        # Second round: the server rejected our version and named one that we support too.
        session.request_builder.set_version(version)
        session.transport.set_protocol_version(version)
        try:
            result = await session.request(McpRequest(era.handshake_method), timeouts)
            outcome = interpret_probe(result, None)
        except RpcError as error:
            outcome = interpret_probe(None, RpcFailure(error.code, error.message, error.data))
        except SessionLost:
            outcome = InconclusiveProbe.OLDER
        # A server of an older era answers an unknown method in many ways: a JSON-RPC error, 4xx, or something
        # unreadable.
        except HttpStatus as error:
            if error.status >= 500:
                if error.status != 501:
                    error.hint = "the error is on the server's side: read its log, or try again later"
                raise
            outcome = InconclusiveProbe.OLDER
        except BadAnswer:
            outcome = InconclusiveProbe.OLDER
        if not isinstance(outcome, str):
            return outcome
        version = outcome
    return InconclusiveProbe.INCOMPATIBLE


async def _initialize(session: McpSession, era: Era, timeouts: Timeouts) -> HandshakeResult:
    """Begin a session. Raise BadAnswer if the result is invalid."""
    session.request_builder.set_version(era.latest_version)
    result = await session.request(
        McpRequest(era.handshake_method, session.request_builder.initialize_params()), timeouts
    )
    handshake = parse_initialize_result(result)
    if isinstance(handshake, str):
        raise BadAnswer(handshake)
    return handshake


def connect_error(error: ServerError) -> ServerError:
    """Convert an error of the handshake for the caller of ``connect``: nothing was executed."""
    if isinstance(error, RpcError):
        if error.code == UNSUPPORTED_VERSION:
            return BadAnswer(f"supports no version of MCP that Toolyard supports: {error.cause}")
        return Unreachable(f"refused the handshake: {error.cause}")
    if isinstance(error, OutcomeUnknown | CallTimeout):
        return Unreachable(error.cause, hint=error.hint)
    if isinstance(error, HttpStatus) and error.status in (404, 405, 410, 501):
        error.hint = error.hint or NOT_MCP_URL_HINT
    return error


_MAX_FILE_ERAS = 1000
_STORED_NAMES = {era.name for era in ERAS} | TRANSPORTS.keys()


class FileEraCache:
    """EraStore in a JSON file. Its content is only a hint: a lost or damaged file costs one probe per
    server."""

    def __init__(self, path: Path, key: Callable[[], bytes] = bytes) -> None:
        """``key`` returns the HMAC key for the hashes that identify servers in the file."""
        self._path = path
        self._key = key
        self._names: dict[str, str] | None = None

    def recall(self, key: str) -> str | None:
        names = self._load_file()
        # Earlier versions stored the keys as they are.
        return names.get(self._hash_key(key)) or names.get(key)

    def _hash_key(self, key: str) -> str:
        return hmac.digest(self._key(), key.encode(), "sha256").hex()

    def remember(self, key: str, name: str | None) -> None:
        names = self._load_file()
        is_stored_plain = names.pop(key, None) is not None
        key = self._hash_key(key)
        if names.get(key) == name and not is_stored_plain:
            return
        # Re-inserting moves the entry to the end, so that the oldest ones are dropped first.
        names.pop(key, None)
        if name is not None:
            names[key] = name
        self._save_file(dict(list(names.items())[-_MAX_FILE_ERAS:]))

    def _load_file(self) -> dict[str, str]:
        if self._names is None:
            self._names = {}
            with contextlib.suppress(ConfigError, ValueError, RecursionError):
                content: object = json.loads(read_regular_file(self._path))
                if isinstance(content, dict):
                    items = cast("dict[str, Any]", content).items()
                    self._names = {
                        key: name for key, name in items if isinstance(name, str) and name in _STORED_NAMES
                    }
        return self._names

    def _save_file(self, names: dict[str, str]) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self._path, json.dumps(names).encode())
