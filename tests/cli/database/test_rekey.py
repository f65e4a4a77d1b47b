"""``toolyard rekey``: replacement of the key by an operator."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

OLD, NEW = "the key that was used until now", "the key that is used from now on"


def test_the_key_is_changed_in_three_steps(cli: Cli) -> None:
    cli.env |= {"TOOLYARD_PEOPLE_MODE": "password", "TOOLYARD_SECRET_KEY": OLD}
    assert cli("users", "add", "ann").code == 0
    cli.env["TOOLYARD_SECRET_KEY"] = NEW
    wrong = cli("users", "list")
    assert wrong.code == 2
    assert "TOOLYARD_SECRET_KEY_FORMER" in wrong.err
    cli.env["TOOLYARD_SECRET_KEY_FORMER"] = OLD
    assert [user["name"] for user in cli("users", "list", "--json").json["items"]] == ["ann"]
    result = cli("rekey", "--json")
    assert (result.code, result.json) == (0, {"encrypted": 0, "lost": 0})
    assert "secret_key_former can be unset" in cli("rekey").out
    query = "SELECT actor_name, details FROM audit WHERE action = 'database.rekey' ORDER BY id"
    with contextlib.closing(sqlite3.connect(cli.data / "toolyard.db")) as database:
        entries = database.execute(query).fetchall()
    assert entries == [("command line", '{"encrypted":0,"lost":0}')] * 2
    del cli.env["TOOLYARD_SECRET_KEY_FORMER"]
    assert [user["name"] for user in cli("users", "list", "--json").json["items"]] == ["ann"]
    cli.env["TOOLYARD_SECRET_KEY"] = OLD
    assert cli("users", "list").code == 2


def test_without_a_former_key_there_is_nothing_to_do(cli: Cli) -> None:
    result = cli("rekey")
    assert result.code == 2
    assert "secret_key_former" in result.err
