"""The client that a question from a legacy server belongs to, found by its unanswered calls."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import pytest

from toolyard.clients.callbacks import AbandonedCalls, InFlightCall, find_sole_client
from toolyard.types.call import McpRequest, RequestClient

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
FORM = ("elicitation/create", {"message": "Who?"})
PAGE = ("elicitation/create", {"mode": "url", "url": "https://example.com/"})
SAMPLE = ("sampling/createMessage", dict[str, Any]())


async def answer(server_id: str, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def client(key: str | None = None, capabilities: Mapping[str, Any] = FORMS) -> RequestClient:
    return RequestClient(key, "a client", capabilities, answer)


def calls(*clients: RequestClient | None) -> list[InFlightCall]:
    return [InFlightCall("tool", each) for each in clients]


def test_the_client_of_all_calls_is_asked() -> None:
    one = client()
    assert find_sole_client(calls(one), *FORM) is one
    assert find_sole_client(calls(one, one), *FORM) is one
    # Two requests of one session.
    sole_client = find_sole_client(calls(client("session-1"), client("session-1")), *FORM)
    assert sole_client is not None
    assert sole_client.key == "session-1"


@pytest.mark.parametrize(
    "clients",
    [
        (),
        (None,),
        (client(), client()),
        (client("session-1"), client("session-2")),
        (client("session-1"), client()),
        (client("session-1"), None),
        (None, client("session-1")),
        (client("session-1"), client("session-1", {}), client("session-2")),
    ],
)
def test_calls_of_several_clients_or_of_none_are_not_attributed(
    clients: tuple[RequestClient | None, ...],
) -> None:
    assert find_sole_client(calls(*clients), *FORM) is None


@pytest.mark.parametrize(
    ("capabilities", "request_", "can"),
    [
        ({}, FORM, False),
        ({"elicitation": {}}, FORM, True),
        ({"elicitation": {}}, PAGE, False),
        ({"elicitation": {"url": {}}}, FORM, False),
        ({"elicitation": {"url": {}}}, PAGE, True),
        ({"elicitation": {"form": {}}}, PAGE, False),
        (FORMS, SAMPLE, False),
        ({"sampling": {}}, SAMPLE, True),
        ({"sampling": True}, SAMPLE, False),
        ({"elicitation": {"form": {}}}, ("elicitation/create", {"mode": ["url"]}), False),
    ],
)
def test_only_a_client_with_the_capability_is_asked(
    capabilities: dict[str, Any], request_: tuple[str, dict[str, Any]], can: bool
) -> None:
    assert (find_sole_client(calls(client(None, capabilities)), *request_) is not None) is can


def test_an_abandoned_call_counts_until_the_server_answers_it() -> None:
    abandoned_calls, one = AbandonedCalls(), client("session-1")
    abandoned_calls.add(1, McpRequest("tools/call", {"name": "a"}, client=one), forget_at=10.0)
    abandoned_calls.add(2, McpRequest("tools/call", {"name": "b"}), forget_at=20.0)
    calls = abandoned_calls.list_calls(0.0)
    assert [(call.name, call.client) for call in calls] == [("a", one), ("b", None)]
    abandoned_calls.on_answer(2)
    abandoned_calls.on_answer(None)
    assert [call.name for call in abandoned_calls.list_calls(0.0)] == ["a"]
    # A cancelled call need not be answered, and is removed after its timeout.
    assert abandoned_calls.list_calls(10.0) == []


def test_an_abandoned_call_does_not_keep_its_client() -> None:
    abandoned_calls = AbandonedCalls()
    abandoned_calls.add(1, McpRequest("tools/call", {"name": "a"}, client=client()), forget_at=10.0)
    gc.collect()
    (call,) = abandoned_calls.list_calls(0.0)
    assert call.client is None
