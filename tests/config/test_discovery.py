from __future__ import annotations

from pathlib import Path

import pytest

from toolyard.config import discover_config_path

NAMES = ["toolyard.mcp.json", ".toolyard/mcp.json", ".mcp.json"]


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_each_of_the_three_names_is_found(tmp_path: Path, name: str) -> None:
    assert discover_config_path(tmp_path) is None
    put(tmp_path / name)
    assert discover_config_path(tmp_path) == tmp_path / name


def test_in_one_folder_the_names_have_an_order(tmp_path: Path) -> None:
    for name in reversed(NAMES):
        put(tmp_path / name)
        assert discover_config_path(tmp_path) == tmp_path / name


def test_the_walk_goes_upward(tmp_path: Path) -> None:
    put(tmp_path / ".mcp.json")
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert discover_config_path(deep) == tmp_path / ".mcp.json"


def test_a_nearer_folder_comes_before_a_better_name(tmp_path: Path) -> None:
    put(tmp_path / "toolyard.mcp.json")
    put(tmp_path / "near" / ".mcp.json")
    assert discover_config_path(tmp_path / "near") == tmp_path / "near" / ".mcp.json"


def test_the_walk_starts_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / ".mcp.json")
    monkeypatch.chdir(tmp_path)
    assert discover_config_path() == tmp_path / ".mcp.json"


def test_a_folder_of_that_name_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "toolyard.mcp.json").mkdir()
    put(tmp_path / ".mcp.json")
    assert discover_config_path(tmp_path) == tmp_path / ".mcp.json"


def test_a_link_to_nowhere_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").symlink_to("nowhere")
    assert discover_config_path(tmp_path) is None


def test_discovery_from_a_missing_folder_searches_its_parents(tmp_path: Path) -> None:
    put(tmp_path / ".mcp.json")
    assert discover_config_path(tmp_path / "never" / "made") == tmp_path / ".mcp.json"
