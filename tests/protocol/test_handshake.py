from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.protocol.constants import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    LATEST_LEGACY_VERSION,
    LATEST_MODERN_VERSION,
    LEGACY_VERSIONS,
    LOG_LEVEL_KEY,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    UNSUPPORTED_VERSION,
)
from toolyard.protocol.eras import LEGACY, MODERN, RequestBuilder
from toolyard.protocol.handshake import (
    HandshakeResult,
    InconclusiveProbe,
    interpret_probe,
    parse_initialize_result,
)
from toolyard.protocol.jsonrpc import RpcFailure

INFO = {"name": "toolyard", "version": "1.2.3"}
ABILITIES: dict[str, Any] = {"roots": {}, "extensions": {"io.modelcontextprotocol/ui": {}}}
STAMP = {
    PROTOCOL_VERSION_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_KEY: INFO,
    CLIENT_CAPABILITIES_KEY: ABILITIES,
}
RESERVED_META_KEYS = [
    "progressToken",
    PROTOCOL_VERSION_KEY,
    CLIENT_INFO_KEY,
    CLIENT_CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
]


def speaker(version: str = LATEST_MODERN_VERSION) -> RequestBuilder:
    return RequestBuilder(INFO, ABILITIES, version)


# Stamping.


@pytest.mark.parametrize("params", [None, {}])
def test_a_modern_request_tells_version_identity_and_capabilities(params: Any) -> None:
    assert speaker().build_params(params) == {"_meta": STAMP}


def test_a_modern_request_keeps_its_parameters_beside_the_stamp() -> None:
    assert speaker().build_params({"name": "x", "arguments": {}}) == {
        "name": "x",
        "arguments": {},
        "_meta": STAMP,
    }


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_legacy_request_is_not_stamped(version: str) -> None:
    legacy = speaker(version)
    assert legacy.build_params(None) is None
    assert legacy.build_params({}) == {}
    assert legacy.build_params({"cursor": "a"}) == {"cursor": "a"}
    assert legacy.build_params({"cursor": "a"}, log_level="debug") == {"cursor": "a"}


def test_a_progress_token_is_given_in_either_era() -> None:
    assert speaker(LATEST_LEGACY_VERSION).build_params(None, progress_token=7) == {
        "_meta": {"progressToken": 7}
    }
    assert speaker().build_params({"a": 1}, progress_token=0) == {
        "a": 1,
        "_meta": {**STAMP, "progressToken": 0},
    }


def test_the_log_level_is_told_in_the_modern_era() -> None:
    assert speaker().build_params(None, log_level="info") == {"_meta": {**STAMP, LOG_LEVEL_KEY: "info"}}


@pytest.mark.parametrize("version", [LATEST_LEGACY_VERSION, LATEST_MODERN_VERSION])
def test_keys_of_the_caller_go_along(version: str) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}
    stamp = STAMP if version == LATEST_MODERN_VERSION else {}
    assert speaker(version).build_params(None, meta=trace) == {"_meta": {**stamp, **trace}}
    assert speaker(version).build_params({"_meta": trace}) == {"_meta": {**stamp, **trace}}
    both = speaker(version).build_params({"_meta": {"a": 1, "b": 1}, "c": 3}, meta={"b": 2}, progress_token=4)
    assert both == {"c": 3, "_meta": {**stamp, "a": 1, "b": 2, "progressToken": 4}}


@pytest.mark.parametrize("key", RESERVED_META_KEYS)
@pytest.mark.parametrize("version", [LATEST_LEGACY_VERSION, LATEST_MODERN_VERSION])
def test_a_caller_cannot_override_reserved_keys(version: str, key: str) -> None:
    # A foreign version would change the era of the request; a foreign token may be the id of another one.
    for stamped_params in (
        speaker(version).build_params({"a": 1}, meta={key: "evil", "b": 2}),
        speaker(version).build_params({"a": 1, "_meta": {key: "evil", "b": 2}}),
    ):
        assert stamped_params == {
            "a": 1,
            "_meta": {"b": 2, **(STAMP if version == LATEST_MODERN_VERSION else {})},
        }
    params = speaker().build_params(
        None, progress_token=3, log_level="info", meta=dict.fromkeys(RESERVED_META_KEYS, "evil")
    )
    assert params == {"_meta": {**STAMP, "progressToken": 3, LOG_LEVEL_KEY: "info"}}


def test_a_legacy_request_with_nothing_but_reserved_keys_has_no_meta() -> None:
    assert speaker(LATEST_LEGACY_VERSION).build_params({"a": 1, "_meta": {"progressToken": 5}}) == {"a": 1}
    assert speaker(LATEST_LEGACY_VERSION).build_params(None, meta={"progressToken": 5}) is None


@pytest.mark.parametrize("meta", [None, [], "text", 5])
def test_a_meta_that_is_not_an_object_is_dropped(meta: Any) -> None:
    assert speaker().build_params({"_meta": meta}) == {"_meta": STAMP}
    assert speaker(LATEST_LEGACY_VERSION).build_params({"a": 1, "_meta": meta}) == {"a": 1}


