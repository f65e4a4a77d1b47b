from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolyard.config import parse_config
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import HttpSpec, ProtocolEra, StdioSpec, Timeouts, Trust

Problems = Callable[..., list[Problem]]


def one(entry: dict[str, Any]) -> Any:
    return parse_config({"mcpServers": {"a": entry}}).servers["a"]


def test_the_example_of_boochat_is_valid() -> None:
    configuration = parse_config(
        """{ "mcpServers": {
          "context7": { "type": "streamableHttp", "url": "https://mcp.context7.com/mcp",
                        "headers": { "X-API-Key": "optional-key" }, "enabled": true },
          "codecontext": { "type": "stdio", "command": "/usr/local/bin/codecontext", "args": ["--mcp"],
                           "env": { "WORKSPACE": "/opt" }, "enabled": false } } }"""
    )
    first, second = configuration.servers.values()
    assert first.transport == HttpSpec("https://mcp.context7.com/mcp", {"X-API-Key": "optional-key"})
    assert second.transport == StdioSpec("/usr/local/bin/codecontext", ("--mcp",), {"WORKSPACE": "/opt"})
    assert (first.enabled, second.enabled, second.disabled_reason) == (True, False, None)
    assert configuration.hints == ()


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"url": "http://a/"}, "http"),
        ({"command": "x"}, "stdio"),
        ({"type": "streamableHttp", "url": "http://a/"}, "http"),
        ({"type": "streamable-http", "url": "http://a/"}, "http"),
        ({"type": "http", "url": "http://a/"}, "http"),
        ({"type": "sse", "url": "http://a/"}, "sse"),
        ({"type": "stdio", "command": "x"}, "stdio"),
        ({"transport": "sse", "url": "http://a/"}, "sse"),
        ({"transport": {"type": "sse", "url": "http://a/"}}, "sse"),
    ],
)
def test_the_type_may_be_written_in_many_ways_or_left_out(entry: dict[str, Any], kind: str) -> None:
    assert one(entry).transport.type == kind


def test_trust_is_given_unless_it_is_taken_away() -> None:
    assert one({"command": "x"}).trust is Trust.TRUSTED
    assert one({"command": "x", "trust": "untrusted", "allowTools": ["a"]}).trust is Trust.UNTRUSTED


@pytest.mark.parametrize(
    ("keys", "enabled"),
    [
        ({}, True),
        ({"enabled": True}, True),
        ({"enabled": False}, False),
        ({"disabled": True}, False),
        ({"disabled": False}, True),
        ({"enabled": False, "disabled": True}, False),
    ],
)
def test_a_server_is_switched_off_by_enabled_or_disabled(keys: dict[str, bool], enabled: bool) -> None:
    assert one({"command": "x", **keys}).enabled is enabled


def test_enabled_and_disabled_must_not_contradict_each_other(problems: Problems) -> None:
    (problem,) = problems({"mcpServers": {"a": {"command": "x", "enabled": True, "disabled": True}}})
    assert (problem.path, problem.message) == ("mcpServers.a.disabled", "contradicts 'enabled'")


def test_every_other_key_of_the_strict_dialect_counts_too() -> None:
    server = one(
        {
            "url": "http://a/",
            "label": "A",
            "shared": True,
            "protocol": "modern",
            "timeouts": {"connect": 1},
            "allowTools": ["x"],
            "authProviderId": "corp",
            "oauth": {"clientId": "me"},
        }
    )
    assert (server.label, server.shared, server.protocol) == ("A", True, ProtocolEra.MODERN)
    assert (server.timeouts, server.allow_tools) == (Timeouts(connect=1), ("x",))
    assert (server.transport.auth_provider_id, server.oauth.client_id) == ("corp", "me")


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"allowTools": []}, "mcpServers.a.allowTools"),
        ({"timeouts": {"call": -1}}, "mcpServers.a.timeouts.call"),
        ({"protocol": "x"}, "mcpServers.a.protocol"),
        ({"trust": "maybe"}, "mcpServers.a.trust"),
        ({"oauth": {"callbackPort": "x"}}, "mcpServers.a.oauth.callbackPort"),
        ({"args": [1]}, "mcpServers.a.args[0]"),
    ],
)
def test_and_is_validated_the_same_way(problems: Problems, keys: dict[str, Any], path: str) -> None:
    (problem,) = problems({"mcpServers": {"a": {"command": "x", **keys}}})
    assert problem.path == path


