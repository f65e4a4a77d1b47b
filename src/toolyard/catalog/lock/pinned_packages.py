"""The package that a server's command fetches, and whether it says which version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from toolyard.types.server import StdioSpec

__all__ = ["detect_package", "detect_unpinned_package"]

_PACKAGE_RUNNERS: dict[tuple[str, ...], tuple[frozenset[str], frozenset[str]]] = {
    ("npx",): (frozenset({"-p", "--package"}), frozenset({"-c", "--call", "--prefix", "-w", "--workspace"})),
    ("bunx",): (frozenset({"-p", "--package"}), frozenset()),
    ("uvx",): (frozenset({"--from"}), frozenset({"--with", "-p", "--python", "--index", "--directory"})),
    ("uv", "tool", "run"): (frozenset({"--from"}), frozenset({"--with", "-p", "--python", "--index"})),
    ("pipx", "run"): (frozenset({"--spec"}), frozenset({"--python", "--index-url"})),
}
"""By runner: the options that name the package, and other options that take a value."""
_NPM_VERSION = re.compile(r".@v?\d+\.\d+\.\d+")
_PYTHON_VERSION = re.compile(r".(==|@)\s*\d")
_PATH_OR_URL = re.compile(r"[./~]|\w+:|git\+")


def detect_package(spec: StdioSpec) -> tuple[str, bool] | None:
    """What the command fetches and runs, and whether that is always the same; None where it fetches nothing.

    A path or an address is taken as it is: it names what it names.
    """
    words = (PurePath(spec.command).name.removesuffix(".cmd").removesuffix(".exe"), *spec.args)
    for runner, (naming, valued) in _PACKAGE_RUNNERS.items():
        if words[: len(runner)] == runner:
            package = _package_argument(words[len(runner) :], naming, valued)
            if package is None:
                return None
            version = _NPM_VERSION if runner[0] in ("npx", "bunx") else _PYTHON_VERSION
            return package, bool(_PATH_OR_URL.match(package) or version.search(package))
    return None


def detect_unpinned_package(spec: StdioSpec) -> str | None:
    """The package whose newest version this would run; None where it names a version, or runs no package."""
    found = detect_package(spec)
    return None if found is None or found[1] else found[0]


def _package_argument(words: Sequence[str], naming: frozenset[str], valued: frozenset[str]) -> str | None:
    found: str | None = None
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in naming:
            return value if equals else next(rest, None)
        if option in valued:
            if not equals:
                next(rest, None)
        elif not word.startswith("-"):
            found = word
            break
    return found