keys = st.sampled_from([*RESERVED_META_KEYS, "a", "b", "_meta"])
metas = st.dictionaries(keys, st.integers(), max_size=4)


@settings(deadline=None)
@given(
    version=st.sampled_from([*MODERN_VERSIONS, *LEGACY_VERSIONS]),
    params=st.none() | st.dictionaries(keys, st.integers() | metas, max_size=4),
    meta=st.none() | metas,
    token=st.none() | st.integers(),
    level=st.none() | st.just("debug"),
)
def test_the_callers_meta_is_never_altered_and_never_lost(
    version: str, params: Any, meta: Any, token: int | None, level: str | None
) -> None:
    before = copy.deepcopy((params, meta))
    stamped_params = speaker(version).build_params(params, progress_token=token, log_level=level, meta=meta)
    assert (params, meta) == before
    plain = {key: value for key, value in (params or {}).items() if key != "_meta"}
    assert {key: value for key, value in (stamped_params or {}).items() if key != "_meta"} == plain
    client_meta: dict[str, Any] = (stamped_params or {}).get("_meta", {})
    for key, value in (meta or {}).items():
        assert key in RESERVED_META_KEYS or client_meta[key] == value
    assert client_meta.get("progressToken") == token
    assert client_meta.get(PROTOCOL_VERSION_KEY) == (version if version in MODERN_VERSIONS else None)
    assert client_meta.get(LOG_LEVEL_KEY) == (level if version in MODERN_VERSIONS else None)


def test_requests_do_not_share_mutable_objects() -> None:
    one = speaker()
    first, second = one.build_params({"a": 1}), one.build_params({"a": 1})
    assert first is not None
    first["_meta"]["x"] = 1
    first["b"] = 2
    assert second == {"a": 1, "_meta": STAMP}
    assert one.build_params({"a": 1}) == second


def test_a_speaker_can_change_its_revision() -> None:
    one = speaker()
    one.set_version(LATEST_LEGACY_VERSION)
    assert (one.version, one.era, one.build_params(None)) == (LATEST_LEGACY_VERSION, LEGACY, None)
    one.set_version(LATEST_MODERN_VERSION)
    assert (one.version, one.era, one.build_params(None)) == (
        LATEST_MODERN_VERSION,
        MODERN,
        {"_meta": STAMP},
    )


@pytest.mark.parametrize(
    ("version", "offered_version"),
    [*((version, version) for version in LEGACY_VERSIONS), (LATEST_MODERN_VERSION, LATEST_LEGACY_VERSION)],
)
def test_initialize_offers_a_legacy_revision_and_no_extensions(version: str, offered_version: str) -> None:
    assert speaker(version).initialize_params() == {
        "protocolVersion": offered_version,
        "capabilities": {"roots": {}},
        "clientInfo": INFO,
    }
    assert ABILITIES["extensions"]


# What a probe tells.


def build_discover_result(
    versions: Any = (LATEST_MODERN_VERSION,), capabilities: Any = None, **more: Any
) -> dict[str, Any]:
    return {
        "supportedVersions": list(versions) if isinstance(versions, tuple) else versions,
        "capabilities": {"tools": {}} if capabilities is None else capabilities,
        "resultType": "complete",
        **more,
    }


def test_a_modern_server_is_known_by_its_answer() -> None:
    result = build_discover_result(
        (LATEST_MODERN_VERSION, *LEGACY_VERSIONS),
        instructions="be nice",
        _meta={SERVER_INFO_KEY: {"name": "s"}},
    )
    assert interpret_probe(result, None) == HandshakeResult(
        LATEST_MODERN_VERSION, {"name": "s"}, {"tools": {}}, "be nice"
    )


@pytest.mark.parametrize(
    ("more", "info"),
    [
        ({}, {}),
        ({"_meta": {}}, {}),
        ({"_meta": None}, {}),
        ({"_meta": []}, {}),
        ({"_meta": {SERVER_INFO_KEY: "text"}}, {}),
        ({"serverInfo": {"name": "s"}}, {"name": "s"}),
        ({"serverInfo": {"name": "old"}, "_meta": {SERVER_INFO_KEY: {"name": "new"}}}, {"name": "new"}),
    ],
)
def test_a_modern_server_may_omit_its_name(more: dict[str, Any], info: Any) -> None:
    assert interpret_probe(build_discover_result(**more), None) == HandshakeResult(
        LATEST_MODERN_VERSION, info, {"tools": {}}
    )