def test_keys_that_neither_dialect_knows_are_ignored_and_listed_as_hints() -> None:
    configuration = parse_config(
        """{
          "mcpServers": {
            "a": {
              "url": "http://a/",
              "autoApprove": ["x"],
              "allowTool": ["x"],
              "oauth": {"clientId": "me", "authServerMetadataUrl": "https://b/"}
            }
          },
          "inputs": []
        }"""
    )
    assert configuration.servers["a"].enabled
    assert {(hint.path, hint.line) for hint in configuration.hints} == {
        ("mcpServers.a.autoApprove", 5),
        ("mcpServers.a.allowTool", 6),
        ("mcpServers.a.oauth.authServerMetadataUrl", 7),
        ("inputs", 10),
    }
    suggestion = next(hint for hint in configuration.hints if hint.path.endswith("allowTool"))
    assert suggestion.hint == "did you mean 'allowTools'?"


def test_keys_of_the_transport_that_was_not_chosen_are_hints() -> None:
    configuration = parse_config({"mcpServers": {"a": {"type": "http", "url": "http://a/", "command": "x"}}})
    assert [hint.path for hint in configuration.hints] == ["mcpServers.a.command"]


def test_scopes_may_be_one_string_as_claude_code_writes_them() -> None:
    assert one({"url": "http://a/", "oauth": {"scopes": "read write"}}).oauth.scopes == ("read", "write")


def test_sign_in_keys_on_a_child_process_are_remarked_on() -> None:
    configuration = parse_config({"mcpServers": {"a": {"command": "x", "oauth": {"clientId": "me"}}}})
    assert [hint.path for hint in configuration.hints] == ["mcpServers.a.oauth"]


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ({}, "mcpServers.a", "expected 'url' or 'command', found neither"),
        ({"url": "http://a/", "command": "x"}, "mcpServers.a", "both 'url' and 'command'"),
        ({"type": "http"}, "mcpServers.a.url", "missing"),
        ({"type": "stdio"}, "mcpServers.a.command", "missing"),
        ({"type": "websocket", "url": "ws://a/"}, "mcpServers.a.type", 'found "websocket"'),
        ({"type": 5, "url": "http://a/"}, "mcpServers.a.type", "found 5"),
        (
            {"command": ["npx", "-y"]},
            "mcpServers.a.command",
            "expected a non-empty string, found a list",
        ),
    ],
)
def test_an_entry_that_cannot_be_reached_is_an_error(
    problems: Problems, entry: dict[str, Any], path: str, words: str
) -> None:
    (problem,) = problems({"mcpServers": {"a": entry}})
    assert problem.path == path
    assert words in problem.message


def test_an_entry_of_opencode_is_told_how_to_come_over(problems: Problems) -> None:
    (problem,) = problems({"mcpServers": {"a": {"type": "local", "command": "x"}}})
    assert "toolyard import" in (problem.hint or "")


def test_an_address_under_another_clients_key_causes_a_hint_with_the_right_key(problems: Problems) -> None:
    (problem,) = problems({"mcpServers": {"a": {"serverUrl": "https://h/mcp"}}})
    assert problem.hint == "rename 'serverUrl' to 'url', or convert the file with `toolyard import`"


def test_a_null_is_as_if_the_key_were_left_out() -> None:
    server = one({"command": "x", "args": None, "env": None, "cwd": None, "url": None, "enabled": None})
    assert server.transport == StdioSpec("x")
    assert server.enabled


def test_a_file_may_speak_both_dialects() -> None:
    configuration = parse_config(
        {
            "servers": {"a": {"trust": "trusted", "transport": {"type": "http", "url": "http://a/"}}},
            "mcpServers": {"b": {"command": "x", "unheardOf": 1}},
            "bundles": {"c": {"serverId": "b", "mode": "direct"}},
        }
    )
    assert list(configuration.servers) == ["a", "b"]
    assert [hint.path for hint in configuration.hints] == ["mcpServers.b.unheardOf"]


def test_but_not_about_the_same_server(problems: Problems) -> None:
    (problem,) = problems(
        {
            "servers": {"a": {"trust": "trusted", "transport": {"type": "http", "url": "http://a/"}}},
            "mcpServers": {"a": {"command": "x"}},
        }
    )
    assert problem.path == "mcpServers.a"


