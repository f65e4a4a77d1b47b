"""What policy says of each server, prepared once for all callers who bring the same to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import TypeVar
from weakref import WeakValueDictionary

from toolyard.policy import Gate, Policy
from toolyard.types.call import Caller
from toolyard.types.decision import WriteTools
from toolyard.types.server import Server
from toolyard.types.status import State

__all__ = ["Gates", "GatesOf", "put"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_CALLERS = 1024
_GATES = 4096
"""For each policy: a common one meets the instances of everyone."""


class Gates:
    """The gates of one policy. Two callers have the same object exactly while their policies are equal."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._kept: OrderedDict[tuple[str, State], tuple[Server, Gate]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, server: Server, state: State) -> Gate:
        """The gate of a server as it is defined now, in this state."""
        key = (server.id, state)
        made = self._kept.get(key)
        if made is not None and made[0] is server:
            return made[1]
        picked = None if server.instance is None else server.instance.tool_filter
        gate = self._policy.gate(server, state, instance_filter=picked)
        put(self._kept, key, (server, gate), _GATES)
        return gate

    def forget(self, server_ids: Collection[str]) -> None:
        """Let go of those of servers that changed or are gone."""
        for key in [key for key in self._kept if key[0] in server_ids]:
            del self._kept[key]


class GatesOf:
    """Finds the gates of a caller. Chats, tokens and people come and go: what is kept for one that nobody
    else needs goes with it."""

    def __init__(self, write_tools: WriteTools) -> None:
        self._write_tools = write_tools
        self._callers: OrderedDict[Caller, Gates] = OrderedDict()
        self._shared: WeakValueDictionary[Policy, Gates] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many gates are kept in all."""
        return sum(map(len, self._shared.values()))

    def __call__(self, caller: Caller) -> Gates:
        found = self._callers.get(caller)
        if found is None:
            policy = self._policy(caller)
            found = self._shared.get(policy)
            if found is None:
                found = self._shared[policy] = Gates(policy)
            put(self._callers, caller, found, _CALLERS)
        return found

    def servers_changed(self, server_ids: Collection[str]) -> None:
        """Let go of the gates of these servers."""
        for gates in list(self._shared.values()):
            gates.forget(server_ids)

    def leave(self, principal_id: str) -> None:
        """Forget the callers of one principal."""
        for caller in [each for each in self._callers if each.principal.id == principal_id]:
            del self._callers[caller]

    def _policy(self, caller: Caller) -> Policy:
        return Policy.prepare(
            caller.surface,
            write_tools=self._write_tools,
            bundles=caller.bundles,
            agent=caller.agent,
            choice=caller.choice,
            scope=caller.scope,
            chat=caller.chat is not None,
        )


def put(kept: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> None:
    """Keep it; the oldest make room."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
