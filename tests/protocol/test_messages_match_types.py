"""Every message that we can send, held against the reference types of its revision.

The reference ignores keys that it does not know, so each message is also written back from what was
understood: a key that nobody knows would be missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import (
    UnsupportedProtocolVersionErrorData,
    jsonrpc,
    methods,
    version,
)
from pydantic import TypeAdapter, ValidationError

from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_LEGACY_VERSION,
    LATEST_MODERN_VERSION,
    LEGACY_VERSIONS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN_VERSIONS,
    PARSE_ERROR,
    PROTOCOL_VERSION_KEY,
    SUBSCRIPTION_ID_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.eras import CACHEABLE_METHODS, MODERN, RequestBuilder
from toolyard.protocol.handshake import HandshakeResult, interpret_probe, parse_initialize_result
from toolyard.protocol.jsonrpc import (
    IncomingRequest,
    Message,
    Notification,
    PendingRequests,
    RpcFailure,
    RpcResponse,
    build_error_message,
    build_notification,
    build_request,
    build_result_message,
)
from toolyard.protocol.server import (
    RequestMetadata,
    RequestRejection,
    build_discover_result,
    build_initialize_result,
    build_input_required_result,
    build_subscription_notification,
    parse_request_metadata,
)

VERSIONS = [*reversed(LEGACY_VERSIONS), *reversed(MODERN_VERSIONS)]
INFO = {"name": "toolyard", "version": "1.0.0", "title": "Toolyard", "websiteUrl": "https://example.com"}
ABILITIES: dict[str, Any] = {
    "roots": {},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
    "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
}
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}


def over_the_wire(message: Message) -> Message:
    line = encode(message)
    assert b"\n" not in line
    return decode(line)


def check(expected: Any, value: Any) -> None:
    """The value is of the expected type, and nothing of it is unknown to that type."""
    adapter: TypeAdapter[Any] = TypeAdapter(expected)
    understood = adapter.validate_python(value, by_name=False)
    assert adapter.dump_python(understood, by_alias=True, exclude_unset=True, mode="json") == value


def send_over_wire(message: Message) -> Message:
    """As the other side reads it, when it is a message at all."""
    read = over_the_wire(message)
    envelope = jsonrpc.jsonrpc_message_adapter.validate_python(read)
    assert envelope.model_dump(exclude_unset=True) == read
    return read


# What we say as a client.

ELICITATION_RESULT: dict[str, Any] = {
    "action": "accept",
    "content": {"name": "octocat", "age": 4, "ok": True, "all": ["a"]},
}
SAMPLING_RESULT: dict[str, Any] = {
    "role": "assistant",
    "content": {"type": "text", "text": "Paris"},
    "model": "some-model",
    "stopReason": "endTurn",
}
ROOTS: dict[str, Any] = {"roots": [{"uri": "file:///work", "name": "work"}]}
MORE: dict[str, Any] = {
    "inputResponses": {
        "login": ELICITATION_RESULT,
        "no": {"action": "decline"},
        "capital": SAMPLING_RESULT,
        "roots": ROOTS,
    },
    "requestState": "opaque é",
}
ONLY_MODERN = ("inputResponses", "requestState")

REQUESTS: list[tuple[str, dict[str, Any] | None]] = [
    ("server/discover", None),
    ("ping", None),
    ("logging/setLevel", {"level": "warning"}),
    ("tools/list", None),
    ("tools/list", {"cursor": "next"}),
    ("tools/call", {"name": "echo"}),
    ("tools/call", {"name": "echo", "arguments": {"text": "é", "n": [1, {"a": None}]}}),
    ("tools/call", {"name": "echo", "arguments": {}, **MORE}),
    ("tools/call", {"name": "echo", "requestState": "opaque"}),
    ("resources/list", None),
    ("resources/list", {"cursor": "next"}),
    ("resources/templates/list", None),
    ("resources/templates/list", {"cursor": "next"}),
    ("resources/read", {"uri": "file:///a%20b"}),
    ("resources/read", {"uri": "file:///a", **MORE}),
    ("resources/subscribe", {"uri": "file:///a"}),
    ("resources/unsubscribe", {"uri": "file:///a"}),
    ("prompts/list", None),
    ("prompts/list", {"cursor": "next"}),
    ("prompts/get", {"name": "hello"}),
    ("prompts/get", {"name": "hello", "arguments": {"who": "world"}, **MORE}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
    ),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "file:///{path}"},
            "argument": {"name": "path", "value": ""},
            "context": {"arguments": {"other": "x"}},
        },
    ),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}),
    (
        "subscriptions/listen",
        {"notifications": {"resourcesListChanged": True, "resourceSubscriptions": ["file:///a"]}},
    ),
]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"progress_token": 7},
    {"log_level": "debug"},
    {"meta": TRACE},
    {"progress_token": 0, "log_level": "info", "meta": {**TRACE, "com.example/key": {"a": [1]}}},
]


def every_request() -> Iterator[Any]:
    for revision in VERSIONS:
        for number, (method, params) in enumerate(REQUESTS):
            of_modern = any(key in (params or {}) for key in ONLY_MODERN)
            if (method, revision) in methods.CLIENT_REQUESTS and (
                revision in MODERN_VERSIONS or not of_modern
            ):
                yield pytest.param(method, revision, params, id=f"{revision} {method} {number}")


@pytest.mark.parametrize(("method", "revision", "params"), [*every_request()])
def test_every_request_is_of_its_type(method: str, revision: str, params: dict[str, Any] | None) -> None:
    for capabilities in ({}, ABILITIES):
        speaker = RequestBuilder(INFO, capabilities, revision)
        for options in OPTIONS:
            exchange: PendingRequests[str] = PendingRequests()
            message = send_over_wire(
                build_request(
                    exchange.register("token", method), method, speaker.build_params(params, **options)
                )
            )
            methods.validate_client_request(method, revision, message.get("params"))
            check(methods.CLIENT_REQUESTS[(method, revision)], message)


@pytest.mark.parametrize("revision", LEGACY_VERSIONS)
@pytest.mark.parametrize("capabilities", [{}, ABILITIES], ids=["bare", "able"])
def test_initialize_is_of_its_type(revision: str, capabilities: dict[str, Any]) -> None:
    params = RequestBuilder(INFO, capabilities, revision).initialize_params()
    message = send_over_wire(build_request(1, "initialize", params))
    assert message["params"]["protocolVersion"] == revision
    methods.validate_client_request("initialize", revision, message["params"])
    check(methods.CLIENT_REQUESTS[("initialize", revision)], message)


def test_every_request_of_every_revision_was_tried() -> None:
    tested_requests = {(param.values[0], param.values[1]) for param in every_request()}
    tested_requests |= {("initialize", revision) for revision in LEGACY_VERSIONS}
    assert tested_requests == set(methods.CLIENT_REQUESTS)


def test_our_revisions_are_those_of_the_reference() -> None:
    assert tuple(VERSIONS) == version.KNOWN_PROTOCOL_VERSIONS
    assert tuple(reversed(LEGACY_VERSIONS)) == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert tuple(reversed(MODERN_VERSIONS)) == version.MODERN_PROTOCOL_VERSIONS


def test_our_codes_are_those_of_the_reference() -> None:
    assert [PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR] == [
        jsonrpc.PARSE_ERROR,
        jsonrpc.INVALID_REQUEST,
        jsonrpc.METHOD_NOT_FOUND,
        jsonrpc.INVALID_PARAMS,
        jsonrpc.INTERNAL_ERROR,
    ]
    assert [HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION] == [
        jsonrpc.HEADER_MISMATCH,
        jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY,
        jsonrpc.UNSUPPORTED_PROTOCOL_VERSION,
    ]


CLIENT_NOTES: dict[str, list[dict[str, Any] | None]] = {
    "notifications/initialized": [None],
    "notifications/cancelled": [{"requestId": 7, "reason": "timed out"}, {"requestId": "a"}],
    "notifications/progress": [{"progressToken": 3, "progress": 0.5, "total": 1, "message": "half"}],
    "notifications/roots/list_changed": [None],
}


@pytest.mark.parametrize(("method", "revision"), sorted(methods.CLIENT_NOTIFICATIONS))
def test_every_notification_of_a_client_is_of_its_type(method: str, revision: str) -> None:
    for params in CLIENT_NOTES[method]:
        message = send_over_wire(build_notification(method, params))
        methods.validate_client_notification(method, revision, message.get("params"))
        check(methods.CLIENT_NOTIFICATIONS[(method, revision)], message)


CLIENT_ANSWERS: dict[str, list[dict[str, Any]]] = {
    "ping": [{}],
    "roots/list": [ROOTS, {"roots": []}],
    "sampling/createMessage": [SAMPLING_RESULT],
    "elicitation/create": [ELICITATION_RESULT, {"action": "decline"}, {"action": "cancel"}],
}


@pytest.mark.parametrize(("method", "revision"), sorted(methods.CLIENT_RESULTS))
def test_every_answer_of_a_client_is_of_its_type(method: str, revision: str) -> None:
    for result in CLIENT_ANSWERS[method]:
        message = send_over_wire(build_result_message(5, result))
        methods.validate_client_result(method, revision, message["result"])
        check(methods.CLIENT_RESULTS[(method, revision)], message["result"])


# What we say as a server.

TOOL: dict[str, Any] = {
    "name": "echo",
    "title": "Echo",
    "description": "Says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True, "title": "Echo"},
    "icons": [{"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    "_meta": {"com.example/key": 1},
}
CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": "é", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "a", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}},
]
OUR_ABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
}
RESULTS: dict[str, list[dict[str, Any]]] = {
    "tools/list": [{"tools": [TOOL]}, {"tools": [], "nextCursor": "next"}],
    "tools/call": [
        {"content": CONTENT, "isError": False, "structuredContent": {"text": "é"}},
        {"content": [], "_meta": {"com.example/key": 1}},
        {"content": [{"type": "text", "text": "it broke"}], "isError": True},
    ],
    "resources/list": [{"resources": [{"uri": "file:///a", "name": "a", "size": 5}], "nextCursor": "n"}],
    "resources/templates/list": [{"resourceTemplates": [{"uriTemplate": "file:///{p}", "name": "p"}]}],
    "resources/read": [
        {"contents": [{"uri": "file:///a", "text": "a"}, {"uri": "file:///b", "blob": "AAAA"}]}
    ],
    "prompts/list": [{"prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}]}],
    "prompts/get": [{"description": "d", "messages": [{"role": "user", "content": CONTENT[0]}]}],
    "completion/complete": [{"completion": {"values": ["a", "b"], "total": 2, "hasMore": False}}],
    "ping": [{}],
    "logging/setLevel": [{}],
    "resources/subscribe": [{}],
    "resources/unsubscribe": [{}],
    "subscriptions/listen": [{"_meta": {SUBSCRIPTION_ID_KEY: 5}}],
}
ASKS: dict[str, dict[str, Any]] = {
    "ping": {},
    "roots/list": {},
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}],
        "systemPrompt": "Be brief.",
        "modelPreferences": {"hints": [{"name": "some-model"}], "intelligencePriority": 0.8},
        "maxTokens": 100,
    },
    "elicitation/create": {
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}


def our_answers(method: str, revision: str) -> list[dict[str, Any]]:
    """What we answer to this method in this revision, made by what the gateway makes it with."""
    if method == "server/discover":
        return [
            MODERN.finish_result(each, method, INFO)
            for each in (build_discover_result(OUR_ABILITIES, "be nice"), build_discover_result({}))
        ]
    if method == "initialize":
        return [
            build_initialize_result(revision, INFO, OUR_ABILITIES, "be nice"),
            build_initialize_result(revision, INFO, {}),
        ]
    plain = RESULTS[method]
    if revision not in MODERN_VERSIONS:
        return plain
    answers = [MODERN.finish_result(result, method, INFO) for result in plain]
    if method in methods.INPUT_REQUIRED_METHODS:
        asks = {kind: {"method": kind, "params": params} for kind, params in ASKS.items() if kind != "ping"}
        answers += [
            build_input_required_result(asks, "state"),
            build_input_required_result(asks, None),
            build_input_required_result({}, "state"),
        ]
    return answers


@pytest.mark.parametrize(("method", "revision"), sorted(methods.SERVER_RESULTS))
def test_every_answer_of_a_server_is_of_its_type(method: str, revision: str) -> None:
    for result in our_answers(method, revision):
        message = send_over_wire(build_result_message("a", result))
        methods.validate_server_result(method, revision, message["result"])
        check(methods.SERVER_RESULTS[(method, revision)], message["result"])
        if revision in MODERN_VERSIONS:
            server_result = methods.parse_server_result(method, revision, message["result"])
            assert methods.is_input_required(server_result) is (result["resultType"] == "input_required")


SERVER_NOTES: dict[str, list[dict[str, Any] | None]] = {
    "notifications/cancelled": [{"requestId": 7, "reason": "closing"}],
    "notifications/message": [
        {"level": "info", "logger": "a", "data": {"text": "é"}},
        {"level": "error", "data": 5},
    ],
    "notifications/progress": [{"progressToken": "a", "progress": 1}, {"progressToken": 1, "progress": 0.5}],
    "notifications/prompts/list_changed": [None],
    "notifications/resources/list_changed": [None],
    "notifications/resources/updated": [{"uri": "file:///a"}],
    "notifications/subscriptions/acknowledged": [{"notifications": {"toolsListChanged": True}}],
    "notifications/tools/list_changed": [None],
    "notifications/elicitation/complete": [{"elicitationId": "e1"}],
}
ON_SUBSCRIPTIONS = ("/list_changed", "/updated", "/acknowledged")


@pytest.mark.parametrize(("method", "revision"), sorted(methods.SERVER_NOTIFICATIONS))
def test_every_notification_of_a_server_is_of_its_type(method: str, revision: str) -> None:
    for params in SERVER_NOTES[method]:
        if revision in MODERN_VERSIONS and method.endswith(ON_SUBSCRIPTIONS):
            notifications = [
                build_subscription_notification(method, 5, params),
                build_subscription_notification(method, "a", params),
            ]
        else:
            notifications = [build_notification(method, params)]
        for message in map(send_over_wire, notifications):
            methods.parse_server_notification(method, revision, message.get("params"))
            check(methods.SERVER_NOTIFICATIONS[(method, revision)], message)


@pytest.mark.parametrize(("method", "revision"), sorted(methods.SERVER_REQUESTS))
def test_every_request_of_a_server_is_of_its_type(method: str, revision: str) -> None:
    for params in (ASKS[method], None) if not ASKS[method] else (ASKS[method],):
        message = send_over_wire(build_request("s1", method, params))
        methods.parse_server_request(method, revision, message.get("params"))
        check(methods.SERVER_REQUESTS[(method, revision)], message)


@pytest.mark.parametrize("method", sorted(CACHEABLE_METHODS))
def test_modern_lists_carry_the_cache_hints_that_the_types_require(method: str) -> None:
    for result in our_answers(method, LATEST_MODERN_VERSION):
        if result["resultType"] != "complete":
            continue
        for key in ("ttlMs", "cacheScope", "resultType"):
            less = {name: value for name, value in result.items() if name != key}
            with pytest.raises((ValidationError, AssertionError)):
                check(methods.SERVER_RESULTS[(method, LATEST_MODERN_VERSION)], less)


@pytest.mark.parametrize("id", [1, "a", None])
@pytest.mark.parametrize(
    "failure",
    [
        RpcFailure(METHOD_NOT_FOUND, "no such method"),
        RpcFailure(INTERNAL_ERROR, "it broke", {"why": ["é"]}),
        RpcFailure(PARSE_ERROR, "not JSON"),
    ],
)
def test_every_error_is_of_its_type(id: int | str | None, failure: RpcFailure) -> None:
    message = send_over_wire(build_error_message(id, failure.code, failure.message, failure.data))
    error_response = jsonrpc.JSONRPCError.model_validate(message)
    assert (error_response.id, error_response.error.code, error_response.error.data) == (
        id,
        failure.code,
        failure.data,
    )


def test_the_refusal_of_a_version_is_of_its_type() -> None:
    speaker = RequestBuilder(INFO, {}, "2099-01-01")
    request_metadata = parse_request_metadata(build_request(1, "tools/list", speaker.build_params(None)))
    assert isinstance(request_metadata, RequestRejection)
    failure = request_metadata.failure
    message = send_over_wire(build_error_message(1, failure.code, failure.message, failure.data))
    assert message["error"]["code"] == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION
    check(UnsupportedProtocolVersionErrorData, message["error"]["data"])


# The two sides together.


def test_our_client_understands_our_servers_answer_to_a_probe() -> None:
    discover_result = build_discover_result(OUR_ABILITIES, "be nice")
    result = over_the_wire(MODERN.finish_result(discover_result, "server/discover", INFO))
    assert interpret_probe(result, None) == HandshakeResult(
        LATEST_MODERN_VERSION, INFO, OUR_ABILITIES, "be nice"
    )


@pytest.mark.parametrize("revision", LEGACY_VERSIONS)
def test_our_client_understands_our_servers_answer_to_a_handshake(revision: str) -> None:
    protocol_version = RequestBuilder(INFO, {}, revision).initialize_params()["protocolVersion"]
    result = over_the_wire(build_initialize_result(protocol_version, INFO, OUR_ABILITIES, "be nice"))
    assert parse_initialize_result(result) == HandshakeResult(revision, INFO, OUR_ABILITIES, "be nice")


def test_a_client_that_is_refused_its_version_asks_again_with_one_that_is_served() -> None:
    speaker = RequestBuilder(INFO, ABILITIES, "2099-01-01")
    request_metadata = parse_request_metadata(
        over_the_wire(build_request(1, "server/discover", speaker.build_params(None)))
    )
    assert isinstance(request_metadata, RequestRejection)
    again = interpret_probe(None, request_metadata.failure)
    assert again == LATEST_MODERN_VERSION
    speaker.set_version(again)
    caller = parse_request_metadata(
        over_the_wire(build_request(2, "server/discover", speaker.build_params(None)))
    )
    assert caller == RequestMetadata(LATEST_MODERN_VERSION, ABILITIES)


# That these tests can fail.


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "echo"}),
        ("tools/call", {"_meta": {PROTOCOL_VERSION_KEY: LATEST_MODERN_VERSION}, "name": "echo"}),
        ("server/discover", None),
    ],
)
def test_the_reference_refuses_a_modern_request_without_its_stamp(method: str, params: Any) -> None:
    with pytest.raises(ValidationError):
        methods.validate_client_request(method, LATEST_MODERN_VERSION, params)


def test_the_check_refuses_an_unknown_key() -> None:
    expected = methods.CLIENT_REQUESTS[("tools/call", LATEST_LEGACY_VERSION)]
    check(expected, build_request(1, "tools/call", {"name": "echo"}))
    with pytest.raises(AssertionError):
        check(expected, build_request(1, "tools/call", {"name": "echo", "requestState": "x"}))


# Any message.

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(max_size=6), values, max_size=4)
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}),
    st.fixed_dictionaries({"type": st.just("image"), "data": st.just("AAAA"), "mimeType": st.text()}),
    st.fixed_dictionaries({"type": st.just("resource_link"), "uri": st.just("file:///a"), "name": st.text()}),
)
requests = st.one_of(
    st.tuples(st.just("tools/call"), st.fixed_dictionaries({"name": st.text(), "arguments": arguments})),
    st.tuples(st.sampled_from(["tools/list", "prompts/list"]), st.fixed_dictionaries({"cursor": st.text()})),
    st.tuples(
        st.just("prompts/get"),
        st.fixed_dictionaries({"name": st.text(), "arguments": st.dictionaries(st.text(), st.text())}),
    ),
)
results = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=3)},
    optional={"isError": st.booleans(), "structuredContent": arguments},
)


@settings(deadline=None)
@given(
    revision=st.sampled_from(VERSIONS),
    sent_request=requests,
    token=st.none() | st.integers(),
    meta=st.none()
    | st.dictionaries(st.from_regex(r"com\.example/[a-z]{1,5}", fullmatch=True), values, max_size=2),
)
def test_any_request_is_of_its_type_and_arrives_whole(
    revision: str, sent_request: tuple[str, dict[str, Any]], token: int | None, meta: Any
) -> None:
    method, params = sent_request
    stamped_params = RequestBuilder(INFO, ABILITIES, revision).build_params(
        params, progress_token=token, meta=meta
    )
    message = send_over_wire(build_request(9, method, stamped_params))
    methods.validate_client_request(method, revision, message["params"])
    event = PendingRequests[None]().receive(message)
    assert event == IncomingRequest(9, method, stamped_params or {})
    assert {key: event.params[key] for key in params} == params
    assert {key: event.params["_meta"][key] for key in meta or {}} == (meta or {})


@settings(deadline=None)
@given(revision=st.sampled_from(VERSIONS), result=results)
def test_any_result_is_of_its_type_and_arrives_whole(revision: str, result: dict[str, Any]) -> None:
    full = MODERN.finish_result(result, "tools/call", INFO) if revision in MODERN_VERSIONS else result
    exchange: PendingRequests[str] = PendingRequests()
    message = send_over_wire(build_result_message(exchange.register("token", "tools/call"), full))
    methods.validate_server_result("tools/call", revision, message["result"])
    event = exchange.receive(message)
    assert event == RpcResponse("token", full)
    assert event.result is not None
    assert {key: event.result[key] for key in result} == result


@settings(deadline=None)
@given(revision=st.sampled_from(VERSIONS), level=st.sampled_from(["debug", "error"]), data=values)
def test_any_log_message_is_of_its_type_and_arrives_whole(revision: str, level: str, data: Any) -> None:
    params = {"level": level, "data": data}
    message = send_over_wire(build_notification("notifications/message", params))
    methods.parse_server_notification("notifications/message", revision, message["params"])
    assert PendingRequests[None]().receive(message) == Notification("notifications/message", params)
