"""Imports point one way: a package imports only packages that stand before it in ``PACKAGES``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SRC = TESTS.parent / "src" / "toolyard"

PACKAGES = [
    "errors",
    "types",
    "concurrency",
    "config",
    "policy",
    "results",
    "catalog",
    "net",
    "auth",
    "store",
    "protocol",
    "transports",
    "clients",
    "meta",
    "agents",
    "accounts",
    "registry",
    "core",
    "yard",
    "yard_sync",
    "adapters",
    "gateway",
    "web",
    "cli",
]
LIBRARY_INTERFACE = {("yard", "yard_sync"), ("yard", "adapters"), ("adapters", "yard")}
"""The library is three packages that may import each other."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
MAX_LINES = 800
MAX_MODULES_IN_A_FOLDER = 26
"""Twenty-five modules and ``__init__.py``."""


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> list[tuple[int, str]]:
    """Return the line and package of each import of this project, type-checking imports included."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            submodules = [f"toolyard.{a.name}" for a in node.names if a.name != "__version__"]
            names = submodules if module == "toolyard" else [module]
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("toolyard.")]
    return found


def import_violations(path: Path) -> Iterator[str]:
    package = package_of(path)
    if package in ("__init__", "__main__"):
        return
    if package not in PACKAGES:
        yield f"{path} is not in a known package"
        return
    for line, target in imported_packages(path):
        if target not in PACKAGES:
            yield f"{path}:{line} imports toolyard.{target}, which is not a known package"
        elif PACKAGES.index(target) > PACKAGES.index(package) and (package, target) not in LIBRARY_INTERFACE:
            yield f"{path}:{line}: {package} may not import {target}"


def test_a_package_imports_only_packages_before_it() -> None:
    assert len(modules()) > 200
    assert [violation for path in modules() for violation in import_violations(path)] == []


def test_no_module_has_a_vague_name() -> None:
    assert [path for path in modules() if path.stem in VAGUE_NAMES] == []


def test_modules_stay_short() -> None:
    assert [path for path in modules() if len(path.read_text().splitlines()) > MAX_LINES] == []


def test_folders_stay_small() -> None:
    folders = {path.parent for path in modules()} - {SRC / "store" / "migrations" / "versions"}
    assert [folder for folder in folders if len(list(folder.glob("*.py"))) > MAX_MODULES_IN_A_FOLDER] == []


def discarded_outcomes(path: Path) -> Iterator[str]:
    """Yield each ``gather(…, return_exceptions=True)`` whose result is not used: it hides failures."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Await)
            and "return_exceptions=True" in ast.unparse(node)
        ):
            yield f"{path}:{node.lineno}"


def test_tests_use_the_outcomes_of_their_tasks() -> None:
    paths = [*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py")]
    assert len(paths) > 200
    assert [place for path in paths for place in discarded_outcomes(path)] == []
