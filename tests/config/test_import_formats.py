from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolyard.config.importers.formats import ForeignFile, read_foreign_file
from toolyard.errors import ConfigError

Write = Callable[[Path, object], Path]


@pytest.fixture
def foreign(tmp_path: Path, write: Write) -> Callable[[str, object], ForeignFile]:
    return lambda name, content: read_foreign_file(write(tmp_path / name, content))


def entries(file: ForeignFile) -> dict[str, Any]:
    return {server.name: server.entry for server in file.servers}


def notes(file: ForeignFile) -> str:
    return "\n".join([*file.notes, *(note for server in file.servers for note in server.notes)])


Foreign = Callable[[str, object], ForeignFile]


def test_claude_desktop(foreign: Foreign) -> None:
    entry = {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "secret"}}
    file = foreign("claude_desktop_config.json", {"globalShortcut": "", "mcpServers": {"files": entry}})
    assert file.client == "Claude Desktop"
    assert entries(file) == {"files": entry}


def test_claude_code_in_a_project(foreign: Foreign) -> None:
    entry = {
        "type": "http",
        "url": "https://h/mcp",
        "headers": {"Authorization": "Bearer ${T:-x}"},
        "headersHelper": "/bin/x",
        "oauth": {
            "clientId": "me",
            "callbackPort": 7777,
            "scopes": "a b",
            "authServerMetadataUrl": "https://m",
        },
    }
    file = foreign(".mcp.json", {"mcpServers": {"h": entry}})
    assert file.client == "Claude Code"
    assert entries(file)["h"]["oauth"] == {"clientId": "me", "callbackPort": 7777, "scopes": "a b"}
    assert "'headersHelper' was dropped" in notes(file)
    assert "'oauth.authServerMetadataUrl' was dropped" in notes(file)


def test_claude_code_of_a_user_with_servers_of_projects(foreign: Foreign) -> None:
    file = foreign(
        ".claude.json",
        {
            "numStartups": 5,
            "mcpServers": {"mine": {"type": "stdio", "command": "x", "args": [], "env": {}}},
            "projects": {
                "/home/ada/one": {"allowedTools": [], "mcpServers": {"local": {"command": "./run"}}},
                "/home/ada/two": {"mcpServers": {"remote": {"type": "sse", "url": "https://h/sse"}}},
                "/home/ada/three": {"mcpServers": {}},
            },
        },
    )
    assert file.client == "Claude Code"
    assert entries(file) == {
        "mine": {"type": "stdio", "command": "x", "args": [], "env": {}},
        "local": {"command": "./run", "cwd": "/home/ada/one"},
        "remote": {"type": "sse", "url": "https://h/sse"},
    }
    assert "it belonged to the project /home/ada/two" in notes(file)


def test_opencode_in_its_first_version(foreign: Foreign) -> None:
    file = foreign(
        "opencode.jsonc",
        """{
          "$schema": "https://opencode.ai/config.json", // comments are usual there
          "mcp": {
            "everything": {
              "type": "local", "command": ["npx", "-y", "pkg"], "environment": {"K": "{env:KEY}"},
              "enabled": false, "timeout": 5000,
            },
            "remote": {
              "type": "remote", "url": "https://h/mcp", "headers": {"Authorization": "Bearer {env:TOKEN}"},
              "oauth": {"clientId": "me", "clientSecret": "{env:SECRET}", "scope": "a b"},
            },
            "plain": {"type": "remote", "url": "https://p/mcp", "oauth": false},
            "file": {"type": "remote", "url": "https://f/mcp", "headers": {"X": "{file:~/.key}"}},
          },
        }""",
    )
    assert file.client == "opencode"
    assert entries(file)["everything"] == {
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "pkg"],
        "env": {"K": "${KEY}"},
        "enabled": False,
        "timeouts": {"connect": 5.0},
    }
    assert entries(file)["remote"] == {
        "type": "http",
        "url": "https://h/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
        "oauth": {"clientId": "me", "clientSecret": "${SECRET}", "scopes": ["a", "b"]},
    }
    assert entries(file)["plain"] == {"type": "http", "url": "https://p/mcp"}
    assert "{file:...} cannot be read" in notes(file)


