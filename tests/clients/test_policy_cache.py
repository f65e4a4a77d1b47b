"""Compiled policies are shared by callers with equal inputs, and removed with the last of them."""

from __future__ import annotations

import pytest

from toolyard.clients.policy_cache import PolicyCache
from toolyard.types.account import Principal, Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface, WriteTools
from toolyard.types.server import Bundle, HttpSpec, Server, State

SERVER = Server("one", HttpSpec("https://one.example/mcp"))
OTHER = Server("two", HttpSpec("https://two.example/mcp"))


def chat(number: int, **more: object) -> Caller:
    """Return the caller of a chat."""
    return Caller(Principal(f"p{number % 3}"), Surface.MODEL_DIRECT, chat=f"chat-{number}", **more)  # pyright: ignore[reportArgumentType]


def test_equal_callers_share_their_gates() -> None:
    gates_of = PolicyCache(WriteTools.ASK)
    first = gates_of(chat(0))
    gate = first.for_server(SERVER, State.READY)
    for number in range(1, 500):
        gates = gates_of(chat(number))
        assert gates is first
        assert gates.for_server(SERVER, State.READY) is gate
    assert len(gates_of) == 1


@pytest.mark.parametrize(
    "other",
    [
        Caller(surface=Surface.MODEL_META),
        Caller(agent=Agent("a", "A", tools=("one_*",))),
        Caller(bundles=(Bundle("b", "one", "direct"),)),
        Caller(choice=frozenset({"one/x"})),
        Caller(scope=TokenScope(frozenset({Right.CALL}), servers=("one",))),
        Caller(chat="c"),
    ],
    ids=["surface", "agent", "bundles", "choice", "scope", "chat"],
)
def test_every_input_of_policy_keeps_gates_apart(other: Caller) -> None:
    gates_of = PolicyCache(WriteTools.ASK)
    assert gates_of(Caller()) is not gates_of(other)


def test_another_state_or_definition_has_another_gate() -> None:
    gates = PolicyCache(WriteTools.ASK)(Caller())
    ready = gates.for_server(SERVER, State.READY)
    assert not ready.blocks_all
    assert gates.for_server(SERVER, State.CLOSED).blocks_all
    server = Server("one", SERVER.transport, deny_tools=("x",))
    assert gates.for_server(server, State.READY) != ready


def test_unused_gates_are_forgotten() -> None:
    gates_of = PolicyCache(WriteTools.ASK, max_callers=4)
    for number in range(50):
        gates_of(chat(number, choice=frozenset({f"one/{number}"}))).for_server(SERVER, State.READY)
    assert len(gates_of) == 4


def test_servers_that_come_and_go_leave_no_gates() -> None:
    gates_of = PolicyCache(WriteTools.ASK)
    caller = Caller()
    gates_of(caller).for_server(OTHER, State.READY)
    for number in range(50):
        instance = Server(f"@p/{number}", SERVER.transport)
        gates_of(caller).for_server(instance, State.READY)
        gates_of(caller).for_server(instance, State.IDLE)
        gates_of.invalidate_servers({instance.id})
    assert len(gates_of) == 1


def test_a_principal_that_leaves_is_forgotten() -> None:
    gates_of = PolicyCache(WriteTools.ASK)
    staying = Caller(Principal("ann"))
    for caller in (staying, Caller(Principal("bob")), Caller(Principal("bob"), choice=frozenset({"one/x"}))):
        gates_of(caller).for_server(SERVER, State.READY)
    gates_of.forget_principal("bob")
    assert len(gates_of) == 1
    assert len(gates_of(staying)) == 1
