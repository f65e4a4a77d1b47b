"""Rename symbols and modules by the rows of a table: ``python scripts/restructure/rename.py TABLE [--check]``.

A row has three columns, separated by tabs: kind, old, new.

- ``name``: an address such as ``toolyard.clients.dedicated_connections:Lanes.find`` and the new bare name. References come from
  the type checker, so that methods of the same name in other classes are left alone.
- ``module``: two dotted paths. Files move, imports and textual mentions follow.

Rows that would shadow or collide are reported and left out; nothing is written with ``--check``.
"""

from __future__ import annotations

import argparse
import ast
import json
import keyword
import re
import subprocess
import sys
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import symbols
from lsp import LanguageServer
from symbols import NotFoundError, Place

ROOT = Path(__file__).resolve().parents[2]
MARK = ""
"""Stands in rewritten import lines until the end, so that the textual pass leaves them alone."""
TEXT_SUFFIXES = {".py", ".md", ".toml", ".html", ".js", ".txt", ".yaml", ".json", ".svg", ".tsv", ".css", ".in"}
Edit = tuple[int, int, str, str]
FORCED: set[str] = set()
"""Addresses of rows of the kind ``force``: renamed although a template has a word of that name."""


def tracked_files() -> list[Path]:
    """Return the text files that git tracks."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / line for line in listed.splitlines()]
    return [path for path in paths if path.suffix in TEXT_SUFFIXES or path.name in {"Makefile", "Dockerfile"}]


def read_table(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the renames of names and of modules."""
    names: dict[str, str] = {}
    modules: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        kind, old, new = line.split("\t")[:3]
        if kind == "module":
            modules[old.strip()] = new.strip()
        elif kind in {"name", "force"}:
            names[old.strip()] = new.strip()
            if kind == "force":
                FORCED.add(old.strip())
    return names, modules


class SymbolRenames:
    """Collects the edits of all symbols before anything is written, so that positions stay true."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self.edits: dict[Path, set[Edit]] = defaultdict(set)
        self.problems: list[str] = []
        self._renamed_away: dict[Path, set[str]] = defaultdict(set)

    def collect(self) -> None:
        """Ask the language server for the references of each symbol."""
        places: dict[str, Place] = {}
        for address in self._names:
            try:
                places[address] = symbols.find_definition(ROOT, address)
            except NotFoundError as error:
                self.problems.append(str(error))
        config = ROOT / "pyrightconfig.json"
        config.write_text(json.dumps({
            "include": ["src", "tests", "bench"], "pythonVersion": "3.11", "venvPath": ".", "venv": ".venv",
            "typeCheckingMode": "off", "extraPaths": ["bench"],
        }))
        server = LanguageServer(ROOT)
        try:
            # The first answers come before the workspace is loaded: ask until two agree.
            for address, place in list(places.items())[:1]:
                sizes = [-1]
                for _ in range(20):
                    sizes.append(len(server.references(place.path, place.line, place.column)))
                    if sizes[-1] == sizes[-2] and len(sizes) > 4:
                        break
            for count, (address, place) in enumerate(places.items()):
                if count % 100 == 0:
                    print(f"{count}/{len(places)}", file=sys.stderr, flush=True)
                self._add(address, place, server)
        finally:
            server.close()
            config.unlink()

    def _add(self, address: str, place: Place, server: LanguageServer) -> None:
        new, old = self._names[address], place.name
        if not new.isidentifier() or keyword.iskeyword(new):
            self.problems.append(f"{address}: {new!r} is not a valid name")
            return
        owner = address.rpartition(":")[2].rpartition(".")[0]
        if owner and "(" not in address:
            if old in template_words() and not old.startswith("_") and address not in FORCED:
                self.problems.append(f"{address}: templates use .{old}")
                return
            if new in symbols.class_members(place.path, owner):
                self.problems.append(f"{address}: {owner} has {new} already")
                return
        found = server.references(place.path, place.line, place.column)
        positions = {(path, line, column) for path, line, column in found}
        positions.add((place.path, place.line, place.column))
        edits: list[tuple[Path, Edit]] = []
        for path, line, column in positions:
            if not path.is_relative_to(ROOT) or ".venv" in path.parts:
                self.problems.append(f"{address}: is referenced outside the project, in {path}")
                return
            _, lines = symbols.parsed(path)
            text = lines[line]
            # An import under another name is reported at the alias; the name itself is edited elsewhere.
            if text[column : column + len(old)] != old or text[column + len(old) : column + len(old) + 1].isidentifier():
                continue
            bare = not text[:column].rstrip().endswith(".")
            is_keyword = re.match(r"\s*=(?!=)", text[column + len(old) :]) is not None
            if bare and "(" not in address and self._collides(path, new, place, is_keyword=is_keyword):
                self.problems.append(f"{address}: {new} is already a name in {path.relative_to(ROOT)}")
                return
            edits.append((path, (line, column, old, new)))
        for path, edit in edits:
            self.edits[path].add(edit)
        for line, column in symbols.slot_strings(place.path, owner, old) if owner else ():
            self.edits[place.path].add((line, column, old, new))

    def _collides(self, path: Path, new: str, place: Place, *, is_keyword: bool) -> bool:
        if is_keyword and path != place.path:
            return False
        return new in symbols.bound_names(path) or new in symbols.used_names(path)

    def apply(self) -> None:
        """Write the edits."""
        for path, edits in self.edits.items():
            lines = path.read_text("utf-8").split("\n")
            for line, column, old, new in sorted(edits, reverse=True):
                text = lines[line]
                assert text[column : column + len(old)] == old, (path, line, column, old, text)
                lines[line] = text[:column] + new + text[column + len(old) :]
            path.write_text("\n".join(lines), "utf-8")


@lru_cache(maxsize=None)
def template_words() -> set[str]:
    """Return the names that templates read from objects."""
    words: set[str] = set()
    for path in (ROOT / "src/toolyard/web").rglob("*.html"):
        for code in re.findall(r"\{[{%](.*?)[}%]\}", path.read_text("utf-8"), re.S):
            words |= set(re.findall(r"\.(\w+)", code))
    return words


QUOTING = {"setattr", "getattr", "hasattr", "delattr", "attrgetter", "methodcaller", "object"}


def imported_modules(tree: ast.Module) -> dict[str, str]:
    """Return the local names of imported modules or classes, with their dotted origin."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    origins[alias.asname] = alias.name
    return origins


