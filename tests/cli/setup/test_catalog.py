"""``toolyard catalog`` and ``toolyard add`` with known servers, also from a public registry on loopback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.public_registry import LOOK_ALIKES, serve_public_registry

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with serve_public_registry() as registry:
        yield registry.url


def entries(cli: Cli) -> Any:
    return json.loads((cli.data / "mcp.json").read_text())["mcpServers"]


def test_the_catalogue_is_listed_searched_and_shown_without_a_network(cli: Cli) -> None:
    document = cli("catalog", "list", "--json").json
    assert {"id", "title", "purpose", "entry", "signIn", "variables", "documents", "checked"} == set(
        document[0]
    )
    result = cli("catalog", "search", "issues")
    assert "github\tkey\tdocuments\tWork with repositories" in result.out
    shown_result = cli("catalog", "show", "github")
    assert "GITHUB_PERSONAL_ACCESS_TOKEN: personal access token of GitHub" in shown_result.out
    assert "Add it with `toolyard add github`." in shown_result.out
    assert "no known server matches 'zzz'" in cli("catalog", "search", "zzz").err
    unknown = cli("catalog", "show", "githb")
    assert (unknown.code, "did you mean 'github'?" in unknown.err) == (2, True)


def test_a_known_server_is_added_by_its_name(cli: Cli) -> None:
    result = cli("add", "github", "--no-check")
    assert result.code == 0
    assert "note: github: set GITHUB_PERSONAL_ACCESS_TOKEN wherever Toolyard runs" in result.err
    assert entries(cli)["github"]["headers"] == {"Authorization": "Bearer ${GITHUB_PERSONAL_ACCESS_TOKEN}"}
    replaced_result = cli("add", "github", "--replace", "--no-check", "--json")
    assert replaced_result.json["variables"] == ["GITHUB_PERSONAL_ACCESS_TOKEN"]
    given_result = cli(
        "add", "github", "--replace", "--no-check", "--set", "GITHUB_PERSONAL_ACCESS_TOKEN=s3cret-123"
    )
    assert given_result.code == 0
    assert "s3cret" not in given_result.out + given_result.err + (cli.data / "mcp.json").read_text()
    assert "hint: set GITHUB_PERSONAL_ACCESS_TOKEN wherever Toolyard runs" in given_result.err


def test_values_of_a_known_server_are_required_and_paths_become_absolute(cli: Cli, terminal: Any) -> None:
    result = cli("add", "filesystem", "--no-check")
    assert (result.code, "'filesystem' needs FOLDER" in result.err, "--set FOLDER=VALUE" in result.err) == (
        2,
        True,
        True,
    )
    wrong = cli("add", "filesystem", "--set", "PLACE=x", "--no-check")
    assert (wrong.code, "known values: FOLDER" in wrong.err) == (2, True)
    assert cli("add", "own", "https://x.example", "--set", "A=b").code == 2
    assert cli("add", "filesystem", "--set", "FOLDER=.", "--no-check").code == 0
    assert entries(cli)["filesystem"]["args"][-1] == str(cli.home)
    terminal_session = terminal("add", "filesystem", "--replace", "--no-check")
    terminal_session.wait_for("FOLDER (folder that it may read and change)")
    terminal_session.type(f"{cli.data}\n")
    assert terminal_session.end() == 0
    assert entries(cli)["filesystem"]["args"][-1] == str(cli.data)


def test_a_known_server_with_a_missing_package_is_reported(cli: Cli) -> None:
    runner = cli.home / "bin/npx"
    runner.parent.mkdir()
    runner.write_text("#!/bin/sh\necho 'npm error 404 Not Found' >&2\nexit 1\n")
    runner.chmod(0o755)
    result = cli("add", "angular", PATH=f"{runner.parent}:{os.environ['PATH']}")
    assert "'angular' does not work yet: exited with code 1: npm error 404 Not Found" in result.err
    assert "hint: check that the package '@angular/cli' exists" in result.err


def test_add_explains_a_missing_name_and_a_missing_separator(cli: Cli) -> None:
    result = cli("add", "https://mcp.example.com/mcp")
    assert result.code == 2
    assert "a server that is added by its URL needs a name" in result.err
    assert "hint: write `toolyard add NAME https://mcp.example.com/mcp`" in result.err
    separator_result = cli("add", "memory", "npx", "-y", "some-package")
    assert separator_result.code == 2
    assert "no such option '-y'" in separator_result.err
    assert (
        "hint: put -- before the command of a server: `toolyard add NAME -- COMMAND ARGS...`"
        in separator_result.err
    )
    assert "--header" in cli("add", "memory", "https://mcp.example.com/mcp", "--heder", "a: b").err


def test_a_public_registry_is_searched_only_if_it_is_switched_on(cli: Cli, registry: str) -> None:
    assert cli("catalog", "search", "weather", "--json").json == []
    result = cli("catalog", "search", "weather", TOOLYARD_PUBLIC_REGISTRY=registry)
    assert result.lines == ["io.example/weather\tkey\tno\tForecasts\N{REPLACEMENT CHARACTER}[31m for towns"]
    assert cli("catalog", "search", "example/image", "--json", TOOLYARD_PUBLIC_REGISTRY=registry).json == []
    off = cli("add", "io.example/weather", "--no-check")
    assert (off.code, "is not a known server" in off.err) == (2, True)


def test_a_server_of_a_public_registry_is_added_with_variables_of_its_own(cli: Cli, registry: str) -> None:
    cli.env["TOOLYARD_PUBLIC_REGISTRY"] = registry
    result = cli("add", "io.example/weather", "--no-check", "--set", "MCP_IO_EXAMPLE__WEATHER_TOWN=Bonn")
    assert result.code == 0, result.err
    assert "Toolyard has not checked it" in result.err
    assert (
        cli("add", "io.example/remote", "--no-check", "--set", "MCP_IO_EXAMPLE__REMOTE_TENANT=acme").code == 0
    )
    # A registry cannot refer to variables that the person already has.
    assert entries(cli) == {
        "io.example-weather": {
            "command": "npx",
            "args": ["-y", "@example/weather@1.2.0", "--units", "metric", "Bonn"],
            "env": {"API_KEY": "${MCP_IO_EXAMPLE__WEATHER_API_KEY}", "LEVEL": "info", "LEAK": "$${HOME} eu"},
        },
        "io.example-remote": {
            "type": "http",
            "url": "https://acme.example/mcp",
            "headers": {
                "Authorization": "Bearer ${MCP_IO_EXAMPLE__REMOTE_TOKEN}",
                "X-Plain": "$${AWS_SECRET_ACCESS_KEY}",
            },
        },
    }


def test_variables_of_different_publishers_have_different_names(cli: Cli, registry: str) -> None:
    cli.env["TOOLYARD_PUBLIC_REGISTRY"] = registry
    publishers: dict[str, set[str]] = {}
    for name in LOOK_ALIKES:
        document = cli("add", name, "--no-check", "--replace", "--json").json
        for variable in document["variables"]:
            publishers.setdefault(variable, set()).add(name.partition("/")[0])
    assert [len(each) for each in publishers.values()] == [1, 1, 1, 1]
    # A server is added under the name that the person wrote, or not at all.
    assert "is not a known server" in cli("add", "io.example/renamed", "--no-check").err


def test_junk_of_a_public_registry_is_left_out(cli: Cli, registry: str) -> None:
    result = cli("catalog", "search", "junk", "--json", TOOLYARD_PUBLIC_REGISTRY=registry)
    assert [(each["id"], each["entry"]) for each in result.json] == [
        ("io.example/c", {"command": "uvx", "args": ["c"]})
    ]


def test_a_public_registry_that_fails_says_so(cli: Cli, registry: str, unused_tcp_port: int) -> None:
    cli.env["TOOLYARD_PUBLIC_REGISTRY"] = registry
    assert "is not a known server" in cli("add", "io.example/missing").err
    result = cli("add", "io.example/other")
    assert (result.code, "answered with status 500" in result.err) == (3, True)
    missing_result = cli(
        "catalog", "search", "issues", TOOLYARD_PUBLIC_REGISTRY=f"http://127.0.0.1:{unused_tcp_port}"
    )
    assert (missing_result.code, "the public registry was not searched" in missing_result.err) == (0, True)
    assert "github" in missing_result.out
