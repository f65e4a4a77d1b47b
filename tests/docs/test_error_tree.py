"""The docstring of ``toolyard.errors`` draws the error classes of all packages below their base classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from tests.published.published_names import load_all_modules

from toolyard import errors

ROW = re.compile(r"(?P<branch>(?:[│├└─ ]{4})*)(?P<names>[A-Z]\w+(?:(?:, | ─ )[A-Z]\w+)*)(?:$| [ (])")


def read_drawn_pairs(drawing: str) -> Iterator[tuple[str, str]]:
    """Yield each drawn class with its base class."""
    above: list[str] = []
    for row in filter(None, map(ROW.match, drawing.splitlines())):
        *base, names = row["names"].split(" ─ ")
        del above[len(row["branch"]) // 4 :]
        for name in names.split(", ") if above else ():
            yield name, (base or above)[-1]
        above.append(names)


def public_pairs(base: type[errors.ToolyardError], name: str) -> Iterator[tuple[str, str]]:
    """Yield each public error class below ``base`` with its base class; private ones are skipped."""
    for each in base.__subclasses__():
        if each.__name__.startswith("_"):
            yield from public_pairs(each, name)
        elif each.__module__.startswith("toolyard."):
            yield each.__name__, name
            yield from public_pairs(each, each.__name__)


def test_every_error_class_is_drawn_below_its_base_class() -> None:
    load_all_modules()
    drawing = inspect.cleandoc(str(errors.__doc__)).replace("\n    ", "\n")
    diagram_pairs = set(read_drawn_pairs(drawing[drawing.index("\nToolyardError") :]))
    assert diagram_pairs == set(public_pairs(errors.ToolyardError, "ToolyardError"))
