"""Which connection a request takes, so that no server is told that a client can do what it cannot.

A client that can do nothing for servers shares the principal's usual connection; where that one's server was
told of somebody who can, in a chat, it has one beside it that told nothing. A legacy session that can
has connections of its own. A modern request says what its client can do: a modern server is told so with it,
over the usual connection; for one of the legacy era there are connections that told it exactly that, each
used by one call at a time, so that a question is always that call's.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.clients import ClientManager
from toolyard.clients.callbacks import Answerer, Callbacks, NotOffered
from toolyard.clients.connection import Connection
from toolyard.errors import BadAnswer, ServerError
from toolyard.gateway.client_request import CURRENT, Request
from toolyard.gateway.input_required.suspended_call import Parked
from toolyard.gateway.legacy_session import Session
from toolyard.protocol.codec import encode
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.server import Timeouts
from toolyard.types.status import State

__all__ = ["Upstream", "needs_lane"]

_ROUND = ("inputResponses", "requestState")
"""Parameters of the modern era's rounds, which a legacy server knows nothing of."""

_SILENT = "silent"
"""The key of the connections that told their servers nothing."""
_TOLD_NOTHING = Callbacks()
_NOTHING: Mapping[str, Any] = {}

_Kind: TypeAlias = tuple[str, str, bytes]
"""Server, principal, and what the server was told that its client can do."""


def needs_lane(request: Request) -> bool:
    """Whether a request cannot simply share the usual connection."""
    if request.session is not None:
        return request.session.has_lanes
    return bool(request.capabilities) or request.log_level is not None


@dataclass(slots=True, eq=False)
class _Lane:
    """A connection for one call at a time."""

    key: str
    connection: Connection | None = None
    holder: Parked | None = None
    level: tuple[int, str] | None = None
    """The level that the server was told, and on which of its connections."""


class Upstream:
    """Takes requests to servers."""

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager
        self._free: dict[_Kind, list[_Lane]] = {}
        self._keys = itertools.count(1)
        self._levels: dict[tuple[str, str], tuple[int, str]] = {}

    async def for_request(
        self,
        server_id: str,
        principal: Principal,
        method: str,
        params: Mapping[str, Any],
        request: Request,
        *,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
    ) -> dict[str, Any]:
        """The result of what a legacy client wants, or a client that can do nothing for servers. Raises a
        ServerError."""
        session, level, offered = request.session, request.log_level, None
        if session is None or not session.has_lanes:
            connection = self._manager.connection(server_id, principal)
            if connection.offers:
                facts = connection.facts or await connection.ready()
                connection, offered = self._silent(connection, principal, modern=facts.modern)
        else:
            CURRENT.set(request)
            connection = self._manager.lane(server_id, principal, session.key, session.callbacks)
            level = session.log_level or "info"
            if session.log_level is not None:
                key = (session.key, server_id)
                self._levels[key] = await _tell_level(connection, level, self._levels.get(key))
        result = await connection.request(
            method,
            params,
            repeatable=repeatable,
            timeouts=timeouts,
            on_progress=request.progressed if request.progress_token is not None else None,
            meta=request.meta,
            log_level=level,
            capabilities=offered,
        )
        if offered is not None and result.get("resultType") == "input_required":
            raise BadAnswer("wants input, which was not offered", server=server_id)
        return result

    def _silent(
        self, usual: Connection, principal: Principal, *, modern: bool
    ) -> tuple[Connection, Mapping[str, Any] | None]:
        """The connection for a client that can do nothing for servers, where the usual one told its server of
        somebody who can; and what a modern server is told of the client with its request."""
        if modern:
            return usual, _NOTHING
        server = usual.server
        whose = LOCAL if server.shared else principal
        return self._manager.lane(server.id, whose, _SILENT, _TOLD_NOTHING), None

    async def for_round(
        self,
        server_id: str,
        principal: Principal,
        method: str,
        params: Mapping[str, Any],
        parked: Parked,
        *,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
    ) -> dict[str, Any]:
        """The result of what a modern client wants that can answer questions, or wants logs. It is
        ``input_required`` where a modern server asks. Raises a ServerError."""
        facts = await self._manager.facts(server_id, principal=principal)
        if facts.modern and parked.request.log_level is None:
            connection = self._manager.connection(server_id, principal)
            return await _send(connection, method, params, parked, repeatable, timeouts)
        kind = (server_id, principal.id, encode(dict(parked.request.capabilities)))
        lane, connection = self._take(kind, server_id, principal, parked.request.capabilities)
        lane.holder = parked
        try:
            if (level := parked.request.log_level) is not None:
                lane.level = await _tell_level(connection, level, lane.level)
            if not facts.modern:
                params = {key: params[key] for key in params if key not in _ROUND}
            result = await _send(connection, method, params, parked, repeatable, timeouts)
        except ServerError:
            self._put(kind, lane)
            raise
        except BaseException:
            # What was cancelled in the middle may still speak, and must not be taken for the next call.
            lane.holder = None
            await self._manager.end_lanes(lane.key)
            raise
        self._put(kind, lane)
        return result

    def _take(
        self, kind: _Kind, server_id: str, principal: Principal, capabilities: Mapping[str, Any]
    ) -> tuple[_Lane, Connection]:
        free = self._free.get(kind, [])
        while free:
            lane = free.pop()
            if lane.connection is not None and lane.connection.state is not State.CLOSED:
                return lane, lane.connection
        lane = _Lane(f"lane-{next(self._keys)}")
        callbacks = _callbacks(lane, capabilities)
        lane.connection = self._manager.lane(server_id, principal, lane.key, callbacks)
        return lane, lane.connection

    def _put(self, kind: _Kind, lane: _Lane) -> None:
        lane.holder = None
        if lane.connection is not None and lane.connection.state is not State.CLOSED:
            self._free.setdefault(kind, []).append(lane)

    def forget(self, server_ids: Collection[str]) -> None:
        """These servers are gone, and their connections closed."""
        for kind in [kind for kind in self._free if kind[0] in server_ids]:
            del self._free[kind]

    async def leave(self, session: Session) -> None:
        """A session is over: close its connections."""
        for key in [key for key in self._levels if key[0] == session.key]:
            del self._levels[key]
        await self._manager.end_lanes(session.key)


