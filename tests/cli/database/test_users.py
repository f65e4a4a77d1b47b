"""``toolyard users``: accounts, on the database itself."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.sqlite_template import copy_template

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.fixture
def password_cli(cli: Cli) -> Any:
    cli.env["TOOLYARD_PEOPLE_MODE"] = "password"
    copy_template(cli.data)
    return cli


def test_a_user_is_added_listed_disabled_and_deleted(password_cli: Any) -> None:
    assert password_cli("users", "list").err.startswith("note: no accounts yet")
    result = password_cli("users", "add", "Ann", "--admin")
    assert result.code == 0
    assert result.out.startswith("http://127.0.0.1:8420/ui/invite/")
    assert "once" in result.err
    assert password_cli("users", "add", "Bob").code == 0
    items = password_cli("users", "list", "--json").json["items"]
    assert [(user["name"], user["role"], user["has_password"]) for user in items] == [
        ("Ann", "admin", False),
        ("Bob", "user", False),
    ]
    assert [line.split("\t")[:3] for line in password_cli("users", "list").lines] == [
        ["Ann", "admin", "no password"],
        ["Bob", "user", "no password"],
    ]
    assert password_cli("users", "disable", "bob").out == "Bob is disabled\n"
    assert password_cli("users", "list").lines[1].split("\t")[2] == "disabled"
    assert password_cli("users", "disable", "bob", "--undo").out == "Bob is enabled\n"
    assert password_cli("users", "delete", "bob", "--yes").out == "Bob was deleted\n"
    assert [user["name"] for user in password_cli("users", "list", "--json").json["items"]] == ["Ann"]


def test_a_new_link_replaces_the_old_one_and_knows_the_public_address(password_cli: Any) -> None:
    password_cli.env["TOOLYARD_PUBLIC_URL"] = "https://toolyard.example/"
    first = password_cli("--json", "users", "add", "ann").json
    second = password_cli("users", "invite", "Ann", "--json").json
    assert second["link"].startswith("https://toolyard.example/ui/invite/")
    assert first["link"] != second["link"]


def test_invalid_user_commands_fail(password_cli: Any) -> None:
    password_cli("users", "add", "ann")
    for words, code, cases in (
        (("add", "ann"), 1, "user 'ann' already exists"),
        (("add", "ANN"), 1, "user 'ANN' already exists"),
        (("add", ""), 2, "1 to 100 visible characters"),
        (("add", "a\nb"), 2, "1 to 100 visible characters"),
        (("invite", "nobody"), 1, "unknown user 'nobody'"),
        (("disable", "nobody"), 1, "unknown user 'nobody'"),
        (("delete", "nobody", "--yes"), 1, "unknown user 'nobody'"),
        (("delete", "ann"), 2, "cannot ask for confirmation"),
        (("add",), 2, "missing argument"),
        (("promote", "ann"), 2, "no such command 'promote'"),
    ):
        result = password_cli("users", *words)
        assert (words, result.code) == (words, code), result.err
        assert cases in result.err
    assert [user["name"] for user in password_cli("users", "list", "--json").json["items"]] == ["ann"]


def test_errors_are_json_where_json_is_wanted(password_cli: Any) -> None:
    error = password_cli("users", "invite", "nobody", "--json").json["error"]
    assert (error["kind"], "users list" in error["hint"]) == ("NoSuchUser", True)


@pytest.mark.parametrize("mode", ["none", "proxy", "oidc"])
def test_links_are_for_the_mode_password_and_the_rest_for_all(cli: Cli, mode: str) -> None:
    cli.env["TOOLYARD_PEOPLE_MODE"] = mode
    result = cli("users", "add", "ann")
    assert result.code == 1
    assert "people_mode" in result.err
    assert cli("users", "list").code == 0


def test_the_log_records_actions_of_the_command_line(password_cli: Any) -> None:
    import sqlite3

    password_cli("users", "add", "ann")
    password_cli("users", "delete", "ann", "--yes")
    query = "SELECT action, actor_name, target, details FROM audit"
    with closing(sqlite3.connect(password_cli.data / "toolyard.db")) as database:
        added_rows, deleted_rows = database.execute(query).fetchall()
    assert (added_rows[:2], deleted_rows[:2]) == (
        ("user.add", "command line"),
        ("user.delete", "command line"),
    )
    assert added_rows[2] == deleted_rows[2] != "ann", "accounts are named by id, which no rename changes"
    assert json.loads(added_rows[3]) == json.loads(deleted_rows[3]) == {"name": "ann"}


def test_the_help_tells_of_every_word(cli: Cli) -> None:
    result = cli("users", "--help")
    assert result.code == 0
    for word in ("list", "add", "invite", "disable", "delete"):
        assert word in result.out
