"""The one call path: resolve the name, decide, connect if needed, call, shape the result, record it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.policy_cache import PolicyCache, ServerPolicies, put_bounded
from toolyard.clients.server_secrets import find_secrets, redact_error
from toolyard.clients.session import OnProgress
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.errors import OutcomeUnknown, ServerError, ToolRefused, ToolyardError, Unreachable
from toolyard.policy import Candidate, ServerPolicy, build_refusal
from toolyard.policy.rules.token_scope import scope_covers_server
from toolyard.results import (
    MemoryResultStore,
    ResultLimits,
    ResultStore,
    error_to_result,
    redact_secrets,
    shape_and_store,
)
from toolyard.types.call import ApprovalRequest, Caller, CallRecord
from toolyard.types.decision import Decision, Surface, Verdict, WriteTools
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.result import Result
from toolyard.types.server import Server, Timeouts, Trust
from toolyard.types.status import Status
from toolyard.types.tool import Definition

__all__ = [
    "AcceptUrlFor",
    "ApprovalHandler",
    "BeforeCall",
    "CallPath",
    "CallRoute",
    "CallSettings",
    "ResultStoreFor",
]

log = logging.getLogger("toolyard.calls")

ApprovalHandler: TypeAlias = Callable[[ApprovalRequest], Awaitable[bool]]
"""Asks somebody whether a call may be made: True is yes, all else is no. Raises ApprovalNeeded where they
have to be asked first."""

AcceptUrlFor: TypeAlias = Callable[[Server], str | None]
"""The page where what became different about a server is shown and accepted; None where there is none."""

CallRoute: TypeAlias = Callable[[Server, Definition, Mapping[str, Any], bool], Awaitable[dict[str, Any]]]
"""Takes a call that may be made to its server, for doors whose clients have connections of their own: the
server, the tool, the arguments, and whether it may be executed twice. The result may be ``input_required``,
where whoever asks answers that."""

ResultStoreFor: TypeAlias = Callable[[Principal], ResultStore]
"""Gives the store of one principal for results that were too long. A handle is no secret, the store is."""

_VisibleToolsEntry: TypeAlias = tuple[
    Mapping[str, Definition],
    Mapping[str, ServerPolicy | None],
    Mapping[str, Definition],
    Mapping[str, Mapping[str, str]],
]
_MAX_VISIBLE_TOOLS_ENTRIES = 256
_MAX_RESULT_STORES = 64
_MAX_RESULT_STORE_CHARACTERS = 4_000_000
"""Characters, for each of many. The local user, who is alone as a rule, has the usual room."""
_VISIBLE_VERDICTS = frozenset({Verdict.ALLOW, Verdict.ASK})
_OUTCOME_UNKNOWN_HINT = "the outcome is unknown: it may have been executed, so look before you call it again"


BeforeCall: TypeAlias = Callable[[str, str, Caller], Awaitable[None]]
"""Called with a tool's id, its exposed name and the caller when a call is allowed and not yet made. Raises a
ToolyardError to prevent it."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of the call path."""

    write_tools: WriteTools = WriteTools.REJECT
    limits: ResultLimits = field(default_factory=ResultLimits)


