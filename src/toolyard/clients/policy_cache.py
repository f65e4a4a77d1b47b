"""What policy says of each server, prepared once for all callers who bring the same to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import TypeVar
from weakref import WeakValueDictionary

from toolyard.policy import Policy, ServerPolicy
from toolyard.types.call import Caller
from toolyard.types.decision import WriteTools
from toolyard.types.server import Server
from toolyard.types.status import State

__all__ = ["PolicyCache", "ServerPolicies", "put_bounded"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_MAX_CALLERS = 1024
_MAX_SERVER_POLICIES = 4096
"""For each policy: a common one meets the instances of everyone."""


class ServerPolicies:
    """The gates of one policy. Two callers have the same object exactly while their policies are equal."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_server_and_state: OrderedDict[tuple[str, State], tuple[Server, ServerPolicy]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_server_and_state)

    def for_server(self, server: Server, state: State) -> ServerPolicy:
        """The gate of a server as it is defined now, in this state."""
        key = (server.id, state)
        made = self._by_server_and_state.get(key)
        if made is not None and made[0] is server:
            return made[1]
        picked = None if server.instance is None else server.instance.tool_filter
        gate = self._policy.compile_server_policy(server, state, instance_filter=picked)
        put_bounded(self._by_server_and_state, key, (server, gate), _MAX_SERVER_POLICIES)
        return gate

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Let go of those of servers that changed or are gone."""
        for key in [key for key in self._by_server_and_state if key[0] in server_ids]:
            del self._by_server_and_state[key]


class PolicyCache:
    """Finds the gates of a caller. Chats, tokens and people come and go: what is kept for one that nobody
    else needs goes with it."""

    def __init__(self, write_tools: WriteTools) -> None:
        self._write_tools = write_tools
        self._by_caller: OrderedDict[Caller, ServerPolicies] = OrderedDict()
        self._by_policy: WeakValueDictionary[Policy, ServerPolicies] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many gates are kept in all."""
        return sum(map(len, self._by_policy.values()))

    def __call__(self, caller: Caller) -> ServerPolicies:
        found = self._by_caller.get(caller)
        if found is None:
            policy = self._build_policy(caller)
            found = self._by_policy.get(policy)
            if found is None:
                found = self._by_policy[policy] = ServerPolicies(policy)
            put_bounded(self._by_caller, caller, found, _MAX_CALLERS)
        return found

    def invalidate_servers(self, server_ids: Collection[str]) -> None:
        """Let go of the gates of these servers."""
        for gates in list(self._by_policy.values()):
            gates.forget_servers(server_ids)

    def forget_principal(self, principal_id: str) -> None:
        """Forget the callers of one principal."""
        for caller in [each for each in self._by_caller if each.principal.id == principal_id]:
            del self._by_caller[caller]

    def _build_policy(self, caller: Caller) -> Policy:
        return Policy.prepare(
            caller.surface,
            write_tools=self._write_tools,
            bundles=caller.bundles,
            agent=caller.agent,
            choice=caller.choice,
            scope=caller.scope,
            chat=caller.chat is not None,
        )


def put_bounded(cache: OrderedDict[_K, _V], key: _K, value: _V, max_entries: int) -> None:
    """Keep it; the oldest make room."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > max_entries:
        cache.popitem(last=False)
