from __future__ import annotations

from typing import Any

import pytest
from mcp_types import methods
from multidict import CIMultiDict

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_LEGACY_VERSION,
    LATEST_MODERN_VERSION,
    LEGACY_VERSIONS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN_VERSIONS,
    PARSE_ERROR,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.eras import CACHEABLE_METHODS, LEGACY, MODERN, RequestBuilder, detect_era
from toolyard.protocol.jsonrpc import Message, RpcFailure, build_notification, build_request
from toolyard.protocol.mirrored_headers import build_standard_headers
from toolyard.protocol.server import (
    RequestMetadata,
    RequestRejection,
    build_discover_result,
    build_initialize_result,
    build_input_required_result,
    build_subscription_notification,
    http_status,
    parse_request_metadata,
)

INFO = {"name": "client", "version": "1"}
US = {"name": "toolyard", "version": "2"}
META = {
    PROTOCOL_VERSION_KEY: LATEST_MODERN_VERSION,
    CLIENT_CAPABILITIES_KEY: {"roots": {}},
    CLIENT_INFO_KEY: INFO,
}


def ask(meta: Any, method: str = "tools/list", **params: Any) -> Message:
    return build_request(1, method, {**params, "_meta": meta})


def failure_of(outcome: RequestMetadata | RequestRejection) -> RpcFailure:
    assert isinstance(outcome, RequestRejection)
    assert outcome.status == http_status(outcome.failure) == 400
    return outcome.failure


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in META.items() if name != key}


# Which era.


@pytest.mark.parametrize(
    ("message", "modern"),
    [
        (ask(META), True),
        (ask({PROTOCOL_VERSION_KEY: None}), True),
        (build_request(1, "server/discover"), True),
        (build_request(1, "subscriptions/listen", {}), True),
        (build_request(1, "initialize", {"protocolVersion": LATEST_LEGACY_VERSION}), False),
        (build_request(1, "tools/list"), False),
        (ask({"progressToken": 1}), False),
        (ask(None), False),
        (ask([PROTOCOL_VERSION_KEY]), False),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, False),
        (build_notification("notifications/initialized"), False),
    ],
)
def test_the_era_of_a_request_is_known_by_how_it_opens(message: Message, modern: bool) -> None:
    assert detect_era(message) is (MODERN if modern else LEGACY)


# Reading a modern request.


def test_a_modern_request_names_its_client() -> None:
    meta = {**META, LOG_LEVEL_KEY: "warning", "progressToken": "abc", "other": 1}
    assert parse_request_metadata(ask(meta)) == RequestMetadata(
        LATEST_MODERN_VERSION, {"roots": {}}, "warning", "abc"
    )


@pytest.mark.parametrize("info", [None, "text", []])
def test_the_identity_of_the_caller_is_optional(info: Any) -> None:
    assert parse_request_metadata(ask(without(CLIENT_INFO_KEY))) == RequestMetadata(
        LATEST_MODERN_VERSION, {"roots": {}}
    )
    assert parse_request_metadata(ask({**META, CLIENT_INFO_KEY: info})) == RequestMetadata(
        LATEST_MODERN_VERSION, {"roots": {}}
    )


@pytest.mark.parametrize(
    ("token", "read"),
    [(0, 0), (7, 7), ("", ""), ("a", "a"), (None, None), (True, None), (1.5, None), ([], None)],
)
def test_a_progress_token_is_a_number_or_a_string(token: Any, read: Any) -> None:
    caller = parse_request_metadata(ask({**META, "progressToken": token}))
    assert isinstance(caller, RequestMetadata)
    assert caller.progress_token == read
    assert type(caller.progress_token) is type(read)


@pytest.mark.parametrize("key", [PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY])
@pytest.mark.parametrize("value", [..., None, 5, [], True])
def test_a_request_without_a_required_field_is_malformed(key: str, value: Any) -> None:
    meta = without(key) if value is ... else {**META, key: value}
    failure = failure_of(parse_request_metadata(ask(meta)))
    assert failure.code == INVALID_PARAMS
    assert key in failure.message