async def _send(
    connection: Connection,
    method: str,
    params: Mapping[str, Any],
    parked: Parked,
    repeatable: bool,
    timeouts: Timeouts | None,
) -> dict[str, Any]:
    request = parked.request
    # A later round may want to know what this one does not.
    wants_progress = request.progress_token is not None or method == "tools/call"
    return await connection.request(
        method,
        params,
        repeatable=repeatable,
        timeouts=timeouts,
        on_progress=parked.progressed if wants_progress else None,
        meta=request.meta,
        log_level=request.log_level,
        capabilities=request.capabilities,
    )


async def _tell_level(connection: Connection, level: str, told: tuple[int, str] | None) -> tuple[int, str]:
    """Tell a legacy server which logs are wanted, once for each time that it is connected."""
    facts = await connection.ready()
    now = (connection.status().connects, level)
    if now != told and not facts.modern and "logging" in facts.capabilities:
        # A server that cannot set a level still logs as it likes; what is not wanted is filtered here.
        with contextlib.suppress(ServerError):
            await connection.request("logging/setLevel", {"level": level})
    return now


def _callbacks(lane: _Lane, capabilities: Mapping[str, Any]) -> Callbacks:
    """What the server of a lane is offered: the client's own capabilities, answered by whoever holds it."""

    def answerer(method: str) -> Answerer | None:
        if method.partition("/")[0] not in capabilities:
            return None

        async def answer(_: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            if lane.holder is None:
                raise NotOffered(method)
            return await lane.holder.ask(method, params)

        return answer

    def logged(_: str, params: Mapping[str, Any]) -> None:
        if lane.holder is not None:
            lane.holder.request.logged(params)

    return Callbacks(
        elicitation=answerer("elicitation/create"),
        sampling=answerer("sampling/createMessage"),
        roots=answerer("roots/list"),
        log=logged,
        offers=dict(capabilities),
    )
