from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolyard.config import parse_config
from toolyard.errors import Problem
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
    suggested = next(hint for hint in configuration.hints if hint.path.endswith("allowTool"))
    assert suggested.hint == "did you mean 'allowTools'?"


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


def test_an_address_under_the_name_of_another_client_is_told_what_to_be_called(problems: Problems) -> None:
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