def test_opencode_in_its_second_version(foreign: Foreign) -> None:
    file = foreign(
        "opencode.json",
        {
            "mcp": {
                "timeout": 5000,
                "servers": {
                    "a": {"type": "local", "command": ["x"], "cwd": ".", "disabled": True},
                    "b": {
                        "type": "remote",
                        "url": "https://h",
                        "oauth": {"client_id": "me", "callback_port": 80},
                    },
                },
            }
        },
    )
    assert file.client == "opencode"
    assert entries(file) == {
        "a": {"type": "stdio", "command": "x", "cwd": ".", "disabled": True},
        "b": {"type": "http", "url": "https://h", "oauth": {"clientId": "me", "callbackPort": 80}},
    }


def test_vs_code_with_inputs_and_folders_of_the_editor(foreign: Foreign) -> None:
    file = foreign(
        ".vscode/mcp.json",
        {
            "inputs": [{"type": "promptString", "id": "github-token", "password": True}],
            "servers": {
                "github": {
                    "type": "http",
                    "url": "https://h/mcp",
                    "headers": {"Authorization": "Bearer ${input:github-token}"},
                },
                "local": {
                    "type": "stdio",
                    "command": "${userHome}/x",
                    "args": ["${workspaceFolder}/y"],
                    "env": {"PORT": 3000, "GONE": None, "V": "${env:V}"},
                    "envFile": "${workspaceFolder}/.env",
                    "dev": {"watch": "x"},
                },
            },
        },
    )
    assert file.client == "VS Code"
    assert entries(file)["github"]["headers"] == {"Authorization": "Bearer ${GITHUB_TOKEN}"}
    assert entries(file)["local"] == {
        "type": "stdio",
        "command": "${HOME}/x",
        "args": ["${workspaceFolder}/y"],
        "env": {"PORT": "3000", "V": "${env:V}"},
    }
    notes_text = notes(file)
    assert "'inputs' was dropped" in notes_text
    assert "the editor prompts for ${input:github-token}: set the variable GITHUB_TOKEN instead" in notes_text
    assert "${workspaceFolder}" in notes_text
    assert "'envFile' was dropped" in notes_text
    assert "'dev' was dropped" in notes_text


def test_vs_code_in_the_settings_of_a_user(foreign: Foreign) -> None:
    file = foreign("settings.json", {"mcp": {"servers": {"a": {"type": "stdio", "command": "x"}}}})
    assert (file.client, entries(file)) == ("VS Code", {"a": {"type": "stdio", "command": "x"}})


def test_cursor(foreign: Foreign) -> None:
    auth = {"CLIENT_ID": "me", "CLIENT_SECRET": "${env:S}", "scopes": ["a"]}
    file = foreign(".cursor/mcp.json", {"mcpServers": {"a": {"url": "https://h", "auth": auth}}})
    assert file.client == "Cursor"
    expected = {"url": "https://h", "oauth": {"clientId": "me", "clientSecret": "${env:S}", "scopes": ["a"]}}
    assert entries(file) == {"a": expected}


def test_windsurf(foreign: Foreign) -> None:
    raw = {"serverUrl": "https://h", "disabledTools": ["x"], "disabled": True}
    file = foreign("mcp_config.json", {"mcpServers": {"a": raw}})
    assert file.client == "Windsurf"
    assert entries(file) == {"a": {"url": "https://h", "denyTools": ["x"], "disabled": True}}


def test_shell_variables_stay_for_the_shell(foreign: Foreign) -> None:
    codex = foreign("config.toml", '[mcp_servers.a]\ncommand = "sh"\nargs = ["-c", "echo ${HOME} $${X}"]\n')
    assert entries(codex)["a"]["args"] == ["-c", "echo $${HOME} $$${X}"]
    local = {"type": "local", "command": ["sh", "-c", "echo ${HOME}"], "environment": {"KEY": "{env:KEY}"}}
    opencode = foreign("opencode.json", {"mcp": {"a": local}})
    assert entries(opencode)["a"]["args"] == ["-c", "echo $${HOME}"]
    assert entries(opencode)["a"]["env"] == {"KEY": "${KEY}"}


