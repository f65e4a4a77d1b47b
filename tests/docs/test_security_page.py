"""Each answer of docs/security.md has its test."""

from __future__ import annotations

import re

import pytest
from tests.conftest import ROOT

NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text())))


def test_there_are_answers() -> None:
    assert len(NAMED_TESTS) > 40


@pytest.mark.parametrize(("file", "name"), NAMED_TESTS)
def test_the_test_behind_an_answer_is_there(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"
