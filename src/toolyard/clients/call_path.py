"""The path of every tool call: resolve the name, authorize, connect if needed, call, shape and record."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.policy_cache import PolicyCache, ServerPolicies
from toolyard.clients.secret_redaction import find_secrets, redact_error
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import OutcomeUnknown, ServerError, ToolRefused, ToolyardError, Unreachable
from toolyard.policy import Candidate, ServerPolicy, build_hidden_refusal, build_refusal
from toolyard.policy.rules import DEFINITION_RULE_TITLE, STATE_RULE_TITLE, scope_covers_server
from toolyard.results import (
    MemoryResultStore,
    ResultLimits,
    ResultStore,
    error_to_result,
    redact_secrets,
    shape_and_store,
)
from toolyard.results.readable_json import to_readable_json
from toolyard.store.errors import DatabaseUnavailable
from toolyard.tracing.tracer import Attributes
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.call import (
    ApprovalRequest,
    Caller,
    CallRecord,
    Decision,
    HiddenTool,
    McpRequest,
    Surface,
    ToolCall,
    Verdict,
    WriteTools,
)
from toolyard.types.server import NATIVE_SERVER_ID, Server, State, Status, Trust
from toolyard.types.tool import Definition, Result

__all__ = [
    "AcceptUrlFor",
    "ApprovalHandler",
    "BeforeCall",
    "CallPath",
    "CallSettings",
    "ResultStoreFor",
    "TracedCallPath",
    "refuse_approval",
]

log = logging.getLogger("toolyard.calls")

ApprovalHandler: TypeAlias = Callable[[ApprovalRequest], Awaitable[bool]]
"""Asks whether a call may be made; only True approves it. Raises ApprovalNeeded if the person must be asked
first."""

AcceptUrlFor: TypeAlias = Callable[[Server], str | None]
"""Returns the URL of the page on which a server's changed tools can be accepted, or None."""

ResultStoreFor: TypeAlias = Callable[[Principal], ResultStore]
"""Returns the store for long results of one principal. Handles of results are not secret; the choice of the
store by principal protects them."""

_VisibleToolsEntry: TypeAlias = tuple[
    Mapping[str, Definition],
    Mapping[str, ServerPolicy | None],
    Mapping[str, Definition],
    Mapping[str, Mapping[str, str]],
]
_MAX_RESULT_STORE_CHARACTERS = 4_000_000
"""Size of a result store of each principal but the local user, who gets the default size."""
_MAX_TRACED_NAME_CHARACTERS = 128
_MAX_TRACED_CONTENT_CHARACTERS = 100_000
"""Maximum characters of arguments or a result in a span, where the operator wants them at all."""
_VISIBLE_VERDICTS = frozenset({Verdict.ALLOW, Verdict.ASK})
_OUTCOME_UNKNOWN_HINT = "the call may have been executed: check what was done before you repeat it"


BeforeCall: TypeAlias = Callable[[str, str, Caller], Awaitable[None]]
"""Called with the tool's id, its exposed name and the caller when a call has been allowed, before it is made.
Raises a ToolyardError to prevent it."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings of the call path."""

    write_tools: WriteTools = WriteTools.REJECT
    limits: ResultLimits = field(default_factory=ResultLimits)
    max_visible_tools_entries: int = 256
    """Maximum number of cached results of ``visible_tools``, each for one principal and one policy."""
    max_result_stores: int = 64


