"""Names that others hold stay as they are: the API, the command line, settings, stored data, the library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from tests.conftest import ROOT
from tests.published import published_names

from toolyard.store import Database

HINT = (
    "if that is meant, run python -m tests.published.published_names (for tables, delete the file and run "
    "this test), say it in CHANGELOG.md, and keep reading old data"
)
COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
    "WHERE table_schema = 'public' ORDER BY 1, 2"
)


def golden(name: str, golden_part: Any = None) -> Any:
    """The recorded words. A file that is missing is written from what was found, and fails the test once."""
    path = published_names.GOLDEN / f"{name}.json"
    if not path.exists():
        path.write_text(published_names.as_text(golden_part), "utf-8")
        pytest.fail(f"{path.name} was missing and has been written: look at it and commit it")
    return json.loads(path.read_text("utf-8"))


def run_python(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize("name", list(published_names.SECTIONS))
def test_published_words_are_unchanged(name: str) -> None:
    assert json.loads(published_names.as_text(published_names.SECTIONS[name]())) == golden(name), HINT


async def test_the_tables_of_sqlite_are_unchanged(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key="a key for tests, long enough")
    await database.close()
    tables = published_names.sqlite_schema(tmp_path / "toolyard.db")
    assert tables == golden("sqlite", tables), HINT


async def test_the_tables_of_postgresql_are_unchanged(postgres_url: str, tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=postgres_url, secret_key="a key for tests, long enough")
    await database.close()
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        columns = [list(row) for row in connection.execute(text(COLUMNS))]
    engine.dispose()
    assert columns == golden("postgresql", columns), HINT


@pytest.mark.parametrize(
    "module",
    [
        "toolyard.cli.demo_server",
        "toolyard.cli.playground_server",
        "toolyard.cli",
        "toolyard.adapters.anthropic",
        "toolyard.adapters.openai",
        "toolyard.adapters.pydantic_ai",
        "toolyard.errors",
        "toolyard.auth",
    ],
)
def test_modules_that_users_name_can_be_imported(module: str) -> None:
    names = {"toolyard.cli": "main", "toolyard.auth": "Challenge"}
    code = f"import {module} as found; assert hasattr(found, {names.get(module, '__doc__')!r})"
    run_python("-c", code)


@pytest.mark.parametrize("name", ["demo_server", "playground_server"])
@pytest.mark.parametrize("by_file", [True, False])
def test_our_small_servers_start_by_module_and_by_file(name: str, *, by_file: bool) -> None:
    path = str(ROOT / f"src/toolyard/cli/{name}.py")
    command = [path] if by_file else ["-m", f"toolyard.cli.{name}"]
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    result = subprocess.run(
        [sys.executable, *command],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(result.stdout.splitlines()[0])["id"] == 1


def test_the_package_runs_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "toolyard", "--version"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