BROKEN_ENTRIES: list[Any] = [
    {"type": "carrier-pigeon", "url": "http://a/"},
    {"command": 5},
    {"command": "x", "env": {"K": ["v"]}},
    {"command": "x", "timeouts": {"call": -1}},
    {"command": "x", "trust": "untrusted"},
    {"url": "nonsense"},
    {"url": "${ADDRESS}"},
    {"url": "http://a/", "headers": {"X-Key": "a\nb"}},
    "a string",
    None,
]


@pytest.mark.parametrize("entry", BROKEN_ENTRIES, ids=str)
def test_an_invalid_entry_fails_alone(entry: Any) -> None:
    source = {"mcpServers": {"good": {"command": "x"}, "bad": entry, "other": {"url": "http://b/"}}}
    servers = parse_config(source, env={"ADDRESS": "ftp://host"}).servers
    assert list(servers) == ["good", "bad", "other"]
    assert servers["good"].enabled
    assert servers["other"].enabled
    bad = servers["bad"]
    assert not bad.enabled
    assert bad.problems
    assert all(problem.path.startswith("mcpServers.bad") for problem in bad.problems)
    assert (bad.disabled_reason or "").startswith("its entry is invalid: mcpServers.bad")
    assert bad.problem_hint


def test_an_invalid_entry_has_its_line_and_a_duplicate_key_belongs_to_its_entry() -> None:
    configuration = parse_config(
        """{"mcpServers": {
          "a": {"command": "x",
                "command": "y"},
          "b": {"type": "htp",
                "url": "http://b/"},
          "c": {"command": "x"}
        }}"""
    )
    lines = {server.id: [each.line for each in server.problems] for server in configuration.servers.values()}
    assert lines == {"a": [3], "b": [4], "c": []}
    assert configuration.servers["b"].transport.type == "http"
    assert configuration.hints == ()


def test_problems_of_an_entry_that_is_turned_off_are_hints() -> None:
    configuration = parse_config({"mcpServers": {"a": {"command": 5, "disabled": True}}})
    assert (configuration.servers["a"].problems, configuration.servers["a"].disabled_reason) == ((), None)
    assert [hint.path for hint in configuration.hints] == ["mcpServers.a.command"]


def test_an_invalid_entry_of_the_strict_dialect_makes_the_configuration_invalid(problems: Problems) -> None:
    source = {"servers": {"a": {"trust": "trusted"}}, "mcpServers": {"b": {"command": 5}}}
    assert [problem.path for problem in problems(source)] == ["servers.a.transport", "mcpServers.b.command"]
    with pytest.raises(ConfigError):
        parse_config(source)


def test_a_name_that_is_not_a_valid_id_is_mapped_with_a_hint() -> None:
    configuration = parse_config(
        {
            "mcpServers": {"@21st-dev/magic": {"command": "x"}, "github.com/x/y": {"command": "y"}},
            "bundles": {"b": {"serverId": "@21st-dev/magic", "mode": "meta"}},
        }
    )
    assert list(configuration.servers) == ["21st-dev-magic", "github.com-x-y"]
    assert configuration.bundles["b"].server_id == "21st-dev-magic"
    assert [hint.message for hint in configuration.hints] == [
        "an id must not contain '/'; used here as '21st-dev-magic'",
        "an id must not contain '/'; used here as 'github.com-x-y'",
    ]


def test_names_that_map_to_one_id_get_a_hash_in_any_order() -> None:
    entries = {
        "a/b": {"command": "1"},
        "@a/b": {"command": "2"},
        "c-d": {"command": "3"},
        "c/d": {"url": "u"},
    }
    servers = parse_config({"mcpServers": entries}).servers
    back = parse_config({"mcpServers": dict(reversed(entries.items()))}).servers
    assert {key: value.transport for key, value in servers.items()} == {
        key: value.transport for key, value in back.items()
    }
    assert sum(key.startswith("a-b-") for key in servers) == 2
    assert "c-d" in servers
    long = {f"/{'x' * 70}{end}": {"command": end} for end in "12"}
    assert [len(key) for key in parse_config({"mcpServers": long}).servers] == [64, 64]


def test_numbers_and_booleans_in_env_become_text() -> None:
    server = one({"command": "x", "env": {"PORT": 8080, "RATE": 0.5, "ON": True, "OFF": False, "NONE": None}})
    assert server.transport.env == {"PORT": "8080", "RATE": "0.5", "ON": "true", "OFF": "false"}
