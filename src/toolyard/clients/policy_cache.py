"""Caches compiled policy per server; callers with equal inputs share one entry."""

from __future__ import annotations

from collections.abc import Collection
from weakref import WeakValueDictionary

from toolyard.concurrency.lru_cache import LruCache
from toolyard.policy import Policy, ServerPolicy
from toolyard.types.call import Caller, WriteTools
from toolyard.types.server import Server, State
from toolyard.types.tool import Definition

__all__ = ["PolicyCache", "ServerPolicies"]

_MAX_CALLERS = 1024
_MAX_SERVER_POLICIES = 4096
"""Entries per policy. A widely shared policy is applied to the instances of all users."""
_MAX_ALLOWED_TOOLS = 4096


class ServerPolicies:
    """Compiled server policies of one Policy. Callers share the object exactly while their policies are
    equal."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_server_and_state: dict[tuple[str, State], tuple[Server, ServerPolicy]] = {}
        self.allowed_tools: dict[str, tuple[Definition, Server, State]] = {}
        """By exposed name, the definition, server and state for which a call needs no approval."""

    def __len__(self) -> int:
        return len(self._by_server_and_state)

    def for_server(self, server: Server, state: State) -> ServerPolicy:
        """Return the compiled policy for a server's current definition and state."""
        key = (server.id, state)
        cached = self._by_server_and_state.get(key)
        # Compared by identity: a changed definition is a new object under the same id.
        if cached is not None and cached[0] is server:
            return cached[1]
        instance_filter = None if server.instance is None else server.instance.tool_filter
        compiled = self._policy.compile_server_policy(server, state, instance_filter=instance_filter)
        # The oldest entry goes, used or not: it is quickly compiled anew, and every call reads this cache.
        if len(self._by_server_and_state) >= _MAX_SERVER_POLICIES:
            del self._by_server_and_state[next(iter(self._by_server_and_state))]
        self._by_server_and_state[key] = (server, compiled)
        return compiled

    def record_allowed(self, name: str, definition: Definition, server: Server, state: State) -> None:
        """Record that calls of a tool are allowed without approval, until one of the three changes."""
        if len(self.allowed_tools) >= _MAX_ALLOWED_TOOLS:
            del self.allowed_tools[next(iter(self.allowed_tools))]
        self.allowed_tools[name] = (definition, server, state)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the entries of changed or removed servers."""
        for name in [name for name, entry in self.allowed_tools.items() if entry[1].id in server_ids]:
            del self.allowed_tools[name]
        for key in [key for key in self._by_server_and_state if key[0] in server_ids]:
            del self._by_server_and_state[key]


class PolicyCache:
    """Finds the ServerPolicies of a caller.

    Policies are held weakly and callers in a bounded table. When the last caller with a policy is dropped (a
    closed chat, an expired token), its compiled entries are freed too.
    """

    def __init__(self, write_tools: WriteTools, max_callers: int = _MAX_CALLERS) -> None:
        self._write_tools = write_tools
        self.by_caller: LruCache[Caller, ServerPolicies] = LruCache(max_callers)
        self._by_policy: WeakValueDictionary[Policy, ServerPolicies] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return the number of compiled server policies."""
        return sum(map(len, self._by_policy.values()))

    def __call__(self, caller: Caller) -> ServerPolicies:
        policies = self.by_caller.get(caller)
        if policies is None:
            policy = self._build_policy(caller)
            policies = self._by_policy.get(policy)
            if policies is None:
                policies = self._by_policy[policy] = ServerPolicies(policy)
            self.by_caller[caller] = policies
        return policies

    def invalidate_servers(self, server_ids: Collection[str]) -> None:
        """Drop the compiled policies of these servers."""
        for policies in list(self._by_policy.values()):
            policies.forget_servers(server_ids)

    def forget_principal(self, principal_id: str) -> None:
        """Drop all callers of one principal."""
        for caller in [each for each in self.by_caller if each.principal.id == principal_id]:
            del self.by_caller[caller]

    def _build_policy(self, caller: Caller) -> Policy:
        return Policy(
            caller.surface,
            write_tools=self._write_tools,
            bundles=caller.bundles,
            agent=caller.agent,
            choice=caller.choice,
            scope=caller.scope,
            in_chat=caller.chat is not None,
        )
