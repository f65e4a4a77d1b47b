"""The manifest of requirements: quotes are exact, and each sentence has existing tests or a reason."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def find_sources(checkout: Path) -> Path | None:
    """Return the folder of the source documents: from the variable, or beside the checkout."""
    if folder := os.environ.get("TOOLYARD_SOURCES"):
        return Path(folder)
    beside = checkout.parent
    documents = (*beside.glob("sources/toolloop-spec-*.md"), *beside.glob("*/sources/toolloop-spec-*.md"))
    return documents[0].parent if documents else None


SOURCES = find_sources(ROOT)


def _manifest() -> ModuleType:
    path = ROOT / "tests" / "requirements.py"
    spec = importlib.util.spec_from_file_location("toolyard_requirements", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


manifest = _manifest()

needs_sources = pytest.mark.skipif(
    SOURCES is None, reason="the source documents are not beside the checkout, nor named by TOOLYARD_SOURCES"
)


def join_lines(text: str) -> str:
    return " ".join(text.split())


@cache
def source(name: str) -> str:
    assert SOURCES is not None
    return join_lines((SOURCES / name).read_text("utf-8"))


@cache
def find_defined_tests(file: str) -> frozenset[str]:
    """Return the names of a file's test functions, without importing it."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@pytest.fixture(params=manifest.REQUIREMENTS, ids=lambda each: each.id)
def requirement(request: pytest.FixtureRequest) -> manifest.Requirement:
    return request.param


def test_every_requirement_has_an_id_of_its_own() -> None:
    ids = Counter(each.id for each in manifest.REQUIREMENTS)
    assert [id for id, count in ids.items() if count > 1] == []


def test_every_requirement_has_tests_or_a_reason(requirement: manifest.Requirement) -> None:
    reasons = [requirement.no_behaviour, requirement.overruled, requirement.later]
    assert requirement.tests or any(reasons), "neither tests nor a reason"
    assert all(reason is None or reason.strip() for reason in reasons)
    if requirement.no_behaviour is not None:
        assert not requirement.tests, "what is no behaviour cannot be tested"
    if requirement.overruled is not None:
        assert requirement.overruled.startswith("DESIGN section"), "who overrules it?"


def test_every_named_test_exists(requirement: manifest.Requirement) -> None:
    for node in requirement.tests:
        file, _, name = node.partition("::")
        assert name in find_defined_tests(file), f"there is no test {node}"
    assert len(set(requirement.tests)) == len(requirement.tests)


@needs_sources
def test_every_sentence_stands_in_its_source(requirement: manifest.Requirement) -> None:
    assert requirement.sentence == join_lines(requirement.sentence)
    assert requirement.sentence in source(requirement.source)


@needs_sources
@pytest.mark.parametrize("section", manifest.SECTIONS, ids=lambda each: f"{each[0]} {each[1]}".strip())
def test_no_sentence_of_a_section_is_left_out(section: tuple[str, str, str | None]) -> None:
    name, first, after = section
    text = source(name)
    begin = text.index(first)
    text = text[begin : None if after is None else text.index(after, begin)]
    sentences = [each.sentence for each in manifest.REQUIREMENTS if each.source == name]
    # Longest first: a short quote may be part of a longer one.
    for words in sorted([*sentences, *manifest.HEADINGS[name]], key=len, reverse=True):
        text = text.replace(words, " | ")
    remaining_words = [words.strip() for words in text.split("|") if re.search(r"\w", words)]
    assert remaining_words == []


@needs_sources
def test_every_source_is_read() -> None:
    documents = {path.name for path in SOURCES.glob("*.md")} - {"README.md"}
    assert documents == {each.source for each in manifest.REQUIREMENTS}