def quoted_names(names: dict[str, str], edits: dict[Path, set[Edit]]) -> list[str]:
    """Edit names that stand as strings, as in ``setattr(module, "NAME", value)``; return those to look at."""
    addresses: dict[str, list[str]] = defaultdict(list)
    for address in names:
        if not address.endswith(")"):
            addresses[address.rsplit(":")[-1].rsplit(".")[-1]].append(address)
    found: list[str] = []
    for path in tracked_files():
        if path.suffix != ".py":
            continue
        tree, lines = symbols.parsed(path)
        origins = imported_modules(tree)
        for node in ast.walk(tree):
            owner: ast.expr | None = None
            quoted: ast.expr | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name) and len(node.args) > 1:
                function = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                if function in QUOTING:
                    owner, quoted = node.args[0], node.args[1]
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
                if ast.unparse(node.value.func) == "vars" and node.value.args:
                    owner, quoted = node.value.args[0], node.slice
            if not isinstance(quoted, ast.Constant) or quoted.value not in addresses:
                continue
            origin = origins.get(ast.unparse(owner)) if owner is not None else None
            matching = [each for each in addresses[quoted.value] if origin and is_member(each, origin)]
            column = len(lines[quoted.lineno - 1].encode()[: quoted.col_offset].decode()) + 1
            if len(matching) == 1:
                edits[path].add((quoted.lineno - 1, column, quoted.value, names[matching[0]]))
            else:
                where = f"{path.relative_to(ROOT)}:{quoted.lineno}"
                found.append(f"{where} {ast.unparse(node)[:100]}  <- {addresses[quoted.value][:4]}")
    return found


def is_member(address: str, origin: str) -> bool:
    """Return whether an address lies directly in a module or class of this dotted origin."""
    module, _, qualified = address.partition(":")
    parent, _, _ = f"{module}.{qualified}".rpartition(".")
    return parent == origin or parent.rpartition(".")[2] == origin.rpartition(".")[2] and "." in qualified


def unshadowed_loads(tree: ast.Module, name: str) -> list[ast.Name]:
    """Return the reads of a module-level name, without those in functions that bind the name themselves."""
    found: list[ast.Name] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and binds(node, name):
            return
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            found.append(node)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(tree)
    return found


def binds(function: ast.AST, name: str) -> bool:
    """Return whether a function has a parameter or variable of this name."""
    return any(
        (isinstance(node, ast.arg) and node.arg == name)
        or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        for node in ast.walk(function)
    )


def logger_names() -> set[str]:
    """Return the published names of loggers, which stay although modules move."""
    path = ROOT / "tests/published/golden/literals.json"
    return set(json.loads(path.read_text("utf-8"))["loggers"]) if path.exists() else set()