class CallPath:
    """Every door calls tools through this, and no other way in skips policy."""

    def __init__(
        self,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        settings: CallSettings,
        *,
        approve: ApprovalHandler | None = None,
        record: Callable[[CallRecord], None] | None = None,
        before_call: BeforeCall | None = None,
        result_store_for: ResultStoreFor | None = None,
        locks: CombinedLocks = CombinedLocks(),  # noqa: B008 - frozen
        accept_url_for: AcceptUrlFor | None = None,
    ) -> None:
        self._locks = locks
        self._accept_url_for = accept_url_for
        self._manager = manager
        self._tool_directory = tool_directory
        self._settings = settings
        self._approve = approve
        self._record = record
        self._before_call = before_call
        self._result_store_for = result_store_for or _make_memory_store
        self._result_stores: OrderedDict[str, ResultStore] = OrderedDict()
        self._policy_cache = PolicyCache(settings.write_tools)
        self._visible_tools: OrderedDict[tuple[str, ServerPolicies], _VisibleToolsEntry] = OrderedDict()
        """By principal, and what they bring."""
        self._secrets: dict[str, tuple[Server, tuple[str, ...]]] = {}

    def invalidate_servers(self, server_ids: Collection[str]) -> None:
        """Forget what was prepared for earlier definitions of these.

        Nothing of it would be used any more, since it says which definition it is of; this is for what has
        been removed.
        """
        self._policy_cache.invalidate_servers(server_ids)
        for server_id in server_ids:
            self._secrets.pop(server_id, None)
        self._tool_directory.forget_servers(server_ids)

    def forget_principal(self, principal_id: str) -> None:
        """Forget what was prepared and kept for a principal."""
        self._policy_cache.forget_principal(principal_id)
        for key in [each for each in self._visible_tools if each[0] == principal_id]:
            del self._visible_tools[key]
        self._result_stores.pop(principal_id, None)
        self._tool_directory.forget_principal(principal_id)

    # Seeing.

    def shown(self, roster: ToolListing, caller: Caller) -> Mapping[str, Definition]:
        """The tools of a roster that this caller gets to see, sorted by name."""
        gates = {server_id: self._find_server_policy(caller, server_id) for server_id in roster.catalogues}
        aside = self._find_quarantined(roster)
        key = (caller.principal.id, self._policy_cache(caller))
        before = self._visible_tools.get(key)
        if before is not None and before[0] is roster.tools and before[1] == gates and before[3] == aside:
            return before[2]
        verdicts = {
            id: gate.verdict for id, gate in gates.items() if gate is not None and not gate.blocks_all
        }
        shown = {
            name: definition
            for name, definition in roster.tools.items()
            if (verdict := verdicts.get(definition.server_id)) is not None
            and verdict(Candidate(definition, name)) in _VISIBLE_VERDICTS
            and definition.name not in aside.get(definition.server_id, ())
        }
        put_bounded(self._visible_tools, key, (roster.tools, gates, shown, aside), _MAX_VISIBLE_TOOLS_ENTRIES)
        return shown

    def _find_quarantined(self, roster: ToolListing) -> Mapping[str, Mapping[str, str]]:
        """What the locks set aside: for each server its own names, with the reason."""
        found = {id: self._locks.quarantine_reasons(one.contents) for id, one in roster.catalogues.items()}
        return {id: reasons for id, reasons in found.items() if reasons}

    def _make_candidate(self, definition: Definition, name: str, roster: ToolListing) -> Candidate:
        """The tool with what the lock says of it."""
        catalogue = roster.catalogues.get(definition.server_id)
        if catalogue is None:
            return Candidate(definition, name)
        return Candidate(
            definition, name, self._locks.quarantine_reasons(catalogue.contents).get(definition.name)
        )

    async def _make_checked_candidate(
        self, server: Server, definition: Definition, name: str, caller: Caller
    ) -> Candidate:
        """The same at a call. What was listed for it was judged for it; of a kept listing, people may have
        accepted more since."""
        roster = self._tool_directory.known_listing(caller.principal)
        catalogue = roster.catalogues.get(server.id)
        if server.cache_ttl > 0 and catalogue is not None:
            await self._locks.check_listing(server, catalogue.contents)
        return self._make_candidate(definition, name, roster)

    def explain(self, name: str, caller: Caller) -> Decision:
        """The decision about a tool that is known, by its exposed name or its canonical id.

        Raises ToolRefused where no such tool is known.
        """
        roster = self._tool_directory.known_listing(caller.principal)
        candidate = self._find_candidate(roster, name)
        gate = None if candidate is None else self._find_server_policy(caller, candidate.definition.server_id)
        if candidate is None or gate is None:
            raise build_refusal(name, self.shown(roster, caller))
        return gate.explain(candidate)

    def _find_candidate(self, roster: ToolListing, name: str) -> Candidate | None:
        definition = roster.tools.get(name)
        if definition is not None:
            return self._make_candidate(definition, name, roster)
        for exposed, definition in roster.tools.items():
            if definition.id == name:
                return self._make_candidate(definition, exposed, roster)
        for one in roster.quarantined():
            own = self._tool_directory.guess_tool_name(one.server_id, name)
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
        limits: ResultLimits | None = None,
        meta: Mapping[str, Any] | None = None,
        route: CallRoute | None = None,
    ) -> Result:
        """Call a tool by its exposed name. ``limits`` bounds the result in place of the settings. ``via``
        takes it to the server in place of the usual connection, in its own time. ``timeouts`` count in place
        of the server's own; a number of seconds only where those are longer.

        A tool's own failure is a result with ``is_error``. Raises ToolRefused, or a ServerError.
        """
        server, promised, raw = await self._call_and_record(
            name, arguments, caller, route, on_progress, timeouts, meta
        )
        return await shape_and_store(
            raw,
            limits or self._settings.limits,
            server.trust,
            self._result_stores.get(caller.principal.id) or self.result_store(caller.principal),
            server=server.id,
            secrets=self.server_secrets(server),
            output_schema=promised,
            media=caller.surface is not Surface.OPERATOR,
        )

    async def call_raw(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        caller: Caller,
        *,
        route: CallRoute | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As ``call``, but what the server sent, untouched and unshaped: for whoever is no model.

        Raises ToolRefused, or a ServerError.
        """
        return (await self._call_and_record(name, arguments, caller, route, on_progress, None, meta))[2]

    async def _call_and_record(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        caller: Caller,
        route: CallRoute | None,
        on_progress: OnProgress | None,
        timeouts: Timeouts | float | None,
        meta: Mapping[str, Any] | None,
    ) -> tuple[Server, Mapping[str, Any] | None, dict[str, Any]]:
        """The server, the schema that it promised to keep, and what it sent; whatever happens is recorded."""
        began = time.perf_counter()
        tool, outcome, told = name, "cancelled", None
        try:
            try:
                server, definition = await self._resolve_tool(name, caller)
            except OutcomeUnknown as error:
                # A list was lost, not the call.
                raise Unreachable(error.cause, server=error.server, hint=error.hint) from error.__cause__
            tool = definition.id
            await self._authorize_call(server, definition, name, arguments or {}, caller)
            if self._before_call is not None:
                await self._before_call(tool, name, caller)
            if route is not None:
                raw = await route(server, definition, arguments or {}, _is_repeatable(server, definition))
            else:
                raw = await self._manager.call(
                    server.id,
                    definition.name,
                    arguments,
                    principal=caller.principal,
                    chat=caller.chat,
                    repeatable=_is_repeatable(server, definition),
                    timeouts=_resolve_timeouts(server, timeouts),
                    on_progress=on_progress,
                    meta=meta,
                )
            outcome = _describe_outcome(raw)
            return server, definition.output_schema, raw
        except ToolyardError as error:
            if isinstance(error, ServerError):
                self.redact_error(error)
            if isinstance(error, OutcomeUnknown):
                error.hint = error.hint or _OUTCOME_UNKNOWN_HINT
            outcome, told = type(error).__name__, error.cause
            raise
        finally:
            self._record_call(tool, name, caller, outcome, time.perf_counter() - began, told)

    def can_reach(self, server_id: str, caller: Caller) -> bool:
        """Whether a server is there for this caller at all: only then are its prompts and resources."""
        gate = self._find_server_policy(caller, server_id)
        return gate is not None and not gate.blocks_all

    def is_in_token_scope(self, server_id: str, caller: Caller) -> bool:
        """Whether the token that a caller came with is for a server. One that is gone, a token for all
        covers."""
        if caller.scope is None or caller.scope.servers is None:
            return True
        server = self._manager.find(server_id, caller.principal)
        return server is not None and scope_covers_server(caller.scope, server)

    async def _resolve_tool(self, name: str, caller: Caller) -> tuple[Server, Definition]:
        located = await self._tool_directory.locate_tool(name, caller.principal, caller.chat)
        if located is not None:
            return located
        roster = self._tool_directory.known_listing(caller.principal)
        for server_id, failure in roster.failures.items():
            # The tool is not known because its server could not be asked; that is the thing to say.
            if self.can_see_unknown_tool(server_id, name, caller):
                raise failure
        raise build_refusal(name, self.shown(roster, caller))

    def can_see_unknown_tool(self, server_id: str, name: str, caller: Caller) -> bool:
        """Whether a tool that is not known, but whose name looks like one of this server's, would be shown:
        only then may the caller learn how the server fares."""
        own = self._tool_directory.guess_tool_name(server_id, name)
        gate = self._find_server_policy(caller, server_id)
        if own is None or gate is None:
            return False
        return gate.verdict(Candidate(Definition(server_id, own), name)) in _VISIBLE_VERDICTS

    async def _authorize_call(
        self, server: Server, definition: Definition, name: str, arguments: Mapping[str, Any], caller: Caller
    ) -> None:
        gate = self._find_server_policy(caller, server.id)
        if not self._locks.has_lock(server):
            candidate = Candidate(definition, name)
        else:
            candidate = await self._make_checked_candidate(server, definition, name, caller)
        verdict = gate.verdict(candidate) if gate is not None else Verdict.HIDE
        if verdict is Verdict.ALLOW:
            return
        if verdict is not Verdict.ASK or gate is None:
            roster = self._tool_directory.known_listing(caller.principal)
            if gate is not None and candidate.quarantine is not None:
                self._refuse_quarantined(gate, candidate, roster, caller)
            raise build_refusal(name, self.shown(roster, caller))
        decision = gate.explain(candidate)
        if self._approve is None:
            raise ToolRefused(
                f"'{name}' needs an approval, and there is nobody to ask",
                hint="give Toolyard an approve callback, or set write_tools to 'allow'",
            )
        # A program's own words, such as the "no" that somebody typed, are no yes.
        if await self._approve(ApprovalRequest(decision, arguments, caller, definition)) is not True:
            raise ToolRefused(f"the call of '{name}' was not approved")

    def _refuse_quarantined(
        self, gate: ServerPolicy, candidate: Candidate, roster: ToolListing, caller: Caller
    ) -> None:
        """Raise what there is to say about a tool that only the lock keeps from this caller.

        A model does not get the server's new words: they are what the lock is for.
        """
        definition, name, reason = candidate
        if gate.verdict(Candidate(definition, name)) not in _VISIBLE_VERDICTS:
            return
        told = f"'{name}' is in quarantine: {reason}"
        change = self._locks.change(roster.catalogues[definition.server_id].contents, definition.name)
        if change is not None and caller.surface is Surface.OPERATOR:
            told = "\n".join((told, *(f"  {line}" for line in change.diff())))
        hint = self._accept_hint(definition, caller) if change is not None else None
        raise ToolRefused(told, hint=hint)

    def _accept_hint(self, definition: Definition, caller: Caller) -> str:
        server = self._manager.find(definition.server_id, caller.principal)
        page = None if self._accept_url_for is None or server is None else self._accept_url_for(server)
        if page is not None:
            return f"look at what changed and accept it at {page}"
        accept = f"`toolyard lock --accept {definition.id}`"
        return f"look at it with `toolyard lock --diff`, accept it with {accept}"

    # What is prepared once.

    def _find_server_policy(self, caller: Caller, server_id: str) -> ServerPolicy | None:
        server = self._manager.find(server_id, caller.principal)
        if server is None:
            return None
        return self._policy_cache(caller).for_server(server, self._manager.state(server_id, caller.principal))

    def trust(self, server_id: str, caller: Caller) -> Trust:
        """How far the words of a server are believed; one that is gone is not."""
        server = self._manager.find(server_id, caller.principal)
        return Trust.UNTRUSTED if server is None else server.trust

    def build_error_result(
        self, error: ToolyardError, caller: Caller, limits: ResultLimits | None = None
    ) -> Result:
        """The result that stands for an error, without secrets and fenced where its server is untrusted."""
        server = self._manager.find(getattr(error, "server", ""), caller.principal)
        trust = Trust.TRUSTED if server is None else server.trust
        secrets = () if server is None else self.server_secrets(server)
        return error_to_result(error, limits or self._settings.limits, trust, secrets=secrets)

    @property
    def limits(self) -> ResultLimits:
        """How much of a result a model gets, where nobody says otherwise."""
        return self._settings.limits

    def result_store(self, principal: Principal) -> ResultStore:
        """Where results of this principal's calls are kept that were too long."""
        found = self._result_stores.get(principal.id)
        if found is None:
            found = self._result_store_for(principal)
            put_bounded(self._result_stores, principal.id, found, _MAX_RESULT_STORES)
        return found

    def server_secrets(self, server: Server) -> tuple[str, ...]:
        """The values that must not show up in an error about this server."""
        found = self._secrets.get(server.id)
        if found is None or found[0] is not server:
            found = (server, find_secrets(server))
            # One that was removed in the middle of a call is not kept.
            if self._manager.servers.get(server.id) is server:
                self._secrets[server.id] = found
        return found[1]

    def redact_error(self, error: ServerError) -> None:
        """Take the secrets of its server out of an error, whoever put them in."""
        server = self._manager.servers.get(error.server)
        if server is not None:
            redact_error(error, self.server_secrets(server))

    def redact_status(self, status: Status) -> Status:
        """The record without the secrets of its server."""
        server = self._manager.servers.get(status.server)
        if server is None or (status.cause is None and not status.stderr):
            return status
        secrets = self.server_secrets(server)
        return replace(
            status,
            cause=status.cause and redact_secrets(status.cause, secrets),
            hint=status.hint and redact_secrets(status.hint, secrets),
            stderr=tuple(redact_secrets(line, secrets) for line in status.stderr),
        )

    def _record_call(
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


def _make_memory_store(principal: Principal) -> ResultStore:
    return (
        MemoryResultStore()
        if principal.id == LOCAL_PRINCIPAL.id
        else MemoryResultStore(_MAX_RESULT_STORE_CHARACTERS)
    )


def _describe_outcome(raw: Mapping[str, Any]) -> str:
    if raw.get("resultType") == "input_required":
        return "input required"
    return "tool error" if raw.get("isError") is True else "ok"


def _resolve_timeouts(server: Server, timeouts: Timeouts | float | None) -> Timeouts | None:
    if timeouts is None or isinstance(timeouts, Timeouts):
        return timeouts
    return server.timeouts.within(timeouts)


def _is_repeatable(server: Server, definition: Definition) -> bool:
    """Only a trusted server's word counts that a second execution does no harm."""
    if server.trust is not Trust.TRUSTED:
        return False
    return definition.read_only_hint is True or definition.idempotent_hint is True
