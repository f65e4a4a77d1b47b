"""Locate definitions by address: ``package.module:Class.method``, ``package.module:function(parameter)``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SOURCES = {"toolyard": "src/toolyard", "tests": "tests", "bench": "bench"}


@dataclass(frozen=True)
class Place:
    """Position of a name in a file, zero-based, with the text that stands there."""

    path: Path
    line: int
    column: int
    name: str


class NotFoundError(Exception):
    """Raised when an address names nothing."""


def module_path(root: Path, module: str) -> Path:
    """Return the file of a dotted module."""
    head, _, rest = module.partition(".")
    base = root / SOURCES[head]
    path = base.joinpath(*rest.split(".")) if rest else base
    if path.with_suffix(".py").exists():
        return path.with_suffix(".py")
    if (path / "__init__.py").exists():
        return path / "__init__.py"
    raise NotFoundError(f"{module}: no such module")


def module_name(root: Path, path: Path) -> str:
    """Return the dotted name of a file below one of the source folders."""
    for head, folder in SOURCES.items():
        if path.is_relative_to(root / folder):
            parts = path.relative_to(root / folder).with_suffix("").parts
            return ".".join([head, *(part for part in parts if part != "__init__")])
    raise NotFoundError(str(path))


@lru_cache(maxsize=None)
def parsed(path: Path) -> tuple[ast.Module, list[str]]:
    """Return the syntax tree and the lines of a file."""
    text = path.read_text("utf-8")
    return ast.parse(text), text.split("\n")


def find_definition(root: Path, address: str) -> Place:
    """Return the place where the addressed name is defined first."""
    module, _, qualified = address.partition(":")
    path = module_path(root, module)
    tree, lines = parsed(path)
    parameter = None
    if match := re.fullmatch(r"(.+)\((\w+)\)", qualified):
        qualified, parameter = match.groups()
    scope: ast.AST = tree
    parts = qualified.split(".")
    for index, part in enumerate(parts):
        found = _child(scope, part)
        if found is None:
            raise NotFoundError(f"{address}: {part} is not defined")
        if index < len(parts) - 1 or parameter:
            scope = found
        else:
            return _place(path, lines, found, part)
    assert parameter
    for argument in _arguments(scope):
        if argument.arg == parameter:
            return Place(path, argument.lineno - 1, _characters(lines, argument), parameter)
    raise NotFoundError(f"{address}: there is not such a parameter")


def _arguments(function: ast.AST) -> list[ast.arg]:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    spec = function.args
    rest = [each for each in (spec.vararg, spec.kwarg) if each]
    return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *rest]


def _child(scope: ast.AST, name: str) -> ast.AST | None:
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in _scope_nodes(scope):
        if isinstance(node, definitions) and node.name == name:
            return node
    for node in _scope_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return node
    if isinstance(scope, ast.ClassDef):
        for node in ast.walk(scope):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and node.attr == name
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                return node
    return None


def _scope_nodes(scope: ast.AST) -> list[ast.AST]:
    """Return the nodes of a scope without those of scopes within it."""
    nodes: list[ast.AST] = []
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop(0)
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo[:0] = list(ast.iter_child_nodes(node))
    return nodes


def _characters(lines: list[str], node: ast.expr | ast.arg) -> int:
    return len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


def _place(path: Path, lines: list[str], node: ast.AST, name: str) -> Place:
    if isinstance(node, ast.Name):
        return Place(path, node.lineno - 1, _characters(lines, node), name)
    if isinstance(node, ast.Attribute):
        line = (node.end_lineno or node.lineno) - 1
        end = len(lines[line].encode()[: node.end_col_offset].decode())
        return Place(path, line, end - len(name), name)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    line = node.lineno - 1
    match = re.search(rf"\b(?:def|class)\s+{re.escape(name)}\b", lines[line])
    assert match, f"{path}:{node.lineno}"
    return Place(path, line, match.end() - len(name), name)


def bound_names(path: Path) -> set[str]:
    """Return every name that a file binds in any scope: variables, parameters, imports, definitions."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)[0]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    return names


def used_names(path: Path) -> set[str]:
    """Return every bare name that a file reads (builtins and free names included)."""
    return {node.id for node in ast.walk(parsed(path)[0]) if isinstance(node, ast.Name)}


def class_members(path: Path, owner: str) -> set[str]:
    """Return the names that a class or function defines, attributes of ``self`` included."""
    scope: ast.AST | None = parsed(path)[0]
    for part in owner.split("."):
        scope = _child(scope, part) if scope is not None else None
    if scope is None:
        return set()
    names = {
        node.name
        for node in _scope_nodes(scope)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    names |= {node.id for node in _scope_nodes(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if isinstance(scope, ast.ClassDef):
        names |= {
            node.attr
            for node in ast.walk(scope)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    return names


def objects_in_package(init: Path, package: str) -> set[str]:
    """Return the names that a package's ``__init__`` binds to objects, not to its own modules."""
    modules = {
        alias.asname or alias.name
        for node in ast.walk(parsed(init)[0])
        if isinstance(node, ast.ImportFrom) and node.module == package
        for alias in node.names
    }
    return bound_names(init) - modules


def slot_strings(path: Path, owner: str, name: str) -> list[tuple[int, int]]:
    """Return the positions of an attribute's name in the ``__slots__`` of its class."""
    tree, lines = parsed(path)
    scope: ast.AST | None = tree
    for part in owner.split("."):
        scope = _child(scope, part) if scope is not None else None
    if not isinstance(scope, ast.ClassDef):
        return []
    return [
        (each.lineno - 1, _characters(lines, each) + 1)
        for node in scope.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
        for each in ast.walk(node.value)
        if isinstance(each, ast.Constant) and each.value == name
    ]
