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
    "tracing",
    "config",
    "policy",
    "results",
    "catalog",
    "net",
    "auth",
    "store",
    "protocol",
    "transports",
    "workers",
    "clients",
    "meta_tools",
    "agents",
    "accounts",
    "registry",
    "core",
    "library",
    "adapters",
    "gateway",
    "web",
    "background",
    "cli",
]
LIBRARY_INTERFACE = {("library", "adapters"), ("adapters", "library")}
"""The library is two packages that may import each other."""
ENTRY_MODULES = {
    "library.py",
    "cli/chat/chat_services.py",
    "gateway/stdio/local_gateway.py",
    "web/app.py",
}
"""The modules in which an interface receives the services of the composition root."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
MAX_LINES = 800
MAX_MODULES_IN_A_FOLDER = 26
"""Twenty-five modules and ``__init__.py``."""


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def find_imported_packages(path: Path) -> list[tuple[int, str]]:
    """Return the line and package of each import of this project, type-checking imports included."""
    violations: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            submodules = [f"toolyard.{a.name}" for a in node.names if a.name != "__version__"]
            names = submodules if module == "toolyard" else [module]
        violations += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("toolyard.")]
    return violations


def import_violations(path: Path) -> Iterator[str]:
    package = package_of(path)
    if package in ("__init__", "__main__"):
        return
    if package not in PACKAGES:
        yield f"{path} is not in a known package"
        return
    for line, target in find_imported_packages(path):
        if target not in PACKAGES:
            yield f"{path}:{line} imports toolyard.{target}, which is not a known package"
        elif PACKAGES.index(target) > PACKAGES.index(package) and (package, target) not in LIBRARY_INTERFACE:
            yield f"{path}:{line}: {package} may not import {target}"


def test_a_package_imports_only_packages_before_it() -> None:
    assert len(modules()) > 200
    assert [violation for path in modules() for violation in import_violations(path)] == []


def imports_by_module() -> dict[str, set[str]]:
    """Return the modules of this project that each module imports, also for types or inside a function."""
    names = {".".join(("toolyard", *path.relative_to(SRC).with_suffix("").parts)): path for path in modules()}
    paths = {name.removesuffix(".__init__"): path for name, path in names.items()}
    packages: dict[str, set[str]] = {}
    for module, path in paths.items():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                members = [f"{node.module}.{alias.name}" for alias in node.names]
                targets |= {member if member in paths else node.module for member in members}
        packages[module] = targets & paths.keys() - {module}
    return packages


def import_circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others of the set."""
    reachable = {module: set(targets) for module, targets in imports.items()}
    is_changed = True
    while is_changed:
        is_changed = False
        for cycle in reachable.values():
            more = set[str]().union(*(reachable[each] for each in cycle)) - cycle
            cycle |= more
            is_changed = is_changed or bool(more)
    in_circles = {module for module, cycle in reachable.items() if module in cycle}
    circles = [
        {other for other in in_circles if other in reachable[module] and module in reachable[other]}
        for module in sorted(in_circles)
    ]
    return [circle for number, circle in enumerate(circles) if circle not in circles[:number]]


def test_import_circles_are_found_through_several_modules() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"f"}, "f": {"e"}}
    assert import_circles(imports) == [{"a", "b", "c"}, {"e", "f"}]


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert import_circles(imports_by_module()) == []


def find_imported_names(path: Path) -> set[str]:
    """Return the full names of everything that a module imports."""
    return {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def test_only_entry_modules_hold_all_services() -> None:
    """Handlers receive the services that they use."""
    composition = {"toolyard.core.composition", "toolyard.core.services", "toolyard.core.chat_services"}
    # By their last name, since a module may import them from another one that has imported them.
    all_services = {"Core", "build_core", "Services", "ChatServices", "LocalChats"}
    holders = {
        str(path.relative_to(SRC))
        for path in modules()
        if package_of(path) != "core"
        and any(
            name in composition or (name.startswith("toolyard.") and name.rpartition(".")[2] in all_services)
            for name in find_imported_names(path)
        )
    }
    assert holders == ENTRY_MODULES


def test_only_the_command_serve_imports_the_web_app_when_it_runs() -> None:
    importers = {
        path.relative_to(SRC / "cli").as_posix()
        for path in (SRC / "cli").rglob("*.py")
        if "web" in {package for _, package in find_imported_packages(path)}
    }
    assert importers == {"commands/serve.py"}
    tree = ast.parse((SRC / "cli/commands/serve.py").read_text())
    at_import = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in at_import if "toolyard.web" in ast.unparse(node)]


def test_no_module_has_a_vague_name() -> None:
    assert [path for path in modules() if path.stem in VAGUE_NAMES] == []


def test_modules_stay_short() -> None:
    assert [path for path in modules() if len(path.read_text().splitlines()) > MAX_LINES] == []


def test_folders_stay_small() -> None:
    folders = {path.parent for path in modules()} - {SRC / "store" / "migrations" / "versions"}
    assert [folder for folder in folders if len(list(folder.glob("*.py"))) > MAX_MODULES_IN_A_FOLDER] == []


def find_discarded_outcomes(path: Path) -> Iterator[str]:
    """Yield each ``gather(…, return_exceptions=True)`` with an unused result: it hides failures."""
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
    assert [place for path in paths for place in find_discarded_outcomes(path)] == []
