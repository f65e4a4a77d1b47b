"""The examples with other frameworks run, against models that do what they are told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_examples import ROOT, examples, run

QUESTION = "On which day does 2026-07-28 fall?"
ORDER = r"call demo_weekday {\"date\": \"2026-07-28\"}"
FOUND = [text for _, text in examples("docs/library.md") if "toolyard.adapters" in text]


def test_there_is_an_example_for_each_library() -> None:
    assert [
        name for name in ("pydantic_ai", "openai", "anthropic") if f"adapters.{name}" in "".join(FOUND)
    ] == [
        "pydantic_ai",
        "openai",
        "anthropic",
    ]


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_an_example_with_another_framework_runs(
    number: int, tmp_path: Path, listening: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FOUND[number]
    assert QUESTION in text
    chat = listening(sys.executable, "-I", ROOT / "tests/servers/openai_server.py", "{port}").url
    others = listening(sys.executable, "-I", ROOT / "tests/servers/providers_server.py", "{port}").url
    for name, value in {
        "OPENAI_API_KEY": "good",
        "OPENAI_BASE_URL": f"{chat}/v1",
        "ANTHROPIC_API_KEY": "good",
        "ANTHROPIC_BASE_URL": others,
    }.items():
        monkeypatch.setenv(name, value)
    run(*examples("README.md")[1], tmp_path)
    (tmp_path / "data").mkdir()
    steps = ORDER if "anthropic" in text else rf"{ORDER}\nthen\nresults?"
    asked = text.replace(QUESTION, steps).replace("gpt-5-mini", "fake-1")
    assert run("python", asked, tmp_path).strip().removeprefix("It says: ") == "2026-07-28 is a Tuesday."
