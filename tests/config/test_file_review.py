from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolyard.config import approve_file, read_approvals, review_file
from toolyard.errors import ConfigError

Write = Callable[[Path, object], Path]


@pytest.fixture
def file(project: Path, write: Write) -> Path:
    return write(
        project / ".mcp.json",
        {
            "mcpServers": {
                "local": {
                    "command": "npx",
                    "args": ["-y", "${PACKAGE}"],
                    "env": {"KEY": "${SECRET:-x}"},
                    "cwd": "/srv",
                },
                "remote": {
                    "url": "https://user:pass@${HOST}/mcp",
                    "headers": {"Authorization": "Bearer ${env:TOKEN} ${HOST}"},
                    "oauth": {"clientId": "me", "clientSecret": "${OAUTH}"},
                },
                "off": {"command": "x", "disabled": True, "trust": "untrusted", "allowTools": ["a"]},
            }
        },
    )


def test_a_review_shows_commands_addresses_and_variables(file: Path, data_dir: Path) -> None:
    review = review_file(file, data_dir)
    local, remote, off = review.servers
    assert (review.path, review.state, len(review.sha256)) == (str(file), "new", 64)
    assert (local.command, local.cwd, local.env) == (("npx", "-y", "${PACKAGE}"), "/srv", ("KEY",))
    assert (local.variables, local.address) == (("PACKAGE", "SECRET"), None)
    assert (remote.address, remote.command) == ("https://***@${HOST}/mcp", ())
    assert (remote.headers, remote.variables) == (("Authorization",), ("HOST", "TOKEN", "OAUTH"))
    assert (local.enabled, off.enabled, off.trust) == (True, False, "untrusted")


def test_a_review_needs_no_variable_and_shows_no_value(
    file: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PACKAGE", "SECRET", "HOST", "TOKEN", "OAUTH"):
        monkeypatch.setenv(name, "sk-value")
    assert "sk-value" not in repr(review_file(file, data_dir))
    assert "pass" not in repr(review_file(file, data_dir))


def test_a_review_changes_nothing(file: Path, data_dir: Path) -> None:
    review_file(file, data_dir)
    assert list(data_dir.iterdir()) == []


def test_after_an_approval_the_review_shows_changes(file: Path, data_dir: Path, write: Write) -> None:
    assert approve_file(file, data_dir).state == "approved"
    assert {server.change for server in review_file(file, data_dir).servers} == {"same"}
    write(
        file,
        {
            "mcpServers": {
                "local": {"command": "other"},
                "off": {"command": "x", "disabled": True, "trust": "untrusted", "allowTools": ["a"]},
                "more": {"command": "y"},
            }
        },
    )
    review = review_file(file, data_dir)
    assert review.state == "changed"
    assert {server.id: server.change for server in review.servers} == {
        "local": "changed",
        "off": "same",
        "more": "new",
    }
    assert review.removed == ("remote",)


def test_a_change_after_the_review_is_not_approved(file: Path, data_dir: Path, write: Write) -> None:
    review = review_file(file, data_dir)
    write(file, {"mcpServers": {"local": {"command": "evil"}}})
    with pytest.raises(ConfigError, match="changed after it was shown"):
        approve_file(file, data_dir, sha256=review.sha256)
    assert read_approvals(data_dir).find(file) is None
    approve_file(file, data_dir, sha256=review_file(file, data_dir).sha256)
    assert read_approvals(data_dir).find(file)


def test_a_wrong_or_missing_file_is_not_approved(project: Path, data_dir: Path, write: Write) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        approve_file(project / "nowhere.json", data_dir)
    wrong = write(project / "wrong.json", {"servers": {"a": {}}})
    with pytest.raises(ConfigError):
        approve_file(wrong, data_dir)
    assert list(data_dir.iterdir()) == []


def test_the_review_names_entries_that_would_not_be_used(project: Path, write: Write) -> None:
    content = {"mcpServers": {"a": {"command": 5}, "b": {"command": "x"}}}
    broken, fine = review_file(write(project / ".mcp.json", content)).servers
    assert broken.problem is not None
    assert "mcpServers.a.command" in broken.problem
    assert (broken.command, broken.project_code) == ((), ())
    assert fine.problem is None


def test_an_entry_may_refer_to_a_server_of_another_source(
    project: Path, data_dir: Path, write: Write
) -> None:
    file = write(project / ".mcp.json", {"bundles": {"b": {"serverId": "elsewhere", "mode": "meta"}}})
    assert approve_file(file, data_dir).servers == ()


def test_a_hostile_file_cannot_rewrite_the_screen(project: Path, data_dir: Path, write: Write) -> None:
    entry = {
        "command": "sh",
        "args": ["-c", "evil\x1b[2K\rharmless\u202e"],
        "env": {"A\x1b": "b"},
        "cwd": "\x07",
    }
    (server,) = review_file(write(project / ".mcp.json", {"mcpServers": {"a": entry}}), data_dir).servers
    shown_text = "".join([*server.command, *server.env, server.cwd or ""])
    assert shown_text.isprintable()
    assert "evil" in shown_text


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PATH",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "NODE_PATH",
        ),
        *("npm_config_registry", "BASH_ENV", "ENV", "RUBYOPT", "PERL5LIB", "JAVA_TOOL_OPTIONS"),
        *("GIT_SSH_COMMAND", "UV_INDEX_URL", "PIP_INDEX_URL", "Path"),
        *("AWS_SHARED_CREDENTIALS_FILE", "KUBECONFIG", "OPENSSL_MODULES", "ERL_AFLAGS"),
        *("PUPPETEER_EXECUTABLE_PATH", "NODE_EXTRA_CA_CERTS", "GOAUTH", "XDG_CACHE_HOME", "SUDO_ASKPASS"),
        *("JULIA_DEPOT_PATH", "R_LIBS_USER", "CONTAINERS_CONF", "ELIXIR_ERL_OPTIONS", "JBANG_REPO"),
    ],
)
def test_variables_that_change_the_program_are_marked_and_never_masked(
    project: Path, data_dir: Path, write: Write, name: str
) -> None:
    value = "sk-aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3"
    entry = {"command": "x", "env": {name: value}}
    (server,) = review_file(write(project / ".mcp.json", {"mcpServers": {"a": entry}}), data_dir).servers
    (variable,) = server.environment
    assert (variable.name, variable.value, variable.changes_execution) == (name, value, True)


