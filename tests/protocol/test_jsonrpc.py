from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.protocol.codec import decode, encode
from toolyard.protocol.jsonrpc import (
    Cancellation,
    IncomingRequest,
    Notification,
    PendingRequests,
    Progress,
    RpcFailure,
    RpcResponse,
    UnprocessableMessage,
    build_error_message,
    build_notification,
    build_request,
    build_result_message,
    is_response_to,
    parse_rpc_failure,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)
methods = st.sampled_from(
    ["notifications/progress", "notifications/cancelled", "notifications/message", "tools/call", "ping", ""]
)
ids = st.integers(-2, 5) | st.sampled_from(["1", "2", "01", "x", "", "１"])
almost_messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | scalars,
        "id": ids | values,
        "method": methods | values,
        "params": st.fixed_dictionaries(
            {}, optional={"progressToken": ids | values, "requestId": ids | values}
        )
        | values,
        "result": objects | values,
        "error": st.fixed_dictionaries({}, optional={"code": scalars, "message": values, "data": values})
        | values,
    },
)


def exchange_with_requests(*methods: str) -> PendingRequests[str]:
    """An exchange that has asked these, under the ids 1, 2, …, and files each under its own name."""
    exchange: PendingRequests[str] = PendingRequests()
    for method in methods:
        exchange.register(method, method)
    return exchange


# What we asked.


def test_every_request_has_an_id_of_its_own() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    given_ids = [exchange.register("a", "ping") for _ in range(1000)]
    assert len(set(given_ids)) == 1000
    assert len(exchange) == 1000
    for id in given_ids:
        exchange.receive(build_result_message(id, {}))
    assert exchange.register("b", "ping") not in given_ids


def test_an_answer_reaches_only_its_request() -> None:
    exchange = exchange_with_requests("tools/list", "tools/call")
    assert exchange.receive(build_result_message(2, {"content": []})) == RpcResponse(
        "tools/call", {"content": []}
    )
    assert exchange.tokens() == ["tools/list"]
    assert exchange.receive(build_result_message(1, {"tools": []})) == RpcResponse(
        "tools/list", {"tools": []}
    )
    assert len(exchange) == 0


def test_a_failure_is_an_answer_with_the_error_of_the_server() -> None:
    event = exchange_with_requests("ping").receive(
        build_error_message(1, -32601, "no such method", {"method": "ping"})
    )
    assert event == RpcResponse("ping", None, RpcFailure(-32601, "no such method", {"method": "ping"}))


@pytest.mark.parametrize(
    "id", [0, 2, -1, 99, "2", "x", "", None, 1.0, True, [], {}, [1], {"id": 1}, "1 ", "+1"]
)
def test_an_answer_without_a_request_is_a_stray(id: Any) -> None:
    exchange = exchange_with_requests("ping")
    event = exchange.receive({"jsonrpc": "2.0", "id": id, "result": {}})
    assert isinstance(event, UnprocessableMessage)
    assert exchange.tokens() == ["ping"]


def test_an_answer_without_an_id_is_a_stray() -> None:
    assert isinstance(
        exchange_with_requests("ping").receive({"jsonrpc": "2.0", "result": {}}), UnprocessableMessage
    )
    assert isinstance(
        exchange_with_requests("ping").receive(build_error_message(None, -32700, "Parse error")),
        UnprocessableMessage,
    )


def test_a_second_answer_is_a_stray() -> None:
    exchange = exchange_with_requests("ping")
    assert isinstance(exchange.receive(build_result_message(1, {})), RpcResponse)
    assert isinstance(exchange.receive(build_result_message(1, {})), UnprocessableMessage)
    assert isinstance(exchange.receive(build_error_message(1, -1, "late")), UnprocessableMessage)


def test_an_answer_under_the_string_of_our_number_is_ours() -> None:
    assert exchange_with_requests("ping").receive(build_result_message("1", {"a": 1})) == RpcResponse(
        "ping", {"a": 1}
    )
    assert exchange_with_requests("ping").receive(build_error_message("1", -1, "no")) == RpcResponse(
        "ping", None, RpcFailure(-1, "no")
    )


def test_an_answer_that_comes_after_it_was_forgotten_is_a_stray() -> None:
    exchange = exchange_with_requests("tools/call")
    assert exchange.discard(1)
    assert not exchange.discard(1)
    assert len(exchange) == 0
    assert isinstance(exchange.receive(build_result_message(1, {})), UnprocessableMessage)
    assert isinstance(
        exchange.receive(build_notification("notifications/progress", {"progressToken": 1})),
        UnprocessableMessage,
    )


