from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolyard.config import parse_config
from toolyard.errors import Problem
from toolyard.types.server import (
    HttpSpec,
    OAuthSpec,
    ProtocolEra,
    Provenance,
    RestartPolicy,
    Server,
    StdioSpec,
    Timeouts,
    Trust,
)

Problems = Callable[..., list[Problem]]

EVERYTHING = """{
  "$schema": "https://example.com/schema.json",
  "servers": {
    "repo": {
      "trust": "untrusted",
      "enabled": true, "label": "Repo", "description": "The repository", "shared": true,
      "transport": {"type": "sse", "url": "http://localhost:4010/mcp", "headers": {"X-Key": "abc"},
                    "authProviderId": "corp"},
      "protocol": "legacy",
      "timeouts": {"connect": 5, "silence": 6.5, "call": 7},
      "stopWhenIdle": 300,
      "restart": "on-failure",
      "cache": {"ttl": 0},
      "allowTools": ["read*"], "denyTools": ["readSecret"],
      "privateAddresses": true,
      "oauth": {"clientId": "me", "clientSecret": "hush", "scopes": ["a", "b"], "resource": "https://r",
                "callbackPort": 8080, "legacyDiscovery": true, "grant": "client_credentials",
                "privateKeyFile": "key.pem"},
    },
    "files": {
      "trust": "trusted",
      "transport": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "cwd": "/srv", "env": {"A": "b"}},
      "stopWhenIdle": null, "privateAddresses": null,
    },
  },
  "bundles": {
    "repoRead": {"serverId": "repo", "mode": "meta", "label": "Read", "allowTools": ["readFile"],
                 "denyTools": ["x"]},
  },
}"""


def test_every_key_of_the_dialect_arrives() -> None:
    configuration = parse_config(EVERYTHING)
    assert dict(configuration.servers) == {
        "repo": Server(
            id="repo",
            transport=HttpSpec("http://localhost:4010/mcp", {"X-Key": "abc"}, "corp", "sse"),
            trust=Trust.UNTRUSTED,
            enabled=True,
            label="Repo",
            description="The repository",
            shared=True,
            protocol=ProtocolEra.LEGACY,
            timeouts=Timeouts(5, 6.5, 7),
            stop_when_idle=300,
            restart=RestartPolicy.ON_FAILURE,
            cache_ttl=0,
            allow_tools=("read*",),
            deny_tools=("readSecret",),
            private_addresses=True,
            oauth=OAuthSpec(
                "me", "hush", ("a", "b"), "https://r", 8080, True, "client_credentials", "key.pem"
            ),
            provenance=Provenance("code", None, 4),
        ),
        "files": Server(
            id="files",
            transport=StdioSpec("npx", ("-y", "x"), {"A": "b"}, "/srv"),
            provenance=Provenance("code", None, 20),
        ),
    }
    (bundle,) = configuration.bundles.values()
    assert (bundle.id, bundle.server_id, bundle.mode, bundle.label) == ("repoRead", "repo", "meta", "Read")
    assert (bundle.allow_tools, bundle.deny_tools) == (("readFile",), ("x",))
    assert configuration.hints == ()


def test_text_bytes_and_mapping_mean_the_same() -> None:
    text = json.dumps(
        {"servers": {"a": {"trust": "trusted", "transport": {"type": "http", "url": "http://a/"}}}}
    )
    read = [parse_config(source) for source in (text, text.encode(), json.loads(text))]
    assert {c.servers["a"].transport.type for c in read} == {"http"}
    assert all(c.servers["a"].trust is Trust.TRUSTED for c in read)


def test_the_examples_of_the_specification_are_valid() -> None:
    configuration = parse_config(
        """{
          "servers": {
            "repo": {"trust": "trusted", "transport": {"type": "http", "url": "http://localhost:4010/mcp"}}
          },
          "bundles": {
            "repoRead": {"serverId": "repo", "mode": "direct", "allowTools": ["readFile", "search"]}
          }
        }"""
    )
    assert configuration.bundles["repoRead"].mode == "direct"


def test_an_empty_object_is_a_configuration_without_servers() -> None:
    assert dict(parse_config("{}").servers) == {}