class ModuleMoves:
    """Moves files, then rewrites imports and textual mentions."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules
        self.problems: list[str] = []

    def apply(self) -> None:
        """Move the files and rewrite every mention."""
        self._rewrite_imports()
        self._rewrite_text()
        self._move_files()

    def _move_files(self) -> None:
        for old, new in self._modules.items():
            source = symbols.module_path(ROOT, old)
            head, _, rest = new.partition(".")
            target = ROOT / symbols.SOURCES[head] / (rest.replace(".", "/"))
            if source.name == "__init__.py":
                target = target / "__init__.py"
            else:
                target = target.with_suffix(".py")
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(source), str(target)], cwd=ROOT, check=True)
            folder = target.parent
            while folder != ROOT / symbols.SOURCES[head] and not (folder / "__init__.py").exists() and head == "toolyard":
                (folder / "__init__.py").write_text("", "utf-8")
                self.problems.append(f"{folder.relative_to(ROOT)}/__init__.py is new: write its docstring")
                folder = folder.parent

    def _rewrite_imports(self) -> None:
        """Rewrite ``from package import module`` where the module's last name or package changes."""
        for path in tracked_files():
            if path.suffix != ".py":
                continue
            text = path.read_text("utf-8")
            tree = ast.parse(text)
            lines = text.split("\n")
            changes: dict[str, str] = {}
            taken_here: set[str] = set()
            replaced = False
            statements = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and not n.level]
            for node in sorted(statements, key=lambda each: -each.lineno):
                moved = [alias for alias in node.names if self._is_moved(node.module or "", alias.name)]
                if not moved:
                    continue
                indent = " " * node.col_offset
                kept = [alias for alias in node.names if alias not in moved]
                new_lines: list[str] = []
                if kept:
                    words = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in kept)
                    new_lines.append(f"{indent}from {node.module} import {words}")
                for alias in moved:
                    package, _, base = self._modules[f"{node.module}.{alias.name}"].rpartition(".")
                    taken = base in symbols.bound_names(path) or base in taken_here
                    taken_here.add(base)
                    name = alias.asname or (alias.name if taken and base != alias.name else None)
                    suffix = f" as {name}" if name else ""
                    new_lines.append(f"{indent}from {MARK}{package} import {base}{suffix}")
                    if not name and base != alias.name:
                        changes[alias.name] = base
                lines[node.lineno - 1 : node.end_lineno] = ["\n".join(new_lines)]
                replaced = True
            if replaced:
                path.write_text("\n".join(lines), "utf-8")
            for old, new in changes.items():
                self._rename_local(path, old, new)

    def _is_moved(self, package: str, name: str) -> bool:
        """Return whether ``from package import name`` imports a moved module, not an object of that name."""
        if f"{package}.{name}" not in self._modules:
            return False
        try:
            init = symbols.module_path(ROOT, package)
        except NotFoundError:
            return True
        return init.name != "__init__.py" or name not in symbols.objects_in_package(init, package)

    def _rename_local(self, path: Path, old: str, new: str) -> None:
        """Rename the uses of an imported module within one file."""
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        lines = text.split("\n")
        uses = unshadowed_loads(tree, old)
        for node in sorted(uses, key=lambda each: (-each.lineno, -each.col_offset)):
            line = lines[node.lineno - 1].encode()
            start = node.col_offset
            assert line[start : start + len(old)] == old.encode()
            lines[node.lineno - 1] = (line[:start] + new.encode() + line[start + len(old) :]).decode()
        path.write_text("\n".join(lines), "utf-8")

    def _rewrite_text(self) -> None:
        """Replace dotted paths and file paths in every text file, longest first."""
        table: dict[str, str] = {}
        loggers = logger_names()
        for old, new in self._modules.items():
            table[old] = new
            head, _, rest = old.partition(".")
            new_rest = new.partition(".")[2]
            table[f"{rest.replace('.', '/')}.py"] = f"{new_rest.replace('.', '/')}.py"
        pattern = re.compile(
            r"(?<![\w.])(" + "|".join(re.escape(k) for k in sorted(table, key=len, reverse=True)) + r")(?![\w])"
        )
        for path in tracked_files():
            if path.suffix == ".tsv" or not path.exists():
                continue
            if path.is_relative_to(ROOT / "tests/published/golden"):
                continue
            text = path.read_text("utf-8")

            def replacement(match: re.Match[str], text: str = text) -> str:
                start, end = match.span(1)
                quoted = text[start - 1 : start] in {'"', "'"} and text[end : end + 1] in {'"', "'"}
                return match.group(1) if quoted and match.group(1) in loggers else table[match.group(1)]

            replaced = pattern.sub(replacement, text).replace(MARK, "")
            if replaced != text:
                path.write_text(replaced, "utf-8")


def main() -> None:
    """Run the renames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    names, modules = read_table(options.table)
    names = {address: new for address, new in names.items() if address.rstrip(")").rsplit(".")[-1].rsplit(":")[-1] != new}
    renames = SymbolRenames(names)
    if names:
        renames.collect()
    quoted = quoted_names(names, renames.edits)
    for problem in renames.problems:
        print("SKIPPED", problem)
    for line in quoted:
        print("QUOTED", line)
    print(f"{len(names)} names, {sum(map(len, renames.edits.values()))} edits in {len(renames.edits)} files")
    if options.check:
        return
    renames.apply()
    symbols.parsed.cache_clear()
    moves = ModuleMoves(modules)
    if modules:
        moves.apply()
    for problem in moves.problems:
        print("LOOK", problem)


if __name__ == "__main__":
    main()