class CallPath:
    """The one way in which all interfaces call tools. No other code path skips policy."""

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
        self._approve = approve or refuse_approval
        self.observers = [] if record is None else [record]
        """Called after every call, with its outcome."""
        self._before_call = before_call
        self._result_store_for = result_store_for or _make_memory_store
        self._result_stores: LruCache[str, ResultStore] = LruCache(settings.max_result_stores)
        self._policy_cache = PolicyCache(settings.write_tools)
        self._visible_tools: LruCache[tuple[str, ServerPolicies], _VisibleToolsEntry] = LruCache(
            settings.max_visible_tools_entries
        )
        """Visible tools by principal and policy."""

    @property
    def cache_sizes(self) -> Mapping[str, int]:
        """Number of entries of each cache."""
        return {
            "visible_tools": len(self._visible_tools),
            "policies": len(self._policy_cache),
            "result_stores": len(self._result_stores),
        }

    def invalidate_servers(self, server_ids: Collection[str]) -> None:
        """Drop everything cached for earlier definitions of these servers.

        Cached entries are checked against the current definition on use, so this only frees memory.
        """
        self._policy_cache.invalidate_servers(server_ids)
        self._tool_directory.forget_servers(server_ids)

    def forget_principal(self, principal_id: str) -> None:
        """Drop everything cached for a principal."""
        self._policy_cache.forget_principal(principal_id)
        for key in [key for key in self._visible_tools if key[0] == principal_id]:
            del self._visible_tools[key]
        self._result_stores.pop(principal_id, None)
        self._tool_directory.forget_principal(principal_id)

    # Visibility.

    def visible_tools(self, listing: ToolListing, caller: Caller) -> Mapping[str, Definition]:
        """Return the tools of a listing that are visible to this caller, sorted by name."""
        # Looked up every time, although the result is cached: a disabled or removed server, or an edited
        # policy, takes effect with the next listing, not when a cache expires.
        compiled = self._policy_cache(caller)
        policies = {
            server_id: self._find_server_policy(caller, server_id, compiled)
            for server_id in listing.catalogues
        }
        quarantined = self._find_quarantined(listing)
        key = (caller.principal.id, compiled)
        cached = self._visible_tools.get(key)
        # Valid only while all inputs are the same: the tools, the policy of each server, the quarantine.
        if (
            cached is not None
            and cached[0] is listing.tools
            and cached[1] == policies
            and cached[3] == quarantined
        ):
            return cached[2]
        verdicts = {
            id: policy.verdict
            for id, policy in policies.items()
            if policy is not None and not policy.blocks_all
        }
        visible = {
            name: definition
            for name, definition in listing.tools.items()
            if (verdict := verdicts.get(definition.server_id)) is not None
            and verdict(Candidate(definition, name)) in _VISIBLE_VERDICTS
            and definition.name not in quarantined.get(definition.server_id, ())
        }
        entry = (listing.tools, policies, visible, quarantined)
        self._visible_tools[key] = entry
        return visible

    def find_visible_tool(self, name: str, caller: Caller) -> tuple[Definition, Verdict] | None:
        """Return a known tool if it is visible to this caller, with the verdict: ALLOW or ASK."""
        listing = self._tool_directory.known_listing(caller.principal)
        definition = listing.tools.get(name)
        server = None if definition is None else self._manager.find(definition.server_id, caller.principal)
        if definition is None or server is None:
            return None
        state = self._manager.state(server.id, caller.principal)
        if self._is_known_allowed(name, definition, server, state, caller):
            return definition, Verdict.ALLOW
        policy = self._policy_cache(caller).for_server(server, state)
        verdict = policy.verdict(self._make_candidate(definition, name, listing))
        return (definition, verdict) if verdict in _VISIBLE_VERDICTS else None

    async def find_tool(self, name: str, caller: Caller) -> Definition:
        """Return one tool visible to the caller, by its exposed name, listing as few servers as possible.

        Raises ToolRefused, or the ServerError of a server that may have the tool but could not be listed.
        """
        directory, principal = self._tool_directory, caller.principal
        if await directory.locate_tool(name, principal) is None:
            reason = self._find_reason_for_unknown_tool(name, caller)
            if isinstance(reason, ServerError):
                self.redact_error(reason)
            raise reason
        found = self.visible_tools(directory.known_listing(principal), caller).get(name)
        if found is None:
            raise self.refusal(name, caller)
        return found

    def hidden_tools(self, listing: ToolListing, caller: Caller) -> list[HiddenTool]:
        """Return the tools of enabled servers that policy hides from this caller, sorted by name.

        Tools outside the scope of the caller's token are not among them, nor are the built-in tools, nor
        those that a model can reach through the meta tools.
        """
        if caller.surface is Surface.MODEL_DIRECT:
            caller = caller.on_surface(Surface.MODEL_META)
        visible = self.visible_tools(listing, caller)
        compiled = self._policy_cache(caller)
        policies = {id: self._find_server_policy(caller, id, compiled) for id in listing.catalogues}
        found: list[HiddenTool] = []
        for name, definition in listing.tools.items():
            policy = policies[definition.server_id]
            if name in visible or policy is None or definition.server_id == NATIVE_SERVER_ID:
                continue
            candidate = self._make_candidate(definition, name, listing)
            rule = policy.find_hiding_rule(candidate)
            if rule is not None and rule.title != STATE_RULE_TITLE:
                reason = rule.reason(candidate)
                found.append(HiddenTool(name, definition.id, definition.server_id, rule.title, reason))
        return found

    def refusal(self, name: str, caller: Caller) -> ToolRefused:
        """Return the error for a name that this caller may not use.

        An operator learns which rule hides the tool, unless it is outside the scope of the caller's token.
        For a model, and for such a token, hidden tools and unknown ones are the same.
        """
        listing = self._tool_directory.known_listing(caller.principal)
        candidate = self._find_candidate(listing, name) if caller.surface is Surface.OPERATOR else None
        policy = (
            None if candidate is None else self._find_server_policy(caller, candidate.definition.server_id)
        )
        rule = None if candidate is None or policy is None else policy.find_hiding_rule(candidate)
        if candidate is None or policy is None or rule is None:
            may_know_hidden = caller.surface is Surface.OPERATOR and caller.scope is None
            hidden_tools = self.hidden_tools(listing, caller) if may_know_hidden else ()
            return build_refusal(name, self.visible_tools(listing, caller), hidden_tools)
        if (quarantined := self._build_quarantine_refusal(policy, candidate, listing, caller)) is not None:
            return quarantined
        return build_hidden_refusal(name, rule.title, rule.reason(candidate))

    def count_quarantined(self, listing: ToolListing, caller: Caller) -> Iterator[tuple[str, int, str]]:
        """Yield each server with quarantined tools that the caller can reach: id, number, and a hint."""
        for server_id, reasons in sorted(self._find_quarantined(listing).items()):
            if self.can_reach(server_id, caller):
                yield server_id, len(reasons), self._accept_hint(Definition(server_id, min(reasons)), caller)

    def _find_quarantined(self, listing: ToolListing) -> Mapping[str, Mapping[str, str]]:
        """Return the tools that the locks quarantine: by server id, the tools' own names with the reason."""
        reasons = {id: self._locks.quarantine_reasons(one.contents) for id, one in listing.catalogues.items()}
        return {id: by_name for id, by_name in reasons.items() if by_name}

    def _make_candidate(self, definition: Definition, name: str, listing: ToolListing) -> Candidate:
        """Return the tool as a policy candidate, with the reason of its quarantine if there is one."""
        catalogue = listing.catalogues.get(definition.server_id)
        if catalogue is None:
            return Candidate(definition, name)
        return Candidate(
            definition, name, self._locks.quarantine_reasons(catalogue.contents).get(definition.name)
        )

    async def _make_checked_candidate(
        self, server: Server, definition: Definition, name: str, caller: Caller
    ) -> Candidate:
        """Return the candidate for a call, checked against the current lock.

        A listing fetched for this call was checked when it arrived. A cached one is checked again, because
        changes may have been accepted since.
        """
        listing = self._tool_directory.known_listing(caller.principal)
        catalogue = listing.catalogues.get(server.id)
        if server.cache_ttl > 0 and catalogue is not None:
            await self._locks.check_listing(server, catalogue.contents)
        return self._make_candidate(definition, name, listing)

    def explain(self, name: str, caller: Caller) -> Decision:
        """Return the decision about a known tool, by its exposed name or canonical id.

        Raise ToolRefused if no such tool is known.
        """
        listing = self._tool_directory.known_listing(caller.principal)
        candidate = self._find_candidate(listing, name)
        policy = (
            None if candidate is None else self._find_server_policy(caller, candidate.definition.server_id)
        )
        if candidate is None or policy is None:
            raise build_refusal(name, self.visible_tools(listing, caller))
        return policy.explain(candidate)

    def _find_candidate(self, listing: ToolListing, name: str) -> Candidate | None:
        definition = listing.tools.get(name)
        if definition is not None:
            return self._make_candidate(definition, name, listing)
        for exposed, definition in listing.tools.items():
            if definition.id == name:
                return self._make_candidate(definition, exposed, listing)
        for each in listing.quarantined():
            tool_name = self._tool_directory.guess_tool_name(each.server_id, name)
            if each.name is not None and (tool_name == each.name or name == f"{each.server_id}/{each.name}"):
                return Candidate(Definition(each.server_id, each.name), name, quarantine=each.reason)
        return None

    # Calls.

    async def call(
        self,
        call: ToolCall,
        caller: Caller = Caller(),  # noqa: B008 - frozen
    ) -> Result:
        """Call a tool and return its shaped result. A tool's own failure is a result with ``is_error``. Raise
        ToolRefused or a ServerError."""
        server, definition, raw = await self.call_raw(call, caller)
        return await shape_and_store(
            raw,
            call.limits or self._settings.limits,
            server.trust,
            self._result_stores.get(caller.principal.id) or self.result_store(caller.principal),
            server=server.id,
            output_schema=definition.output_schema,
            media=caller.surface is not Surface.OPERATOR,
        )

    async def call_raw(self, call: ToolCall, caller: Caller) -> tuple[Server, Definition, dict[str, Any]]:
        """Call a tool like ``call``, and return the server, the tool, and the server's result unshaped. Every
        outcome is recorded, also a refusal or a cancellation."""
        started_at = time.perf_counter()
        name = tool = call.name
        # The outcome if neither a result nor a ToolyardError sets another one: a cancellation passes both.
        outcome, cause = "cancelled", None
        try:
            try:
                located = await self._tool_directory.locate_tool(name, caller.principal, caller.chat)
                if located is None:
                    raise self._find_reason_for_unknown_tool(name, caller)
            except OutcomeUnknown as error:
                # Only a listing was interrupted; the call was not made yet, so its outcome is known.
                raise Unreachable(error.cause, server=error.server, hint=error.hint) from error.__cause__
            server, definition = located
            tool = definition.id
            await self._authorize_call(server, definition, call, caller)
            if self._before_call is not None:
                await self._before_call(tool, name, caller)
            timeouts = call.timeouts
            if isinstance(timeouts, int | float):
                timeouts = server.timeouts.within(timeouts)
                if call.client is not None and call.client.capabilities:
                    # A person may have to answer a question, which takes time.
                    timeouts = replace(timeouts, call=server.timeouts.call)
            request = McpRequest(
                "tools/call",
                {"name": definition.name, "arguments": call.arguments},
                _is_repeatable(server, definition),
                timeouts,
                call.meta,
                call.on_progress,
                call.client,
            )
            raw = await self._manager.send(server.id, caller, request)
            outcome = "tool error" if raw.get("isError") is True else "ok"
            if raw.get("resultType") == "input_required":
                outcome = "input required"
            return server, definition, raw
        except ToolyardError as error:
            # Redact before recording, because the cause goes into the call record.
            if isinstance(error, ServerError):
                self.redact_error(error)
            if isinstance(error, OutcomeUnknown):
                error.hint = error.hint or _OUTCOME_UNKNOWN_HINT
            outcome, cause = type(error).__name__, error.cause
            raise
        finally:
            self._record_call(tool, name, caller, outcome, time.perf_counter() - started_at, cause)

    def can_reach(self, server_id: str, caller: Caller) -> bool:
        """Return True if a server exists for this caller and is not blocked. Required for its prompts and
        resources."""
        policy = self._find_server_policy(caller, server_id)
        return policy is not None and not policy.blocks_all

    def is_in_token_scope(self, server_id: str, caller: Caller) -> bool:
        """Return True if the caller's token covers a server. A removed server is covered only by a token for
        all servers."""
        if caller.scope is None or caller.scope.servers is None:
            return True
        server = self._manager.find(server_id, caller.principal)
        return server is not None and scope_covers_server(caller.scope, server)

    def _find_reason_for_unknown_tool(self, name: str, caller: Caller) -> ToolyardError:
        """Return the failure of the server that could not be listed and may have the tool, or a refusal."""
        failures = self._tool_directory.known_listing(caller.principal).failures
        for server_id, failure in failures.items():
            if self.can_see_unknown_tool(server_id, name, caller):
                return failure
        return self.refusal(name, caller)

    def can_see_unknown_tool(self, server_id: str, name: str, caller: Caller) -> bool:
        """Return True if an unlisted tool with this name would be visible, should this server have it. Only
        then may the caller learn about the server's failure."""
        tool_name = self._tool_directory.guess_tool_name(server_id, name)
        policy = self._find_server_policy(caller, server_id)
        if tool_name is None or policy is None:
            return False
        return policy.verdict(Candidate(Definition(server_id, tool_name), name)) in _VISIBLE_VERDICTS

    async def _authorize_call(
        self, server: Server, definition: Definition, call: ToolCall, caller: Caller
    ) -> None:
        name = call.name
        state = self._manager.state(server.id, caller.principal)
        if self._is_known_allowed(name, definition, server, state, caller):
            return
        policies = self._policy_cache(caller)
        policy = policies.for_server(server, state)
        has_lock = self._locks.has_lock(server)
        if not has_lock:
            candidate = Candidate(definition, name)
        else:
            candidate = await self._make_checked_candidate(server, definition, name, caller)
        verdict = policy.verdict(candidate)
        if verdict is Verdict.ALLOW:
            if not has_lock:
                policies.record_allowed(name, definition, server, state)
            return
        if verdict is not Verdict.ASK:
            listing = self._tool_directory.known_listing(caller.principal)
            quarantined = self._build_quarantine_refusal(policy, candidate, listing, caller)
            raise quarantined or self.refusal(name, caller)
        decision = policy.explain(candidate)
        approve = call.approve or self._approve
        # Compared with True: a handler that returns text, such as a typed "no", must not approve the call.
        if await approve(ApprovalRequest(decision, call.arguments, caller, definition)) is not True:
            raise ToolRefused(f"the call to '{name}' was not approved")

    def _is_known_allowed(
        self, name: str, definition: Definition, server: Server, state: State, caller: Caller
    ) -> bool:
        """Return True if an equal call was allowed without approval. Nearly every call is like one."""
        known, lock_file = self._policy_cache.by_caller.peek(caller), self._locks.file
        allowed = None if known is None else known.allowed_tools.get(name)
        # Compared by identity, because 0 equals False: a definition whose read-only hint is 0 has none.
        return (
            allowed is not None
            and allowed[0] is definition
            and allowed[1] is server
            and allowed[2] is state
            and (lock_file is None or time.monotonic() < lock_file.absent_until)
        )

    def _build_quarantine_refusal(
        self, policy: ServerPolicy, candidate: Candidate, listing: ToolListing, caller: Caller
    ) -> ToolRefused | None:
        """Return the error for a tool that only its quarantine hides from this caller, else None.

        Only an operator sees the changed definition. The lock exists to keep that text from models.
        """
        definition, name, reason = candidate
        if reason is None or policy.verdict(Candidate(definition, name)) not in _VISIBLE_VERDICTS:
            return None
        message = f"'{name}' is in quarantine: {reason}"
        change = self._locks.change(listing.catalogues[definition.server_id].contents, definition.name)
        if change is not None and caller.surface is Surface.OPERATOR:
            message = "\n".join((message, *(f"  {line}" for line in change.diff())))
        # Without a change, the accepted definitions could not be read.
        hint = "`toolyard lock --diff` and the log show the cause"
        if change is not None:
            hint = self._accept_hint(definition, caller)
        return ToolRefused(message, hint=hint, rule=DEFINITION_RULE_TITLE)

    def _accept_hint(self, definition: Definition, caller: Caller) -> str:
        server = self._manager.find(definition.server_id, caller.principal)
        url = None if self._accept_url_for is None or server is None else self._accept_url_for(server)
        if url is not None:
            return f"review and accept the change at {url}"
        accept = f"`toolyard lock --accept {definition.id}`"
        return f"review the change with `toolyard lock --diff`, accept it with {accept}"

    # Cached lookups and redaction.

    def _find_server_policy(
        self, caller: Caller, server_id: str, compiled: ServerPolicies | None = None
    ) -> ServerPolicy | None:
        server = self._manager.find(server_id, caller.principal)
        if server is None:
            return None
        compiled = compiled or self._policy_cache(caller)
        return compiled.for_server(server, self._manager.state(server_id, caller.principal))

    def trust(self, server_id: str, caller: Caller) -> Trust:
        """Return the trust level of a server; UNTRUSTED for one that was removed."""
        server = self._manager.find(server_id, caller.principal)
        return Trust.UNTRUSTED if server is None else server.trust

    def build_error_result(
        self, error: ToolyardError, caller: Caller, limits: ResultLimits | None = None
    ) -> Result:
        """Convert an error to a result, redacted, and marked as untrusted if its server is untrusted."""
        if isinstance(error, DatabaseUnavailable):
            log.warning("%s", error.cause)
            error = ToolyardError(error.public_cause, hint=error.public_hint)
        server = self._manager.find(getattr(error, "server", ""), caller.principal)
        trust = Trust.TRUSTED if server is None else server.trust
        secrets = () if server is None else find_secrets(server)
        return error_to_result(error, limits or self._settings.limits, trust, secrets=secrets)

    @property
    def limits(self) -> ResultLimits:
        """Default limits for the size of results."""
        return self._settings.limits

    def result_store(self, principal: Principal) -> ResultStore:
        """Return the store for this principal's long results."""
        store = self._result_stores.get(principal.id)
        if store is None:
            store = self._result_stores[principal.id] = self._result_store_for(principal)
        return store

    def redact_error(self, error: ServerError) -> None:
        """Redact the secrets of the error's server in place."""
        server = self._manager.servers.get(error.server)
        if server is not None:
            redact_error(error, find_secrets(server))

    def redact_status(self, status: Status) -> Status:
        """Return the status with the secrets of its server redacted."""
        server = self._manager.servers.get(status.server)
        if server is None or (status.cause is None and not status.stderr):
            return status
        secrets = find_secrets(server)
        return replace(
            status,
            cause=status.cause and redact_secrets(status.cause, secrets),
            hint=status.hint and redact_secrets(status.hint, secrets),
            stderr=tuple(redact_secrets(line, secrets) for line in status.stderr),
        )

    def _record_call(
        self, tool: str, name: str, caller: Caller, outcome: str, seconds: float, error: str | None
    ) -> None:
        if not self.observers and not log.isEnabledFor(logging.DEBUG):
            return
        agent = caller.agent.id if caller.agent is not None else None
        record = CallRecord(tool, name, caller.principal.id, agent, outcome, seconds, error)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s in %.1f ms", record.tool, record.outcome, record.seconds * 1000)
        for observe in self.observers:
            try:
                observe(record)
            except Exception:
                # A user-supplied callback. The call has been made, so its result must not be lost.
                log.exception("%s: the callback that records calls failed", tool)


