"""Imports point one way: a room may import only rooms that stand before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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


def faults(path: Path) -> Iterator[str]:
    """What is wrong with the imports of a module."""
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    if room not in ROOMS:
        yield f"{path} is in no room of the design"
        return
    for line, target in imported_rooms(path):
        if target not in ROOMS:
            yield f"{path}:{line} imports toolyard.{target}, which is no room"
        elif ROOMS.index(target) > ROOMS.index(room) and (room, target) not in SAME_ROW:
            yield f"{path}:{line}: {room} may not import {target}"


def test_a_room_imports_only_rooms_above_it() -> None:
    assert len(modules()) > 500
    assert [fault for path in modules() for fault in faults(path)] == []


def test_no_module_is_a_drawer() -> None:
    assert [path for path in modules() if path.stem in DRAWERS] == []


def test_files_fit_in_the_head() -> None:
    """What second idea moved in?"""
    assert [path for path in modules() if len(path.read_text().splitlines()) > 600] == []
