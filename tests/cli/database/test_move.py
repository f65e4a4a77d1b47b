"""``toolyard move``: from one SQLite file to PostgreSQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_the_people_of_a_file_are_there_in_the_new_database(cli: Cli, postgres_url: str) -> None:
    cli.env["TOOLYARD_PEOPLE_MODE"] = "password"
    assert cli("users", "add", "ann").code == 0
    cli.env["TOOLYARD_DATABASE_URL"] = postgres_url
    without = cli("move")
    assert (without.code, str(cli.data / "secret.key") in without.err) == (2, True)
    cli.env["TOOLYARD_SECRET_KEY"] = (cli.data / "secret.key").read_text().strip()
    result = cli("move", "--json")
    assert (result.code, result.json["moved"]["users"]) == (0, 1)
    assert [user["name"] for user in cli("users", "list", "--json").json["items"]] == ["ann"]
    with psycopg.connect(postgres_url) as database:
        query = "SELECT actor_name, details FROM audit WHERE action = 'database.move'"
        ((actor, details),) = database.execute(query).fetchall()
    rows = sum(result.json["moved"].values())
    assert (actor, json.loads(details)) == ("command line", {"rows": rows})
    again = cli("move")
    assert again.code == 2
    assert "is not empty" in again.err
    assert "before Toolyard uses it" in again.err
    del cli.env["TOOLYARD_DATABASE_URL"], cli.env["TOOLYARD_SECRET_KEY"]
    assert [user["name"] for user in cli("users", "list", "--json").json["items"]] == ["ann"]


def test_missing_settings_are_named(cli: Cli, postgres_url: str) -> None:
    assert "database_url" in cli("move").err
    cli.env |= {"TOOLYARD_DATABASE_URL": postgres_url, "TOOLYARD_SECRET_KEY": "a key that will do"}
    nothing = cli("move")
    assert (nothing.code, "nothing to move" in nothing.err) == (2, True)
    assert not (cli.data / "toolyard.db").exists()