@pytest.mark.parametrize(
    "message",
    [
        build_request(1, "tools/list"),
        build_request(1, "tools/list", {}),
        ask(None),
        ask([]),
        {"jsonrpc": "2.0", "id": 1, "method": "x", "params": [1]},
    ],
)
def test_a_request_without_any_of_it_is_malformed(message: Message) -> None:
    assert failure_of(parse_request_metadata(message)).code == INVALID_PARAMS


@pytest.mark.parametrize("version", ["2025-11-25", "1900-01-01", "", "2099-01-01"])
def test_a_version_that_we_do_not_serve_is_refused_with_those_that_we_do(version: str) -> None:
    failure = failure_of(parse_request_metadata(ask({**META, PROTOCOL_VERSION_KEY: version})))
    assert failure.code == UNSUPPORTED_VERSION
    assert failure.data == {"supported": [*MODERN_VERSIONS], "requested": version}


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_every_level_is_known(level: str) -> None:
    caller = parse_request_metadata(ask({**META, LOG_LEVEL_KEY: level}))
    assert isinstance(caller, RequestMetadata)
    assert caller.log_level == level


@pytest.mark.parametrize("level", ["verbose", "", "DEBUG", 5, [], {}, True])
def test_an_unknown_level_is_refused(level: Any) -> None:
    failure = failure_of(parse_request_metadata(ask({**META, LOG_LEVEL_KEY: level})))
    assert failure.code == INVALID_PARAMS


def headers_for(message: Message) -> CIMultiDict[str]:
    own = {"mcp-protocol-version": LATEST_MODERN_VERSION}
    return CIMultiDict({**own, **build_standard_headers(message["method"], message["params"])})


def test_over_http_the_headers_must_agree_with_the_body() -> None:
    message = ask(META, "tools/call", name="echo", arguments={"region": "eu"})
    headers = headers_for(message)
    assert isinstance(parse_request_metadata(message, headers=headers), RequestMetadata)
    headers["Mcp-Name"] = "other"
    failure = failure_of(parse_request_metadata(message, headers=headers))
    assert failure.code == HEADER_MISMATCH
    assert "Mcp-Name" in failure.message
    failure = failure_of(parse_request_metadata(message, headers=CIMultiDict()))
    assert failure.code == HEADER_MISMATCH


def test_a_client_that_contradicts_itself_is_told_that_before_its_version_is_judged() -> None:
    message = ask({**META, PROTOCOL_VERSION_KEY: "2099-01-01"})
    assert failure_of(parse_request_metadata(message, headers=headers_for(message))).code == HEADER_MISMATCH
    headers = headers_for(message)
    headers["MCP-Protocol-Version"] = "2099-01-01"
    assert failure_of(parse_request_metadata(message, headers=headers)).code == UNSUPPORTED_VERSION


def test_requests_of_our_own_client_are_understood() -> None:
    speaker = RequestBuilder(INFO, {"sampling": {}})
    message = build_request(1, "tools/list", speaker.build_params(None, progress_token=4, log_level="info"))
    assert parse_request_metadata(message) == RequestMetadata(
        LATEST_MODERN_VERSION, {"sampling": {}}, "info", 4
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (METHOD_NOT_FOUND, 404),
        (INVALID_PARAMS, 400),
        (HEADER_MISMATCH, 400),
        (MISSING_CAPABILITY, 400),
        (UNSUPPORTED_VERSION, 400),
        (PARSE_ERROR, 400),
        (INVALID_REQUEST, 400),
        (INTERNAL_ERROR, 200),
        (-32000, 200),
        (7, 200),
    ],
)
def test_each_failure_has_its_http_status(code: int, status: int) -> None:
    assert http_status(RpcFailure(code, "no")) == status


# Answers.


