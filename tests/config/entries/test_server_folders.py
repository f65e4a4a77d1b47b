"""Servers without a folder in their entry run in a folder of their own, except those of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolyard.config import parse_config


def entry(**keys: Any) -> dict[str, Any]:
    return {"mcpServers": {"one": {"command": "x", **keys}}}


@pytest.mark.parametrize("name", ["data_dir", "project"])
def test_a_server_of_a_file_has_a_folder_of_its_own(
    load: Any, write: Any, data_dir: Path, project: Path, name: str
) -> None:
    places = {"data_dir": data_dir / "mcp.json", "project": project / "named.json"}
    spec = load(write(places[name], entry())).servers["one"].transport
    assert (spec.cwd, spec.folder) == (None, str(data_dir / "servers/one"))
    spec = load(write(places[name], entry(cwd="/srv"))).servers["one"].transport
    assert (spec.cwd, spec.folder) == ("/srv", None)


def test_a_server_of_a_program_runs_in_the_folder_of_the_program() -> None:
    assert parse_config(entry()).servers["one"].transport.folder is None


def test_the_folder_of_the_client_can_be_named(
    monkeypatch: pytest.MonkeyPatch, write: Any, data_dir: Path, project: Path
) -> None:
    from toolyard.config import load_config

    monkeypatch.chdir(project)
    file = write(data_dir / "mcp.json", entry(cwd="${TOOLYARD_CLIENT_DIR}"))
    assert load_config(file, data_dir=data_dir).servers["one"].transport.cwd == str(project)


@pytest.mark.parametrize("word", ["server.py", "./data", "../x.sh", "src/main.ts"])
def test_a_relative_argument_is_noted(load: Any, write: Any, data_dir: Path, word: str) -> None:
    file = write(data_dir / "mcp.json", entry(args=["-v", word, "/abs/server.py", "@scope/package"]))
    (note,) = load(file).hints
    assert note.message == (
        f"the argument '{word}' is a relative path, but the server runs in its own working directory"
    )
    assert (note.file, note.path) == (str(file), "mcpServers.one.args")
    assert load(write(file, entry(args=[word], cwd="/srv"))).hints == ()
    assert load(write(file, entry(args=[word], enabled=False))).hints == ()
