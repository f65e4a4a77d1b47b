"""Imports point one way: a room may import only rooms that stand before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "toolyard"

ROOMS = [
    "errors",
    "model",
    "config",
    "catalog",
    "policy",
    "content",
    "net",
    "auth",
    "wire",
    "transports",
    "clients",
    "meta",
    "agents",
    "people",
    "registry",
    "store",
    "wiring",
    "yard",
    "yard_sync",
    "adapters",
    "gateway",
    "web",
    "cli",
]
SAME_ROW = {("yard", "yard_sync"), ("yard", "adapters"), ("adapters", "yard")}
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc"}


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            plain = [f"toolyard.{a.name}" for a in node.names if a.name != "__version__"]
            names = plain if module == "toolyard" else [module]
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("toolyard.")]
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_a_room_imports_only_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    assert room in ROOMS, f"{path} is in no room of the design"
    for line, target in imported_rooms(path):
        if target == "__init__" or target not in ROOMS:
            pytest.fail(f"{path}:{line} imports toolyard.{target}, which is no room")
        allowed = ROOMS.index(target) <= ROOMS.index(room) or (room, target) in SAME_ROW
        assert allowed, f"{path}:{line}: {room} may not import {target}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_no_module_is_a_drawer(path: Path) -> None:
    assert path.stem not in DRAWERS


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_files_fit_in_the_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600, f"{path}: what second idea moved in?"