@pytest.mark.parametrize(
    ("name", "value", "shown_value"),
    [
        ("LOG_LEVEL", "debug", "debug"),
        ("PYTHONUNBUFFERED", "1", "1"),
        ("UV_PUBLISH_TOKEN", "hunter2", "***"),
        ("CARGO_REGISTRIES_ONE_TOKEN", "hunter2", "***"),
        ("API_KEY", "${KEY}", "${KEY}"),
        ("API_KEY", "hunter2", "***"),
        ("API_KEY", "${KEY:-hunter2}", "***"),
        ("SETTING", "0123456789abcdef0123456789abcdef", "***"),
        ("DATABASE_URL", "postgres://me:hunter2@db/x", "postgres://***@db/x"),
        (
            "FOLDER",
            "/home/me/projects/a-long-folder-name-2024/data",
            "/home/me/projects/a-long-folder-name-2024/data",
        ),
    ],
)
def test_literal_values_are_shown_and_secrets_are_not(
    project: Path, data_dir: Path, write: Write, name: str, value: str, shown_value: str
) -> None:
    entry = {"command": "x", "env": {name: value}}
    (server,) = review_file(write(project / ".mcp.json", {"mcpServers": {"a": entry}}), data_dir).servers
    assert [(each.value, each.changes_execution) for each in server.environment] == [(shown_value, False)]


def test_code_of_the_project_is_named(project: Path, data_dir: Path, write: Write) -> None:
    (project / "tools").mkdir()
    for name in ("server.py", "tools/hook.mjs"):
        (project / name).write_text("")
    servers = {
        "script": {"command": "python3", "args": ["server.py"]},
        "option": {"command": "node", "args": ["--import=./tools/hook.mjs", "x"]},
        "variable": {"command": "node", "env": {"NODE_OPTIONS": "--require ./tools/hook.mjs"}},
        "attached": {"command": "ruby", "args": ["-r./tools/hook.mjs"]},
        "url": {"command": "npx", "args": ["-y", f"file:{project}/tools"]},
        "script in a word": {"command": "sh", "args": ["-c", "cd tools&&exec ./server.py"]},
        "folder": {"command": "make", "cwd": str(project)},
        "elsewhere": {"command": "npx", "args": ["-y", "some-package@1.2.3"]},
    }
    seen_servers = review_file(write(project / ".mcp.json", {"mcpServers": servers}), data_dir).servers
    assert {server.id: server.project_code for server in seen_servers} == {
        "script": ("server.py",),
        "option": ("./tools/hook.mjs",),
        "variable": ("./tools/hook.mjs",),
        "attached": ("./tools/hook.mjs",),
        "url": (f"{project}/tools",),
        "script in a word": ("tools", "./server.py"),
        "folder": (str(project),),
        "elsewhere": (),
    }