@pytest.mark.parametrize("instructions", [None, 5, [], {}])
def test_instructions_that_are_not_text_are_dropped(instructions: Any) -> None:
    facts = interpret_probe(build_discover_result(instructions=instructions), None)
    assert isinstance(facts, HandshakeResult)
    assert facts.instructions is None


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        ({}, InconclusiveProbe.OLDER),
        ({"ok": True}, InconclusiveProbe.OLDER),
        ({"supportedVersions": [LATEST_MODERN_VERSION]}, InconclusiveProbe.OLDER),
        (build_discover_result(LATEST_MODERN_VERSION), InconclusiveProbe.OLDER),
        (build_discover_result(None), InconclusiveProbe.OLDER),
        (build_discover_result({LATEST_MODERN_VERSION: 1}), InconclusiveProbe.OLDER),
        (build_discover_result(capabilities=[]), InconclusiveProbe.OLDER),
        (build_discover_result(("2025-11-25",)), InconclusiveProbe.OLDER),
        (build_discover_result(("2099-01-01", "2024-11-05")), InconclusiveProbe.OLDER),
        (build_discover_result(("2099-01-01",)), InconclusiveProbe.INCOMPATIBLE),
        (build_discover_result(()), InconclusiveProbe.INCOMPATIBLE),
        (build_discover_result((5, None)), InconclusiveProbe.INCOMPATIBLE),
    ],
)
def test_another_answer_to_the_probe_is_judged(result: dict[str, Any], verdict: InconclusiveProbe) -> None:
    assert interpret_probe(result, None) is verdict


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (None, InconclusiveProbe.OLDER),
        (RpcFailure(METHOD_NOT_FOUND, "Method not found"), InconclusiveProbe.OLDER),
        (RpcFailure(INVALID_PARAMS, "Invalid params"), InconclusiveProbe.OLDER),
        (RpcFailure(-32000, "Server not initialized"), InconclusiveProbe.OLDER),
        (RpcFailure(-32001, "Session not found"), InconclusiveProbe.OLDER),
        (RpcFailure(-32002, "not initialized"), InconclusiveProbe.OLDER),
        (RpcFailure(0, "the result is not an object"), InconclusiveProbe.OLDER),
        (RpcFailure(HEADER_MISMATCH, "Header mismatch"), InconclusiveProbe.INCOMPATIBLE),
        (RpcFailure(MISSING_CAPABILITY, "needs sampling"), InconclusiveProbe.INCOMPATIBLE),
        (
            RpcFailure(UNSUPPORTED_VERSION, "no", {"supported": [LATEST_MODERN_VERSION]}),
            LATEST_MODERN_VERSION,
        ),
        (
            RpcFailure(UNSUPPORTED_VERSION, "no", {"supported": ["2099-01-01", LATEST_MODERN_VERSION]}),
            LATEST_MODERN_VERSION,
        ),
        (RpcFailure(UNSUPPORTED_VERSION, "no", {"supported": ["2025-11-25"]}), InconclusiveProbe.OLDER),
        (
            RpcFailure(UNSUPPORTED_VERSION, "no", {"supported": ["2099-01-01"]}),
            InconclusiveProbe.INCOMPATIBLE,
        ),
        (RpcFailure(UNSUPPORTED_VERSION, "no", {"supported": []}), InconclusiveProbe.INCOMPATIBLE),
        (RpcFailure(UNSUPPORTED_VERSION, "no", {"supported": "2026-07-28"}), InconclusiveProbe.OLDER),
        (RpcFailure(UNSUPPORTED_VERSION, "no", {}), InconclusiveProbe.OLDER),
        (RpcFailure(UNSUPPORTED_VERSION, "no", [LATEST_MODERN_VERSION]), InconclusiveProbe.OLDER),
        (RpcFailure(UNSUPPORTED_VERSION, "no"), InconclusiveProbe.OLDER),
    ],
)
def test_a_failed_probe_is_judged(failure: RpcFailure | None, outcome: InconclusiveProbe | str) -> None:
    assert interpret_probe(None, failure) == outcome


# What initialize tells.


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_the_facts_of_a_legacy_server_are_read(version: str) -> None:
    result = {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": "be nice",
    }
    expected = HandshakeResult(version, result["serverInfo"], result["capabilities"], "be nice")  # type: ignore[arg-type]
    assert parse_initialize_result(result) == expected


@pytest.mark.parametrize("more", [{}, {"capabilities": None, "serverInfo": [], "instructions": 5}])
def test_a_legacy_server_may_leave_out_or_garble_everything_but_its_version(more: dict[str, Any]) -> None:
    assert parse_initialize_result({"protocolVersion": LATEST_LEGACY_VERSION, **more}) == HandshakeResult(
        LATEST_LEGACY_VERSION
    )


@pytest.mark.parametrize("version", [None, 5, ["2025-11-25"], {}, True])
def test_an_answer_without_a_version_is_said_so(version: Any) -> None:
    assert "without a valid protocolVersion" in str(
        parse_initialize_result({"protocolVersion": version, "capabilities": {}})
    )
    assert "without a valid protocolVersion" in str(parse_initialize_result({}))


@pytest.mark.parametrize("version", ["2023-01-01", "", "DRAFT-2026-v1", "x" * 1000])
def test_a_version_that_we_do_not_speak_is_said_so_in_a_short_sentence(version: str) -> None:
    reason = parse_initialize_result({"protocolVersion": version, "capabilities": {}})
    assert isinstance(reason, str)
    assert version[:40] in reason
    assert len(reason) < 120