def test_a_configuration_cannot_be_changed(http: Callable[..., Any]) -> None:
    configuration = parse_config(http())
    with pytest.raises(TypeError):
        configuration.servers["other"] = configuration.servers["repo"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        configuration.servers["repo"].enabled = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        configuration.servers["repo"].transport.headers["X"] = "y"  # type: ignore[index,union-attr]


@pytest.mark.parametrize(
    ("keys", "path", "message"),
    [
        ({"trust": None}, "servers.repo.trust", 'expected "trusted" or "untrusted", found null'),
        ({"trust": "trustd"}, "servers.repo.trust", 'expected "trusted" or "untrusted", found "trustd"'),
        ({"trust": True}, "servers.repo.trust", 'expected "trusted" or "untrusted", found true'),
        ({"enabled": "yes"}, "servers.repo.enabled", "expected true or false, found a string"),
        ({"enabled": 1}, "servers.repo.enabled", "expected true or false, found a number"),
        ({"label": 5}, "servers.repo.label", "expected a string, found a number"),
        ({"description": []}, "servers.repo.description", "expected a string, found an empty list"),
        ({"shared": "no"}, "servers.repo.shared", "expected true or false, found a string"),
        (
            {"protocol": "old"},
            "servers.repo.protocol",
            'expected "auto" or "modern" or "legacy", found "old"',
        ),
        ({"restart": "always"}, "servers.repo.restart", 'expected "never" or "on-failure", found "always"'),
        ({"timeouts": 5}, "servers.repo.timeouts", "expected an object, found a number"),
        (
            {"timeouts": {"call": 0}},
            "servers.repo.timeouts.call",
            "expected a number of seconds above 0, found 0",
        ),
        (
            {"timeouts": {"connect": -1}},
            "servers.repo.timeouts.connect",
            "a number of seconds above 0, found -1",
        ),
        ({"timeouts": {"silence": "60"}}, "servers.repo.timeouts.silence", 'above 0, found "60"'),
        ({"timeouts": {"silence": True}}, "servers.repo.timeouts.silence", "above 0, found true"),
        ({"timeouts": {"call": float("inf")}}, "servers.repo.timeouts.call", "above 0, found inf"),
        ({"timeouts": {"call": 10**400}}, "servers.repo.timeouts.call", "above 0, found 1000"),
        ({"stopWhenIdle": 0}, "servers.repo.stopWhenIdle", "above 0, found 0"),
        ({"cache": {"ttl": -1}}, "servers.repo.cache.ttl", "0 or more, found -1"),
        ({"allowTools": []}, "servers.repo.allowTools", "at least one tool, found an empty list"),
        ({"allowTools": "read"}, "servers.repo.allowTools", "expected a list of strings, found a string"),
        ({"allowTools": [1]}, "servers.repo.allowTools[0]", "expected a string, found a number"),
        ({"allowTools": ["a", ""]}, "servers.repo.allowTools[1]", "found an empty string"),
        ({"denyTools": {}}, "servers.repo.denyTools", "expected a list of strings, found an object"),
        ({"privateAddresses": "all"}, "servers.repo.privateAddresses", "expected true or false"),
        ({"transport": None}, "servers.repo.transport", "expected an object, found null"),
        ({"transport": "http"}, "servers.repo.transport", "expected an object, found a string"),
        ({"transport": {}}, "servers.repo.transport.type", 'missing; expected "http" or "sse" or "stdio"'),
        (
            {"transport": {"type": "http"}},
            "servers.repo.transport.url",
            "missing; expected a non-empty",
        ),
        (
            {"transport": {"type": "stdio"}},
            "servers.repo.transport.command",
            "missing; expected a non-empty",
        ),
        (
            {"transport": {"type": "stdio", "command": ""}},
            "servers.repo.transport.command",
            "found an empty string",
        ),
        (
            {"transport": {"type": "stdio", "command": "x", "args": "y"}},
            "servers.repo.transport.args",
            "expected a list of strings, found a string",
        ),
        (
            {"transport": {"type": "stdio", "command": "x", "env": {"PORT": 3000}}},
            "servers.repo.transport.env.PORT",
            "expected a string, found a number",
        ),
        (
            {"transport": {"type": "stdio", "command": "x", "env": ["A=b"]}},
            "servers.repo.transport.env",
            "expected an object of strings, found a list",
        ),
        (
            {"oauth": {"callbackPort": 70000}},
            "servers.repo.oauth.callbackPort",
            "from 0 to 65535, found 70000",
        ),
        (
            {"oauth": {"scopes": "a b"}},
            "servers.repo.oauth.scopes",
            "expected a list of strings, found a string",
        ),
        ({"oauth": {"grant": "password"}}, "servers.repo.oauth.grant", 'found "password"'),
        (
            {"oauth": {"grant": "client_credentials"}},
            "servers.repo.oauth",
            "needs 'clientSecret' or 'privateKeyFile'",
        ),
        ({"oauth": {"clientSecret": "x"}}, "servers.repo.oauth", "expected 'clientId'"),
    ],
)
def test_a_wrong_value_is_reported_with_the_found_and_expected_type(
    problems: Problems, http: Callable[..., Any], keys: dict[str, object], path: str, message: str
) -> None:
    found_problems = problems(http(**keys))
    assert [problem.path for problem in found_problems] == [path]
    assert message in found_problems[0].message


def test_trust_is_required(problems: Problems) -> None:
    (problem,) = problems({"servers": {"repo": {"transport": {"type": "http", "url": "http://a/"}}}})
    assert problem.path == "servers.repo.trust"
    assert 'missing; expected "trusted" or "untrusted"' in problem.message


@pytest.mark.parametrize(
    ("source", "path", "hint"),
    [
        ('{"server": {}}', "server", "did you mean 'servers'?"),
        ('{"servers": {}, "bundels": {}}', "bundels", "did you mean 'bundles'?"),
        ('{"servers": {}, "zzz": {}}', "zzz", "known: $schema, servers, mcpServers, bundles"),
    ],
)
def test_an_unknown_key_at_the_top_is_an_error_with_a_suggestion(
    problems: Problems, source: str, path: str, hint: str
) -> None:
    (problem,) = problems(source)
    assert (problem.path, problem.message, problem.hint) == (path, "unknown key", hint)


@pytest.mark.parametrize(
    ("source", "path", "client"),
    [
        ('{"mcp": {"a": {"type": "local", "command": ["x"]}}}', "mcp", "opencode"),
        ('{"context_servers": {}}', "context_servers", "Zed"),
        ('{"servers": {}, "inputs": []}', "inputs", "VS Code"),
    ],
)
def test_a_key_that_another_client_writes_is_an_error_that_names_the_way_in(
    problems: Problems, source: str, path: str, client: str
) -> None:
    (problem,) = problems(source)
    assert (problem.path, problem.message) == (path, f"unknown key, used by {client}")
    assert problem.hint is not None
    assert "`toolyard import`" in problem.hint


@pytest.mark.parametrize(
    ("keys", "path", "hint"),
    [
        ({"allow_tools": ["x"]}, "servers.repo.allow_tools", "did you mean 'allowTools'?"),
        ({"AllowTool": ["x"]}, "servers.repo.AllowTool", "did you mean 'allowTools'?"),
        ({"disabled": True}, "servers.repo.disabled", "did you mean 'enabled'?"),
        ({"timeouts": {"connects": 1}}, "servers.repo.timeouts.connects", "did you mean 'connect'?"),
        ({"cache": {"tll": 1}}, "servers.repo.cache.tll", "did you mean 'ttl'?"),
        ({"oauth": {"client_id": "x"}}, "servers.repo.oauth.client_id", "did you mean 'clientId'?"),
    ],
)
def test_an_unknown_key_in_an_entry_is_an_error_with_a_suggestion(
    problems: Problems, http: Callable[..., Any], keys: dict[str, object], path: str, hint: str
) -> None:
    (problem,) = problems(http(**keys))
    assert (problem.path, problem.message, problem.hint) == (path, "unknown key", hint)


def test_a_key_of_another_transport_is_unknown(problems: Problems) -> None:
    transport = {"type": "stdio", "command": "x", "url": "http://a/"}
    (problem,) = problems({"servers": {"repo": {"trust": "trusted", "transport": transport}}})
    assert problem.path == "servers.repo.transport.url"


def test_a_flat_entry_under_servers_is_told_where_it_belongs(problems: Problems) -> None:
    found_problems = problems({"servers": {"repo": {"trust": "trusted", "url": "http://a/"}}})
    assert any(problem.hint and "'mcpServers'" in problem.hint for problem in found_problems)


@pytest.mark.parametrize("source", ["[]", '"x"', "null", "5"])
def test_the_top_must_be_an_object(problems: Problems, source: str) -> None:
    (problem,) = problems(source)
    assert "expected an object at the top level" in problem.message


@pytest.mark.parametrize("key", ["servers", "mcpServers", "bundles"])
@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_a_table_must_be_an_object(problems: Problems, key: str, value: object) -> None:
    (problem,) = problems({key: value})
    assert problem.path == key
    assert "expected an object of entries by id" in problem.message


@pytest.mark.parametrize("key", ["servers", "mcpServers", "bundles"])
def test_an_entry_must_be_an_object(problems: Problems, key: str) -> None:
    (problem,) = problems({key: {"repo": "x"}})
    assert (problem.path, problem.message) == (f"{key}.repo", "expected an object, found a string")


def test_a_duplicate_key_is_an_error_with_its_line(problems: Problems) -> None:
    entry = '{"trust": "trusted", "transport": {"type": "http", "url": "http://a/"}}'
    (problem,) = problems(f'{{"servers": {{\n"a": {entry},\n"a": {entry}\n}}}}')
    assert (problem.path, problem.line) == ("servers.a", 3)


def test_all_problems_are_told_at_once_each_with_its_line(problems: Problems) -> None:
    found_problems = problems(
        """{
          "servers": {
            "one": {"trust": "no", "transport": {"type": "http", "url": "ftp://a/"}},
            "two": {
              "trust": "trusted",
              "transport": {"type": "stdio"},
              "extra": 1
            },
            "three": 3
          },
          "bundles": {
            "b": {"serverId": "four", "mode": "direct"},
            "c": {"serverId": "one"}
          },
          "more": 1
        }"""
    )
    assert sorted((problem.line, problem.path) for problem in found_problems) == [
        (3, "servers.one.transport.url"),
        (3, "servers.one.trust"),
        (6, "servers.two.transport.command"),
        (7, "servers.two.extra"),
        (9, "servers.three"),
        (12, "bundles.b.serverId"),
        (13, "bundles.c.mode"),
        (15, "more"),
    ]


@pytest.mark.parametrize(
    "server_id", ["a", "my server", "GitHub", "🦊", "ü-ñ", "a.b:c", "x" * 64, "server@home"]
)
def test_an_id_may_be_almost_anything(http: Callable[..., Any], server_id: str) -> None:
    assert parse_config(http(server_id)).servers[server_id].id == server_id


@pytest.mark.parametrize("table", ["servers", "bundles"])
@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("", "must not be empty"),
        ("a/b", "must not contain '/'"),
        ("@me", "must not begin with '@'"),
        ("x" * 65, "at most 64 characters"),
        ("a\nb", "control characters"),
        ("a\x1b[2J", "control characters"),
    ],
)
def test_an_id_that_would_confuse_is_refused(
    problems: Problems, http: Callable[..., Any], table: str, identifier: str, words: str
) -> None:
    source = (
        http(identifier)
        if table == "servers"
        else {**http(), "bundles": {identifier: {"serverId": "repo", "mode": "meta"}}}
    )
    (problem,) = problems(source)
    assert words in problem.message


def test_values_beyond_json_are_refused_in_a_mapping(problems: Problems) -> None:
    (problem,) = problems({"servers": {"repo": {"label": object()}}})
    assert (problem.path, "a Python object" in problem.message) == ("servers.repo.label", True)
    (problem,) = problems({"servers": {1: {}}})
    assert "expected string keys" in problem.message


def test_a_mapping_that_holds_itself_is_refused(problems: Problems) -> None:
    loop: dict[str, object] = {}
    loop["servers"] = {"a": loop}
    (problem,) = problems(loop)
    assert "levels deep" in problem.message