class TracedCallPath(CallPath):
    """Call path that records a span for each call, also for a refused one."""

    async def call_raw(self, call: ToolCall, caller: Caller) -> tuple[Server, Definition, dict[str, Any]]:
        tracer = self._manager.tracer
        name = call.name[:_MAX_TRACED_NAME_CHARACTERS]
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.agent.name": None if caller.agent is None else caller.agent.name,
            "mcp.method.name": "tools/call",
        }
        with tracer.span(f"tools/call {name}", "client", attributes) as span:
            server, definition, raw = await super().call_raw(call, caller)
            if raw.get("isError") is True:
                span.fail("tool_error")
            if tracer.captures_content:
                content = {"arguments": call.arguments, "result": raw}
                secrets = find_secrets(server)
                span.set(
                    {
                        f"gen_ai.tool.call.{key}": redact_secrets(
                            to_readable_json(value, _MAX_TRACED_CONTENT_CHARACTERS), secrets
                        )
                        for key, value in content.items()
                    }
                )
            return server, definition, raw


async def refuse_approval(question: ApprovalRequest) -> bool:
    """Raise ToolRefused: the approval handler where nobody can be asked."""
    raise ToolRefused(
        f"'{question.decision.name}' needs an approval, and nobody is available to ask",
        hint="give Toolyard an approve callback, or set write_tools to 'allow'",
    )


def _make_memory_store(principal: Principal) -> ResultStore:
    return (
        MemoryResultStore()
        if principal.id == LOCAL_PRINCIPAL.id
        else MemoryResultStore(_MAX_RESULT_STORE_CHARACTERS)
    )


def _is_repeatable(server: Server, definition: Definition) -> bool:
    """Return True if executing the tool twice does no harm. Only a trusted server's hints are believed."""
    if server.trust is not Trust.TRUSTED:
        return False
    return definition.read_only_hint is True or definition.idempotent_hint is True
