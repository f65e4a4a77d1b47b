"""The one call path: resolve the name, decide, connect if needed, call, shape the result, record it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolyard.catalog.lock.combined_locks import Locks
from toolyard.catalog.tool_listing import Roster
from toolyard.clients.manager import ClientManager
from toolyard.clients.policy_cache import Gates, GatesOf, put
from toolyard.clients.server_secrets import hush, secrets_of
from toolyard.clients.session import OnProgress
from toolyard.clients.tool_directory import Rosters
from toolyard.errors import OutcomeUnknown, ServerError, ToolRefused, ToolyardError, Unreachable
from toolyard.policy import Candidate, Gate, refused
from toolyard.policy.rules.token_scope import covers
from toolyard.results import Handles, Limits, MemoryHandles, failed, redact, shape_and_keep
from toolyard.types.call import Caller, CallRecord, Question
from toolyard.types.decision import Decision, Surface, Verdict, WriteTools
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.result import Result
from toolyard.types.server import Server, Timeouts, Trust
from toolyard.types.status import Status
from toolyard.types.tool import Definition

__all__ = ["AcceptAt", "Approve", "BeforeCall", "CallPath", "CallRules", "HandlesFor", "Via"]

log = logging.getLogger("toolyard.calls")

Approve: TypeAlias = Callable[[Question], Awaitable[bool]]
"""Asks somebody whether a call may be made: True is yes, all else is no. Raises ApprovalNeeded where they
have to be asked first."""

AcceptAt: TypeAlias = Callable[[Server], str | None]
"""The page where what became different about a server is shown and accepted; None where there is none."""

Via: TypeAlias = Callable[[Server, Definition, Mapping[str, Any], bool], Awaitable[dict[str, Any]]]
"""Takes a call that may be made to its server, for doors whose clients have connections of their own: the
server, the tool, the arguments, and whether it may be executed twice. The result may be ``input_required``,
where whoever asks answers that."""

HandlesFor: TypeAlias = Callable[[Principal], Handles]
"""Gives the store of one principal for results that were too long. A handle is no secret, the store is."""

_Seen: TypeAlias = tuple[
    Mapping[str, Definition],
    Mapping[str, Gate | None],
    Mapping[str, Definition],
    Mapping[str, Mapping[str, str]],
]
_SHOWN_KEPT = 256
_HANDLES = 64
_HANDLES_LENGTH = 4_000_000
"""Characters, for each of many. The local user, who is alone as a rule, has the usual room."""
_SHOWN = frozenset({Verdict.ALLOW, Verdict.ASK})
_UNKNOWN = "the outcome is unknown: it may have been executed, so look before you call it again"


BeforeCall: TypeAlias = Callable[[str, str, Caller], Awaitable[None]]
"""Called with a tool's id, its exposed name and the caller when a call is allowed and not yet made. Raises a
ToolyardError to prevent it."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """The settings of the call path."""

    write_tools: WriteTools = WriteTools.REJECT
    limits: Limits = field(default_factory=Limits)


class CallPath:
    """Every door calls tools through this, and no other way in skips policy."""

    def __init__(
        self,
        manager: ClientManager,
        rosters: Rosters,
        rules: CallRules,
        *,
        approve: Approve | None = None,
        record: Callable[[CallRecord], None] | None = None,
        before: BeforeCall | None = None,
        handles: HandlesFor | None = None,
        locks: Locks = Locks(),  # noqa: B008 - frozen
        accept_at: AcceptAt | None = None,
    ) -> None:
        self._locks = locks
        self._accept_at = accept_at
        self._manager = manager
        self._rosters = rosters
        self._rules = rules
        self._approve = approve
        self._record = record
        self._before = before
        self._handles_for = handles or _memory
        self._handles: OrderedDict[str, Handles] = OrderedDict()
        self._gates = GatesOf(rules.write_tools)
        self._shown: OrderedDict[tuple[str, Gates], _Seen] = OrderedDict()
        """By principal, and what they bring."""
        self._secrets: dict[str, tuple[Server, tuple[str, ...]]] = {}

    def servers_changed(self, server_ids: Collection[str]) -> None:
        """Forget what was prepared for earlier definitions of these.

        Nothing of it would be used any more, since it says which definition it is of; this is for what has
        been removed.
        """
        self._gates.servers_changed(server_ids)
        for server_id in server_ids:
            self._secrets.pop(server_id, None)
        self._rosters.forget(server_ids)

    def leave(self, principal_id: str) -> None:
        """Forget what was prepared and kept for a principal."""
        self._gates.leave(principal_id)
        for key in [each for each in self._shown if each[0] == principal_id]:
            del self._shown[key]
        self._handles.pop(principal_id, None)
        self._rosters.leave(principal_id)

    # Seeing.

    def shown(self, roster: Roster, caller: Caller) -> Mapping[str, Definition]:
        """The tools of a roster that this caller gets to see, sorted by name."""
        gates = {server_id: self._gate(caller, server_id) for server_id in roster.catalogues}
        aside = self._aside(roster)
        key = (caller.principal.id, self._gates(caller))
        before = self._shown.get(key)
        if before is not None and before[0] is roster.tools and before[1] == gates and before[3] == aside:
            return before[2]
        verdicts = {id: gate.verdict for id, gate in gates.items() if gate is not None and not gate.shut}
        shown = {
            name: definition
            for name, definition in roster.tools.items()
            if (verdict := verdicts.get(definition.server_id)) is not None
            and verdict(Candidate(definition, name)) in _SHOWN
            and definition.name not in aside.get(definition.server_id, ())
        }
        put(self._shown, key, (roster.tools, gates, shown, aside), _SHOWN_KEPT)
        return shown

    def _aside(self, roster: Roster) -> Mapping[str, Mapping[str, str]]:
        """What the locks set aside: for each server its own names, with the reason."""
        found = {id: self._locks.reasons(one.contents) for id, one in roster.catalogues.items()}
        return {id: reasons for id, reasons in found.items() if reasons}

    def _judged(self, definition: Definition, name: str, roster: Roster) -> Candidate:
        """The tool with what the lock says of it."""
        catalogue = roster.catalogues.get(definition.server_id)
        if catalogue is None:
            return Candidate(definition, name)
        return Candidate(definition, name, self._locks.reasons(catalogue.contents).get(definition.name))

    async def _judged_now(
        self, server: Server, definition: Definition, name: str, caller: Caller
    ) -> Candidate:
        """The same at a call. What was listed for it was judged for it; of a kept listing, people may have
        accepted more since."""
        roster = self._rosters.known(caller.principal)
        catalogue = roster.catalogues.get(server.id)
        if server.cache_ttl > 0 and catalogue is not None:
            await self._locks.met(server, catalogue.contents)
        return self._judged(definition, name, roster)

    def explain(self, name: str, caller: Caller) -> Decision:
        """The decision about a tool that is known, by its exposed name or its canonical id.

        Raises ToolRefused where no such tool is known.
        """
        roster = self._rosters.known(caller.principal)
        candidate = self._candidate(roster, name)
        gate = None if candidate is None else self._gate(caller, candidate.definition.server_id)
        if candidate is None or gate is None:
            raise refused(name, self.shown(roster, caller))
        return gate.explain(candidate)

    def _candidate(self, roster: Roster, name: str) -> Candidate | None:
        definition = roster.tools.get(name)
        if definition is not None:
            return self._judged(definition, name, roster)
        for exposed, definition in roster.tools.items():
            if definition.id == name:
                return self._judged(definition, exposed, roster)
        for one in roster.quarantined():
            own = self._rosters.own_name(one.server_id, name)
            if one.name is not None and (own == one.name or name == f"{one.server_id}/{one.name}"):
                return Candidate(Definition(one.server_id, one.name), name, quarantine=one.reason)
        return None

    # Calling.

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        caller: Caller = Caller(),  # noqa: B008 - frozen
        *,
        on_progress: OnProgress | None = None,
        timeouts: Timeouts | float | None = None,
        limits: Limits | None = None,
        meta: Mapping[str, Any] | None = None,
        via: Via | None = None,
    ) -> Result:
        """Call a tool by its exposed name. ``limits`` bounds the result in place of the settings. ``via``
        takes it to the server in place of the usual connection, in its own time. ``timeouts`` count in place
        of the server's own; a number of seconds only where those are longer.

        A tool's own failure is a result with ``is_error``. Raises ToolRefused, or a ServerError.
        """
        server, promised, raw = await self._pass(name, arguments, caller, via, on_progress, timeouts, meta)
        return await shape_and_keep(
            raw,
            limits or self._rules.limits,
            server.trust,
            self._handles.get(caller.principal.id) or self.handles(caller.principal),
            server=server.id,
            secrets=self.secrets(server),
            promised=promised,
            media=caller.surface is not Surface.OPERATOR,
        )

    async def pass_on(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        caller: Caller,
        *,
        via: Via | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As ``call``, but what the server sent, untouched and unshaped: for whoever is no model.

        Raises ToolRefused, or a ServerError.
        """
        return (await self._pass(name, arguments, caller, via, on_progress, None, meta))[2]

    async def _pass(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        caller: Caller,
        via: Via | None,
        on_progress: OnProgress | None,
        timeouts: Timeouts | float | None,
        meta: Mapping[str, Any] | None,
    ) -> tuple[Server, Mapping[str, Any] | None, dict[str, Any]]:
        """The server, the schema that it promised to keep, and what it sent; whatever happens is recorded."""
        began = time.perf_counter()
        tool, outcome, told = name, "cancelled", None
        try:
            try:
                server, definition = await self._resolve(name, caller)
            except OutcomeUnknown as error:
                # A list was lost, not the call.
                raise Unreachable(error.cause, server=error.server, hint=error.hint) from error.__cause__
            tool = definition.id
            await self._decide(server, definition, name, arguments or {}, caller)
            if self._before is not None:
                await self._before(tool, name, caller)
            if via is not None:
                raw = await via(server, definition, arguments or {}, _repeatable(server, definition))
            else:
                raw = await self._manager.call(
                    server.id,
                    definition.name,
                    arguments,
                    principal=caller.principal,
                    chat=caller.chat,
                    repeatable=_repeatable(server, definition),
                    timeouts=_limits(server, timeouts),
                    on_progress=on_progress,
                    meta=meta,
                )
            outcome = _outcome(raw)
            return server, definition.output_schema, raw
        except ToolyardError as error:
            if isinstance(error, ServerError):
                self.hush(error)
            if isinstance(error, OutcomeUnknown):
                error.hint = error.hint or _UNKNOWN
            outcome, told = type(error).__name__, error.cause
            raise
        finally:
            self._note(tool, name, caller, outcome, time.perf_counter() - began, told)

    def reaches(self, server_id: str, caller: Caller) -> bool:
        """Whether a server is there for this caller at all: only then are its prompts and resources."""
        gate = self._gate(caller, server_id)
        return gate is not None and not gate.shut

    def covers(self, server_id: str, caller: Caller) -> bool:
        """Whether the token that a caller came with is for a server. One that is gone, a token for all
        covers."""
        if caller.scope is None or caller.scope.servers is None:
            return True
        server = self._manager.find(server_id, caller.principal)
        return server is not None and covers(caller.scope, server)

    async def _resolve(self, name: str, caller: Caller) -> tuple[Server, Definition]:
        located = await self._rosters.locate(name, caller.principal, caller.chat)
        if located is not None:
            return located
        roster = self._rosters.known(caller.principal)
        for server_id, failure in roster.failures.items():
            # The tool is not known because its server could not be asked; that is the thing to say.
            if self.may_see(server_id, name, caller):
                raise failure
        raise refused(name, self.shown(roster, caller))

    def may_see(self, server_id: str, name: str, caller: Caller) -> bool:
        """Whether a tool that is not known, but whose name looks like one of this server's, would be shown:
        only then may the caller learn how the server fares."""
        own = self._rosters.own_name(server_id, name)
        gate = self._gate(caller, server_id)
        if own is None or gate is None:
            return False
        return gate.verdict(Candidate(Definition(server_id, own), name)) in _SHOWN

    async def _decide(
        self, server: Server, definition: Definition, name: str, arguments: Mapping[str, Any], caller: Caller
    ) -> None:
        gate = self._gate(caller, server.id)
        if not self._locks.holds(server):
            candidate = Candidate(definition, name)
        else:
            candidate = await self._judged_now(server, definition, name, caller)
        verdict = gate.verdict(candidate) if gate is not None else Verdict.HIDE
        if verdict is Verdict.ALLOW:
            return
        if verdict is not Verdict.ASK or gate is None:
            roster = self._rosters.known(caller.principal)
            if gate is not None and candidate.quarantine is not None:
                self._refuse_unaccepted(gate, candidate, roster, caller)
            raise refused(name, self.shown(roster, caller))
        decision = gate.explain(candidate)
        if self._approve is None:
            raise ToolRefused(
                f"'{name}' needs an approval, and there is nobody to ask",
                hint="give Toolyard an approve callback, or set write_tools to 'allow'",
            )
        # A program's own words, such as the "no" that somebody typed, are no yes.
        if await self._approve(Question(decision, arguments, caller, definition)) is not True:
            raise ToolRefused(f"the call of '{name}' was not approved")

    def _refuse_unaccepted(self, gate: Gate, candidate: Candidate, roster: Roster, caller: Caller) -> None:
        """Raise what there is to say about a tool that only the lock keeps from this caller.

        A model does not get the server's new words: they are what the lock is for.
        """
        definition, name, reason = candidate
        if gate.verdict(Candidate(definition, name)) not in _SHOWN:
            return
        told = f"'{name}' is in quarantine: {reason}"
        change = self._locks.change(roster.catalogues[definition.server_id].contents, definition.name)
        if change is not None and caller.surface is Surface.OPERATOR:
            told = "\n".join((told, *(f"  {line}" for line in change.diff())))
        hint = self._how_to_accept(definition, caller) if change is not None else None
        raise ToolRefused(told, hint=hint)

    def _how_to_accept(self, definition: Definition, caller: Caller) -> str:
        server = self._manager.find(definition.server_id, caller.principal)
        page = None if self._accept_at is None or server is None else self._accept_at(server)
        if page is not None:
            return f"look at what changed and accept it at {page}"
        accept = f"`toolyard lock --accept {definition.id}`"
        return f"look at it with `toolyard lock --diff`, accept it with {accept}"

    # What is prepared once.

    def _gate(self, caller: Caller, server_id: str) -> Gate | None:
        server = self._manager.find(server_id, caller.principal)
        if server is None:
            return None
        return self._gates(caller).of(server, self._manager.state(server_id, caller.principal))

    def trust(self, server_id: str, caller: Caller) -> Trust:
        """How far the words of a server are believed; one that is gone is not."""
        server = self._manager.find(server_id, caller.principal)
        return Trust.UNTRUSTED if server is None else server.trust

    def failed(self, error: ToolyardError, caller: Caller, limits: Limits | None = None) -> Result:
        """The result that stands for an error, without secrets and fenced where its server is untrusted."""
        server = self._manager.find(getattr(error, "server", ""), caller.principal)
        trust = Trust.TRUSTED if server is None else server.trust
        secrets = () if server is None else self.secrets(server)
        return failed(error, limits or self._rules.limits, trust, secrets=secrets)

    @property
    def limits(self) -> Limits:
        """How much of a result a model gets, where nobody says otherwise."""
        return self._rules.limits

    def handles(self, principal: Principal) -> Handles:
        """Where results of this principal's calls are kept that were too long."""
        found = self._handles.get(principal.id)
        if found is None:
            found = self._handles_for(principal)
            put(self._handles, principal.id, found, _HANDLES)
        return found

    def secrets(self, server: Server) -> tuple[str, ...]:
        """The values that must not show up in an error about this server."""
        found = self._secrets.get(server.id)
        if found is None or found[0] is not server:
            found = (server, secrets_of(server))
            # One that was removed in the middle of a call is not kept.
            if self._manager.servers.get(server.id) is server:
                self._secrets[server.id] = found
        return found[1]

    def hush(self, error: ServerError) -> None:
        """Take the secrets of its server out of an error, whoever put them in."""
        server = self._manager.servers.get(error.server)
        if server is not None:
            hush(error, self.secrets(server))

    def hushed(self, status: Status) -> Status:
        """The record without the secrets of its server."""
        server = self._manager.servers.get(status.server)
        if server is None or (status.cause is None and not status.stderr):
            return status
        secrets = self.secrets(server)
        return replace(
            status,
            cause=status.cause and redact(status.cause, secrets),
            hint=status.hint and redact(status.hint, secrets),
            stderr=tuple(redact(line, secrets) for line in status.stderr),
        )

    def _note(
        self, tool: str, name: str, caller: Caller, outcome: str, seconds: float, error: str | None
    ) -> None:
        if self._record is None and not log.isEnabledFor(logging.DEBUG):
            return
        agent = caller.agent.id if caller.agent is not None else None
        record = CallRecord(tool, name, caller.principal.id, agent, outcome, seconds, error)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s in %.1f ms", record.tool, record.outcome, record.seconds * 1000)
        if self._record is not None:
            try:
                self._record(record)
            except Exception:
                # It is a user's, and the call has been made: what came of it is not to be lost.
                log.exception("%s: the callback that records calls failed", tool)


def _memory(principal: Principal) -> Handles:
    return MemoryHandles() if principal.id == LOCAL.id else MemoryHandles(_HANDLES_LENGTH)


def _outcome(raw: Mapping[str, Any]) -> str:
    if raw.get("resultType") == "input_required":
        return "input required"
    return "tool error" if raw.get("isError") is True else "ok"


def _limits(server: Server, timeouts: Timeouts | float | None) -> Timeouts | None:
    if timeouts is None or isinstance(timeouts, Timeouts):
        return timeouts
    return server.timeouts.within(timeouts)


def _repeatable(server: Server, definition: Definition) -> bool:
    """Only a trusted server's word counts that a second execution does no harm."""
    if server.trust is not Trust.TRUSTED:
        return False
    return definition.read_only_hint is True or definition.idempotent_hint is True