def test_discover_returns_versions_capabilities_and_our_name() -> None:
    result = MODERN.finish_result(build_discover_result({"tools": {}}, "be nice"), "server/discover", US)
    assert result == {
        "supportedVersions": [*MODERN_VERSIONS, *LEGACY_VERSIONS],
        "capabilities": {"tools": {}},
        "instructions": "be nice",
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO_KEY: US},
    }
    assert "instructions" not in build_discover_result({})


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_initialize_agrees_to_every_version_that_we_speak(version: str) -> None:
    assert build_initialize_result(version, US, {"tools": {}}, "be nice") == {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": US,
        "instructions": "be nice",
    }


@pytest.mark.parametrize(
    "requested_version",
    ["1999-01-01", "2099-01-01", LATEST_MODERN_VERSION, "", None, 5, [LATEST_LEGACY_VERSION]],
)
def test_initialize_offers_our_newest_legacy_version_instead_of_another(requested_version: Any) -> None:
    result = build_initialize_result(requested_version, US, {})
    assert result["protocolVersion"] == LATEST_LEGACY_VERSION
    assert "instructions" not in result


@pytest.mark.parametrize("method", sorted(CACHEABLE_METHODS))
def test_a_complete_result_of_a_cacheable_method_has_hints(method: str) -> None:
    result = MODERN.finish_result({"items": []}, method, US)
    assert result == {
        "items": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO_KEY: US},
    }
    own = MODERN.finish_result({"ttlMs": 1, "cacheScope": "public"}, method, US)
    assert (own["ttlMs"], own["cacheScope"]) == (1, "public")


@pytest.mark.parametrize(
    "method", ["tools/call", "prompts/get", "completion/complete", "subscriptions/listen"]
)
def test_a_complete_result_of_another_method_has_none(method: str) -> None:
    assert MODERN.finish_result({"a": 1}, method, US) == {
        "a": 1,
        "resultType": "complete",
        "_meta": {SERVER_INFO_KEY: US},
    }


def test_a_complete_result_keeps_its_meta_except_for_our_name() -> None:
    upstream_result = {"_meta": {"a": 1, SERVER_INFO_KEY: {"name": "upstream"}}, "resultType": "strange"}
    result = MODERN.finish_result(upstream_result, "tools/call", US)
    assert result == {"resultType": "complete", "_meta": {"a": 1, SERVER_INFO_KEY: US}}
    assert upstream_result == {
        "_meta": {"a": 1, SERVER_INFO_KEY: {"name": "upstream"}},
        "resultType": "strange",
    }
    assert MODERN.finish_result({"_meta": None}, "tools/call", US)["_meta"] == {SERVER_INFO_KEY: US}


def test_the_cacheable_methods_are_those_of_the_reference() -> None:
    assert CACHEABLE_METHODS == methods.CACHEABLE_METHODS


def test_input_is_asked_for_with_requests_or_a_state_or_both() -> None:
    asks = {"name": {"method": "elicitation/create", "params": {}}}
    assert build_input_required_result(asks, "s") == {
        "resultType": "input_required",
        "inputRequests": asks,
        "requestState": "s",
    }
    assert build_input_required_result(asks, None) == {"resultType": "input_required", "inputRequests": asks}
    assert build_input_required_result({}, "") == {"resultType": "input_required", "requestState": ""}
    with pytest.raises(ValueError):
        build_input_required_result({}, None)


@pytest.mark.parametrize("subscription", [7, "abc", 0])
def test_a_note_on_a_subscription_names_it(subscription: Any) -> None:
    assert build_subscription_notification("notifications/tools/list_changed", subscription) == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": {SUBSCRIPTION_ID_KEY: subscription}},
    }
    params = {"uri": "file:///a", "_meta": {"a": 1, SUBSCRIPTION_ID_KEY: "theirs"}}
    note = build_subscription_notification("notifications/resources/updated", subscription, params)
    assert note["params"] == {"uri": "file:///a", "_meta": {"a": 1, SUBSCRIPTION_ID_KEY: subscription}}
    assert params["_meta"] == {"a": 1, SUBSCRIPTION_ID_KEY: "theirs"}
