"""Join modules: ``python scripts/restructure/join.py TABLE``, with rows ``join<TAB>source<TAB>target``.

The definitions of the source move into the target: before its own where the target imports the source, behind them
otherwise. Imports everywhere follow. A pair whose top-level names collide is reported and left as it is.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path

import symbols
from rename import ROOT, ModuleMoves


@dataclass
class Parts:
    """A module's text, taken apart."""

    docstring: str
    imports: list[str]
    typing_imports: list[str]
    exported: list[str]
    body: str
    names: set[str]
    statements: dict[str, str]
    """Assignments of one name, by name: equal ones in both modules are kept once."""


def take_apart(path: Path) -> Parts:
    """Split a module into docstring, imports, ``__all__`` and the rest."""
    text = path.read_text("utf-8")
    lines = text.split("\n")
    tree = ast.parse(text)
    parts = Parts("", [], [], [], "", set(), {})
    first_of_body = len(lines)
    for index, node in enumerate(tree.body):
        segment = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        if index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.docstring = segment
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                parts.imports.append(segment)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                parts.typing_imports.append("\n".join(lines[each.lineno - 1 : each.end_lineno]))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            parts.exported = list(ast.literal_eval(node.value))
        else:
            first_of_body = start_with_comments(lines, node)
            break
    parts.body = "\n".join(lines[first_of_body:]).strip("\n")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts.names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id != "__all__":
                    parts.names.add(target.id)
                    parts.statements[target.id] = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    return parts


def start_with_comments(lines: list[str], node: ast.stmt) -> int:
    """Return the first line of a statement, its decorators and the comments right above it."""
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(each.lineno for each in decorators)]) - 1
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return start


def join(source: str, target: str) -> str | None:
    """Join two modules; return what is in the way, or None."""
    source_path, target_path = symbols.module_path(ROOT, source), symbols.module_path(ROOT, target)
    a, b = take_apart(target_path), take_apart(source_path)
    common = a.names & b.names
    for name in set(common):
        if a.statements.get(name) and a.statements.get(name) == b.statements.get(name):
            b.body = b.body.replace(a.statements[name] + "\n", "", 1)
            common.discard(name)
    if common:
        return f"{source} -> {target}: both define {', '.join(sorted(common))}"
    target_needs_source = any(imports(each, source) for each in a.imports)
    if target_needs_source and any(imports(each, target) for each in b.imports):
        return f"{source} -> {target}: they import each other"
    wanted = [each for each in (*a.imports, *b.imports) if not imports(each, source) and not imports(each, target)]
    typing_only = [
        each for each in (*a.typing_imports, *b.typing_imports) if not imports(each, source) and not imports(each, target)
    ]
    bodies = [b.body, a.body] if target_needs_source else [a.body, b.body]
    text = [a.docstring, "", "from __future__ import annotations", "", *dict.fromkeys(wanted), ""]
    if typing_only:
        text += ["if TYPE_CHECKING:", *dict.fromkeys(typing_only), ""]
    exported = sorted({*a.exported, *b.exported})
    if exported:
        text += [f"__all__ = {exported!r}".replace("'", '"'), "", ""]
    text += ["\n\n\n".join(each for each in bodies if each), ""]
    target_path.write_text("\n".join(text), "utf-8")
    subprocess.run(["git", "rm", "-qf", str(source_path)], cwd=ROOT, check=True)
    moves = ModuleMoves({source: target})
    moves._rewrite_imports()
    moves._rewrite_text()
    for problem in moves.problems:
        print("LOOK", problem)
    return None


def imports(statement: str, module: str) -> bool:
    """Return whether an import statement names a module."""
    node = ast.parse(statement.strip()).body[0]
    if isinstance(node, ast.ImportFrom):
        return node.module == module or any(f"{node.module}.{alias.name}" == module for alias in node.names)
    return isinstance(node, ast.Import) and any(alias.name == module for alias in node.names)


def main() -> None:
    """Join the pairs of a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    options = parser.parse_args()
    for line in options.table.read_text("utf-8").splitlines():
        if line.startswith("join\t"):
            _, source, target = line.split("\t")[:3]
            symbols.parsed.cache_clear()
            if problem := join(source.strip(), target.strip()):
                print("SKIPPED", problem)
    subprocess.run([".venv/bin/ruff", "check", "-q", "--fix", "src", "tests", "bench"], cwd=ROOT, check=False)
    subprocess.run([".venv/bin/ruff", "format", "-q", "src", "tests", "bench"], cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
