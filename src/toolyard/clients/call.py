"""The one call path: resolve the name, decide, connect if needed, call, shape the result, record it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolyard.catalog.roster import Roster
from toolyard.clients.link import OnProgress
from toolyard.clients.manager import ClientManager
from toolyard.clients.rosters import Rosters
from toolyard.clients.secrecy import hush, secrets_of
from toolyard.content import Handles, Limits, MemoryHandles, redact, shape_and_keep
from toolyard.errors import ServerError, ToolRefused, ToolyardError
from toolyard.model.call import Caller, CallRecord, Question
from toolyard.model.decision import Decision, Verdict, WriteTools
from toolyard.model.result import Result
from toolyard.model.server import Server, Timeouts, Trust
from toolyard.model.status import State, Status
from toolyard.model.tool import Definition
from toolyard.policy import Candidate, Gate, Policy, refused

__all__ = ["Approve", "CallPath", "CallRules"]

log = logging.getLogger("toolyard.calls")

Approve: TypeAlias = Callable[[Question], Awaitable[bool]]
"""Asks somebody whether a call may be made."""

_Seen: TypeAlias = tuple[Mapping[str, Definition], Mapping[str, Gate | None], Mapping[str, Definition]]
_GATES = 4096
_SHOWN_KEPT = 64
_SHOWN = frozenset({Verdict.ALLOW, Verdict.ASK})


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
        handles: Handles | None = None,
    ) -> None:
        self._manager = manager
        self._rosters = rosters
        self._rules = rules
        self._approve = approve
        self._record = record
        self._handles = handles or MemoryHandles()
        self._policies: dict[Caller, Policy] = {}
        self._gates: dict[tuple[Caller, str, State], Gate] = {}
        self._shown: dict[Caller, _Seen] = {}
        self._secrets: dict[str, tuple[str, ...]] = {}

    def servers_changed(self) -> None:
        """Forget what was prepared for earlier definitions."""
        self._policies.clear()
        self._gates.clear()
        self._shown.clear()
        self._secrets.clear()
        self._rosters.forget()

    # Seeing.

    def shown(self, roster: Roster, caller: Caller) -> Mapping[str, Definition]:
        """The tools of a roster that this caller gets to see, sorted by name."""
        gates = {server_id: self._gate(caller, server_id) for server_id in roster.catalogues}
        before = self._shown.get(caller)
        if before is not None and before[0] is roster.tools and before[1] == gates:
            return before[2]
        verdicts = {id: gate.verdict for id, gate in gates.items() if gate is not None and not gate.shut}
        shown = {
            name: definition
            for name, definition in roster.tools.items()
            if (verdict := verdicts.get(definition.server_id)) is not None
            and verdict(Candidate(definition, name)) in _SHOWN
        }
        if len(self._shown) >= _SHOWN_KEPT:
            self._shown.clear()
        self._shown[caller] = (roster.tools, gates, shown)
        return shown

    def explain(self, name: str, caller: Caller) -> Decision:
        """The decision about a tool that is known, by its exposed name or its canonical id.

        Raises ToolRefused where no such tool is known.
        """
        roster = self._rosters.known(caller.principal)
        candidate = _candidate(roster, name)
        gate = None if candidate is None else self._gate(caller, candidate.definition.server_id)
        if candidate is None or gate is None:
            raise refused(name, self.shown(roster, caller))
        return gate.explain(candidate)

    # Calling.

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        caller: Caller = Caller(),  # noqa: B008 - frozen
        *,
        on_progress: OnProgress | None = None,
        timeouts: Timeouts | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Result:
        """Call a tool by its exposed name.

        A tool's own failure is a result with ``is_error``. Raises ToolRefused, or a ServerError.
        """
        began = time.perf_counter()
        tool, outcome, told = name, "cancelled", None
        try:
            server, definition = await self._resolve(name, caller)
            tool = definition.id
            await self._decide(server, definition, name, arguments or {}, caller)
            raw = await self._manager.call(
                server.id,
                definition.name,
                arguments,
                principal=caller.principal,
                repeatable=_repeatable(server, definition),
                timeouts=timeouts,
                on_progress=on_progress,
                meta=meta,
            )
            result = await shape_and_keep(
                raw,
                self._rules.limits,
                server.trust,
                self._handles,
                server=server.id,
                secrets=self.secrets(server),
            )
            outcome = "tool error" if result.is_error else "ok"
            return result
        except ToolyardError as error:
            if isinstance(error, ServerError):
                self.hush(error)
            outcome, told = type(error).__name__, error.cause
            raise
        finally:
            self._note(tool, name, caller, outcome, time.perf_counter() - began, told)

    async def _resolve(self, name: str, caller: Caller) -> tuple[Server, Definition]:
        located = await self._rosters.locate(name, caller.principal)
        if located is not None:
            return self._manager.servers[located[0]], located[1]
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
        candidate = Candidate(definition, name)
        verdict = gate.verdict(candidate) if gate is not None else Verdict.HIDE
        if verdict is Verdict.ALLOW:
            return
        if verdict is not Verdict.ASK or gate is None:
            roster = self._rosters.known(caller.principal)
            raise refused(name, self.shown(roster, caller))
        decision = gate.explain(candidate)
        if self._approve is None:
            raise ToolRefused(
                f"'{name}' needs an approval, and there is nobody to ask",
                hint="give Toolyard an approve callback, or set write_tools to 'allow'",
            )
        if not await self._approve(Question(decision, arguments, caller)):
            raise ToolRefused(f"the call of '{name}' was not approved")

    # What is prepared once.

    def _gate(self, caller: Caller, server_id: str) -> Gate | None:
        server = self._manager.servers.get(server_id)
        if server is None:
            return None
        state = self._manager.state(server_id, caller.principal)
        key = (caller, server_id, state)
        gate = self._gates.get(key)
        if gate is None:
            if len(self._gates) >= _GATES:
                self._gates.clear()
            gate = self._gates[key] = self._policy(caller).gate(server, state)
        return gate

    def _policy(self, caller: Caller) -> Policy:
        policy = self._policies.get(caller)
        if policy is None:
            if len(self._policies) >= _GATES:
                self._policies.clear()
            policy = self._policies[caller] = Policy.prepare(
                caller.surface,
                write_tools=self._rules.write_tools,
                bundles=caller.bundles,
                agent=caller.agent,
            )
        return policy

    def secrets(self, server: Server) -> tuple[str, ...]:
        """The values that must not show up in an error about this server."""
        found = self._secrets.get(server.id)
        if found is None:
            found = self._secrets[server.id] = secrets_of(server)
        return found

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
            self._record(record)


def _candidate(roster: Roster, name: str) -> Candidate | None:
    definition = roster.tools.get(name)
    if definition is not None:
        return Candidate(definition, name)
    for exposed, definition in roster.tools.items():
        if definition.id == name:
            return Candidate(definition, exposed)
    for one in roster.quarantined():
        if one.name is not None and name in (f"{one.server_id}/{one.name}", f"{one.server_id}_{one.name}"):
            return Candidate(Definition(one.server_id, one.name), name, quarantine=one.reason)
    return None


def _repeatable(server: Server, definition: Definition) -> bool:
    """Only a trusted server's word counts that a second execution does no harm."""
    if server.trust is not Trust.TRUSTED:
        return False
    return definition.read_only_hint is True or definition.idempotent_hint is True