def test_answered_and_unknown_requests_cannot_be_forgotten() -> None:
    exchange = exchange_with_requests("ping")
    exchange.receive(build_result_message(1, {}))
    assert not exchange.discard(1)
    assert not exchange.discard(7)


@pytest.mark.parametrize("result", [None, [], "text", 1, True])
def test_a_result_that_is_not_an_object_ends_the_request_with_a_failure(result: Any) -> None:
    exchange = exchange_with_requests("tools/call")
    event = exchange.receive({"jsonrpc": "2.0", "id": 1, "result": result})
    assert isinstance(event, RpcResponse)
    assert event.result is None
    assert event.failure == RpcFailure(0, "tools/call: the result is not an object")
    assert len(exchange) == 0


def test_an_error_beside_a_null_result_counts() -> None:
    event = exchange_with_requests("ping").receive(
        {"id": 1, "result": None, "error": {"code": -5, "message": "no"}}
    )
    assert event == RpcResponse("ping", None, RpcFailure(-5, "no"))
    event = exchange_with_requests("ping").receive({"id": 1, "result": {"a": 1}, "error": None})
    assert event == RpcResponse("ping", {"a": 1})


def test_an_answer_with_neither_result_nor_error_leaves_the_request_open() -> None:
    exchange = exchange_with_requests("ping")
    assert isinstance(exchange.receive({"jsonrpc": "2.0", "id": 1}), UnprocessableMessage)
    assert exchange.tokens() == ["ping"]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ({"code": -32000, "message": "no"}, RpcFailure(-32000, "no")),
        ({"code": -32000, "message": "no", "data": [1]}, RpcFailure(-32000, "no", [1])),
        ({"code": "-32000", "message": "no"}, RpcFailure(0, "no")),
        ({"code": True, "message": "no"}, RpcFailure(0, "no")),
        ({"code": 5.0, "message": "no"}, RpcFailure(0, "no")),
        ({"code": 1, "message": ""}, RpcFailure(1, "no message")),
        ({"code": 1, "message": None}, RpcFailure(1, "no message")),
        ({"code": 1, "message": {"text": "no"}}, RpcFailure(1, "no message")),
        ({}, RpcFailure(0, "no message")),
        ("broken", RpcFailure(0, "an error that is not an object: 'broken'")),
        (None, RpcFailure(0, "an error that is not an object: None")),
        (["a"], RpcFailure(0, "an error that is not an object: list")),
    ],
)
def test_an_error_of_any_shape_is_a_failure(error: Any, failure: RpcFailure) -> None:
    assert parse_rpc_failure(error) == failure
    exchange = exchange_with_requests("ping")
    assert exchange.receive({"jsonrpc": "2.0", "id": 1, "error": error}) == RpcResponse("ping", None, failure)
    assert len(exchange) == 0


# Progress and cancellation.


def test_progress_reaches_its_request_and_leaves_it_open() -> None:
    exchange = exchange_with_requests("tools/list", "tools/call")
    params = {"progressToken": 2, "progress": 0.5, "total": 1, "message": "half"}
    event = exchange.receive(build_notification("notifications/progress", params))
    assert event == Progress("tools/call", params)
    assert len(exchange) == 2


@pytest.mark.parametrize("token", [0, 2, "x", None, True, 1.0, [], {}])
def test_progress_without_a_request_in_flight_is_a_stray(token: Any) -> None:
    message = build_notification("notifications/progress", {"progressToken": token, "progress": 1})
    assert isinstance(exchange_with_requests("tools/call").receive(message), UnprocessableMessage)


def test_progress_without_parameters_is_a_stray() -> None:
    assert isinstance(
        exchange_with_requests("tools/call").receive(build_notification("notifications/progress")),
        UnprocessableMessage,
    )


@pytest.mark.parametrize("id", [1, 0, -1, "x", ""])
def test_a_cancellation_names_the_request_and_the_reason(id: Any) -> None:
    exchange = exchange_with_requests("tools/call")
    params = {"requestId": id, "reason": "bored"}
    assert exchange.receive(build_notification("notifications/cancelled", params)) == Cancellation(
        id, "bored"
    )
    assert exchange.tokens() == ["tools/call"]


@pytest.mark.parametrize("reason", [None, 1, ["bored"], {}])
def test_a_cancellation_needs_no_reason(reason: Any) -> None:
    message = build_notification("notifications/cancelled", {"requestId": 3, "reason": reason})
    assert exchange_with_requests().receive(message) == Cancellation(3, None)