def test_codex(foreign: Foreign) -> None:
    file = foreign(
        "config.toml",
        """
model = "x"

[mcp_servers.local]
command = "npx"
args = ["-y", "pkg"]
env_vars = ["HOME_KEY", { name = "OTHER", source = "local" }]
startup_timeout_sec = 20
tool_timeout_sec = 120.5
enabled = false
enabled_tools = ["a"]
disabled_tools = ["b"]
supports_parallel_tool_calls = true

[mcp_servers.local.env]
KEY = "value"

[mcp_servers.remote]
url = "https://h/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Fixed" = "1" }
env_http_headers = { "X-Named" = "NAMED" }
startup_timeout_ms = 1500
scopes = ["s"]
oauth_resource = "https://r"
oauth = { client_id = "me" }

[mcp_servers.remote.tools.search]
approval_mode = "approve"
""",
    )
    assert file.client == "Codex"
    assert entries(file) == {
        "local": {
            "command": "npx",
            "args": ["-y", "pkg"],
            "enabled": False,
            "env": {"KEY": "value", "HOME_KEY": "${HOME_KEY:-}", "OTHER": "${OTHER:-}"},
            "timeouts": {"connect": 20, "silence": 120.5, "call": 120.5},
            "allowTools": ["a"],
            "denyTools": ["b"],
        },
        "remote": {
            "url": "https://h/mcp",
            "headers": {"X-Fixed": "1", "X-Named": "${NAMED}", "Authorization": "Bearer ${TOKEN}"},
            "timeouts": {"connect": 1.5},
            "oauth": {"clientId": "me", "scopes": ["s"], "resource": "https://r"},
        },
    }
    assert "'supports_parallel_tool_calls' was dropped" in notes(file)
    assert "'tools' was dropped" in notes(file)


def test_zed(foreign: Foreign) -> None:
    file = foreign(
        "settings.json",
        """{
          "theme": "x",
          "context_servers": {
            "old": {"source": "custom", "command": {"path": "x", "args": ["y"], "env": {"K": "v"}}},
            "new": {"command": "x", "args": ["y"], "env": {}, "enabled": true},
            "web": {"url": "https://h", "headers": {"X": "y"}},
          },
        }""",
    )
    assert file.client == "Zed"
    assert entries(file) == {
        "old": {"command": "x", "args": ["y"], "env": {"K": "v"}},
        "new": {"command": "x", "args": ["y"], "env": {}, "enabled": True},
        "web": {"url": "https://h", "headers": {"X": "y"}},
    }


def test_gemini_says_trust_and_means_something_else(foreign: Foreign) -> None:
    file = foreign("settings.json", {"mcpServers": {"a": {"httpUrl": "https://h", "trust": True}}})
    assert entries(file) == {"a": {"url": "https://h"}}
    assert "'trust' was dropped" in notes(file)


def test_gemini_says_which_of_its_servers_and_tools_are_allowed(foreign: Foreign) -> None:
    entry = {"command": "x", "includeTools": ["read"], "excludeTools": ["write"]}
    file = foreign("settings.json", {"mcp": {"allowed": ["a"]}, "mcpServers": {"a": entry}})
    assert entries(file) == {"a": {"command": "x", "allowTools": ["read"], "denyTools": ["write"]}}
    assert notes(file) == "'mcp' was dropped: permissions of that client do not apply here"


def test_invalid_entries_are_reported(foreign: Foreign) -> None:
    file = foreign("mcp.json", {"mcpServers": {"a": None, "b": "x", "c": {"command": "y"}}})
    assert entries(file) == {"a": {}, "b": {}, "c": {"command": "y"}}


def test_claude_code_with_all_that_was_ever_said(foreign: Foreign) -> None:
    document = {"projects": {"/shop": {"history": ["x" * 6_000_000]}}, "mcpServers": {"a": {"command": "y"}}}
    assert entries(foreign(".claude.json", document)) == {"a": {"command": "y"}}


def test_a_list_of_servers_is_told_and_not_passed_over(foreign: Foreign) -> None:
    with pytest.raises(ConfigError, match="mcpServers: expected an object of servers by name"):
        foreign("config.json", {"mcpServers": [{"name": "a", "command": "x"}]})