@pytest.mark.parametrize("params", [None, {}, {"requestId": None}, {"requestId": True}, {"requestId": [1]}])
def test_a_cancellation_without_a_request_is_a_stray(params: Any) -> None:
    assert isinstance(
        exchange_with_requests("ping").receive(build_notification("notifications/cancelled", params)),
        UnprocessableMessage,
    )


# What they ask and tell.


@pytest.mark.parametrize("id", [0, 7, -3, "a", "", 2**70])
def test_a_request_of_theirs_keeps_its_id_and_parameters(id: Any) -> None:
    assert exchange_with_requests().receive(build_request(id, "roots/list", {"a": 1})) == IncomingRequest(
        id, "roots/list", {"a": 1}
    )


@pytest.mark.parametrize("id", [None, True, 1.5, [], {}])
def test_a_request_with_an_invalid_id_is_a_stray(id: Any) -> None:
    assert isinstance(
        exchange_with_requests("ping").receive({"jsonrpc": "2.0", "id": id, "method": "ping"}),
        UnprocessableMessage,
    )


@pytest.mark.parametrize("message", [build_request(1, "ping"), build_notification("notifications/x")])
def test_null_parameters_count_as_none(message: dict[str, Any]) -> None:
    event = exchange_with_requests().receive({**message, "params": None})
    assert isinstance(event, IncomingRequest | Notification)
    assert event.params == {}
    assert event == exchange_with_requests().receive(message)


@pytest.mark.parametrize("params", [[], [1], "a", 1, True])
@pytest.mark.parametrize("message", [build_request(1, "ping"), build_notification("notifications/x")])
def test_parameters_that_are_not_an_object_make_a_stray(message: dict[str, Any], params: Any) -> None:
    assert isinstance(exchange_with_requests().receive({**message, "params": params}), UnprocessableMessage)


@pytest.mark.parametrize("method", [1, True, [], {}, 1.5])
def test_a_method_that_is_not_a_string_is_a_stray(method: Any) -> None:
    assert isinstance(
        exchange_with_requests("ping").receive({"jsonrpc": "2.0", "id": 1, "method": method}),
        UnprocessableMessage,
    )


def test_our_own_request_coming_back_is_known_as_an_echo() -> None:
    exchange = exchange_with_requests("initialize")
    message = build_request(1, "initialize", {"protocolVersion": "2025-11-25"})
    assert exchange.receive(message) == IncomingRequest(1, "initialize", message["params"], is_echo=True)


def test_a_request_of_theirs_with_one_of_our_ids_is_not_an_echo() -> None:
    exchange = exchange_with_requests("initialize")
    for id, method in ((1, "ping"), (2, "initialize"), ("1", "initialize")):
        event = exchange.receive(build_request(id, method))
        assert isinstance(event, IncomingRequest)
        assert not event.is_echo
    exchange.receive(build_result_message(1, {}))
    event = exchange.receive(build_request(1, "initialize"))
    assert isinstance(event, IncomingRequest)
    assert not event.is_echo


# Batches.


def test_a_batch_gives_the_event_of_each_of_its_messages_in_order() -> None:
    exchange = exchange_with_requests("a", "b")
    batch = [
        build_notification("x"),
        build_result_message(2, {}),
        build_request(9, "ping"),
        5,
        build_result_message(1, {}),
        [[]],
    ]
    results, second, ask, number, first, nested_results = map(exchange.receive, batch)
    assert (results, second, first) == (Notification("x", {}), RpcResponse("b", {}), RpcResponse("a", {}))
    assert ask == IncomingRequest(9, "ping", {})
    assert isinstance(number, UnprocessableMessage)
    assert isinstance(nested_results, UnprocessableMessage)


# Whatever comes.


@settings(deadline=None, max_examples=500)
@given(almost_messages | values | st.lists(almost_messages | values, max_size=3))
@example({"id": "１", "result": {}})
@example({"method": "notifications/progress", "params": {"progressToken": "1"}})
def test_no_value_makes_it_raise_and_a_request_ends_at_most_once(message: Any) -> None:
    exchange = exchange_with_requests("a", "b")
    messages = cast("list[object]", message) if isinstance(message, list) else [message]
    events = list(map(exchange.receive, messages))
    tokens = [event.token for event in events if isinstance(event, RpcResponse)]
    assert sorted([*tokens, *exchange.tokens()]) == ["a", "b"]
    for event in events:
        if isinstance(event, RpcResponse):
            assert (event.result is None) != (event.failure is None)
        elif isinstance(event, UnprocessableMessage):
            assert event.reason


@pytest.mark.parametrize("depth", [900, 1000])
@pytest.mark.parametrize("key", ["id", "error", "result", "params", "method", "progressToken", "requestId"])
def test_nesting_as_deep_as_can_be_read_does_not_make_it_raise(key: str, depth: int) -> None:
    # Whoever puts such a value into words, e.g. for a log, meets the limit of recursion.
    deep = decode(b"[" * depth + b"]" * depth)
    messages: list[dict[str, Any]] = [{"id": 1, key: deep}, {"id": 1, "result": {}, key: deep}]
    messages += [
        build_notification(f"notifications/{name}", {key: deep}) for name in ("progress", "cancelled")
    ]
    for message in messages:
        event = exchange_with_requests("ping").receive(message)
        assert not isinstance(event, UnprocessableMessage) or len(event.reason) < 400


def test_the_reason_of_a_stray_is_short_however_long_the_message_is() -> None:
    long = "x" * 1_000_000
    for message in (
        {"id": long, "result": {}},
        {"method": long, "params": []},
        {"method": long, "id": None},
        build_notification("notifications/progress", {"progressToken": long}),
    ):
        event = exchange_with_requests("ping").receive(message)
        assert isinstance(event, UnprocessableMessage)
        assert len(event.reason) < 400
    assert len(parse_rpc_failure(long).message) < 400


# Messages.


def test_messages_have_only_their_given_members() -> None:
    assert build_request(1, "ping") == {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert build_request("a", "x", {}) == {"jsonrpc": "2.0", "id": "a", "method": "x", "params": {}}
    assert build_notification("x") == {"jsonrpc": "2.0", "method": "x"}
    assert build_notification("x", {"a": 1}) == {"jsonrpc": "2.0", "method": "x", "params": {"a": 1}}
    assert build_result_message(0, {}) == {"jsonrpc": "2.0", "id": 0, "result": {}}
    assert build_error_message(None, 1, "m") == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": 1, "message": "m"},
    }
    assert build_error_message(1, 1, "m", 0)["error"] == {"code": 1, "message": "m", "data": 0}


@pytest.mark.parametrize(
    ("message", "is_it"),
    [
        (build_result_message(1, {}), True),
        (build_error_message(1, -1, "no"), True),
        (build_result_message("1", {}), True),
        (build_result_message(2, {}), False),
        ({"jsonrpc": "2.0", "id": True, "result": {}}, False),
        ({"jsonrpc": "2.0", "id": 1.0, "result": {}}, False),
        ({"jsonrpc": "2.0", "id": 1}, False),
        (build_error_message(None, -1, "no"), False),
        (build_request(1, "ping"), False),
        ({**build_request(1, "ping"), "result": {}}, False),
        (build_notification("x"), False),
        ([build_result_message(1, {})], False),
        ("text", False),
        (None, False),
    ],
)
def test_an_answer_is_recognised_by_its_id_and_its_shape(message: object, is_it: bool) -> None:
    assert is_response_to(message, 1) is is_it


def test_a_string_id_is_answered_by_that_string_only() -> None:
    assert is_response_to(build_result_message("a", {}), "a")
    assert not is_response_to(build_result_message("b", {}), "a")
    assert not is_response_to(build_result_message(1, {}), "1")


words = st.text(min_size=1, max_size=12)
json_objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


@settings(deadline=None)
@given(st.integers() | words, words, json_objects)
def test_any_request_goes_over_the_wire_without_loss(id: int | str, method: str, params: Any) -> None:
    assert exchange_with_requests().receive(
        decode(encode(build_request(id, method, params)))
    ) == IncomingRequest(id, method, params)


@settings(deadline=None)
@given(words.filter(lambda word: not word.startswith("notifications/")), json_objects)
def test_any_notification_goes_over_the_wire_without_loss(method: str, params: Any) -> None:
    assert exchange_with_requests().receive(
        decode(encode(build_notification(method, params)))
    ) == Notification(method, params)


@settings(deadline=None)
@given(json_objects)
def test_any_result_goes_over_the_wire_without_loss(result: Any) -> None:
    exchange = exchange_with_requests("tools/call")
    assert exchange.receive(decode(encode(build_result_message(1, result)))) == RpcResponse(
        "tools/call", result
    )


@settings(deadline=None)
@given(st.integers().filter(bool), words, values)
def test_any_failure_goes_over_the_wire_without_loss(code: int, message: str, data: Any) -> None:
    exchange = exchange_with_requests("tools/call")
    event = exchange.receive(decode(encode(build_error_message(1, code, message, data))))
    assert event == RpcResponse("tools/call", None, RpcFailure(code, message, data))