def test_of_two_servers_of_one_name_the_last_is_taken_and_that_is_told(foreign: Foreign) -> None:
    file = foreign("mcp.json", '{"mcpServers": {"a": {"command": "x"},\n"a": {"command": "y"}}}')
    assert entries(file) == {"a": {"command": "y"}}
    assert notes(file) == "mcpServers.a: duplicate key; the last one, on line 2, was used"


@pytest.mark.parametrize("name", ["config.yaml", "librechat.yml"])
def test_clients_that_write_yaml_are_not_known(foreign: Foreign, name: str) -> None:
    with pytest.raises(ConfigError, match="the format of a known client"):
        foreign(name, "mcpServers:\n  a:\n    url: http://localhost/\n")


@pytest.mark.parametrize("content", ["{}", "[]", '{"mcp": 5}', '{"theme": "x"}'])
def test_a_file_of_no_known_shape_is_refused(foreign: Foreign, content: str) -> None:
    with pytest.raises(ConfigError, match="the format of a known client"):
        foreign("x.json", content)


def test_a_file_of_our_own_dialect_is_told_so(foreign: Foreign) -> None:
    own = {"servers": {"a": {"trust": "trusted", "transport": {"type": "http", "url": "http://a/"}}}}
    with pytest.raises(ConfigError, match="Toolyard's format"):
        foreign("x.json", own)


@pytest.mark.parametrize(("name", "text"), [("x.json", "{oops"), ("config.toml", "a = ")])
def test_a_file_that_cannot_be_read_is_named(foreign: Foreign, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="not valid"):
        foreign(name, text)


def test_notes_hold_no_values(foreign: Foreign) -> None:
    raw = {
        "command": "x",
        "env": {"K": "sk-secret ${input:k}"},
        "apiKey": "sk-secret",
        "envFile": "sk-secret",
    }
    assert "sk-secret" not in notes(foreign("mcp.json", json.dumps({"mcpServers": {"a": raw}})))


@pytest.mark.parametrize(
    ("name", "raw", "notes_text"),
    [
        ("mcp.json", {"url": "https://a.example", "httpUrl": "https://b.example"}, "httpUrl"),
        ("mcp.json", {"command": "a", "env": {"LEVEL": None}}, "env.LEVEL"),
        (
            "mcp.json",
            {"url": "https://a.example", "auth": {"CLIENT_ID": "a", "audience": "b"}},
            "auth.audience",
        ),
        ("mcp.json", {"url": "https://a.example", "auth": "none"}, "auth"),
        ("mcp.json", {"url": "https://a.example", "auth": {"CLIENT_ID": "a"}, "oauth": {}}, "oauth"),
        ("zed", {"command": {"path": "a", "timeout": 3}}, "command.timeout"),
        ("opencode", {"type": "local", "command": ["a"], "timeout": -1}, "timeout"),
        (
            "opencode",
            {"type": "remote", "url": "https://a.example", "oauth": {"audience": "b"}},
            "oauth.audience",
        ),
        ("codex", {"url": "https://a.example", "oauth": {"audience": "b"}}, "oauth.audience"),
    ],
)
def test_every_key_without_a_use_has_a_note(
    foreign: Foreign, name: str, raw: dict[str, Any], notes_text: str
) -> None:
    if name == "codex":
        oauth = "".join(f"[mcp_servers.a.oauth]\n{key} = '{value}'\n" for key, value in raw["oauth"].items())
        file = foreign("config.toml", f"[mcp_servers.a]\nurl = '{raw['url']}'\n{oauth}")
    else:
        section = {"zed": "context_servers", "opencode": "mcp"}.get(name, "mcpServers")
        file = foreign(f"{name}.json", json.dumps({section: {"a": raw}}))
    assert f"'{notes_text}' was dropped: " in notes(file)


def test_two_names_of_one_list_of_tools_add_up(foreign: Foreign) -> None:
    raw = {"command": "a", "disabledTools": ["x", "y"], "excludeTools": ["y", "z"]}
    file = foreign("mcp.json", json.dumps({"mcpServers": {"a": raw}}))
    assert file.servers[0].entry["denyTools"] == ["x", "y", "z"]
