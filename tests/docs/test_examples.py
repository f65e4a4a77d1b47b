"""Every example in the documentation runs, in the order in which it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolyard.config import parse_config

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: str) -> list[tuple[str, str]]:
    return FENCE.findall((ROOT / page).read_text())


def run(language: str, text: str, folder: Path) -> str:
    """What an example prints, run as a reader would run it with the environment activated."""
    bin = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "TOOLYARD_DATA_DIR": str(folder / "own")}
    command = ["bash", "-e", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_tour_of_the_readme_works_from_the_first_line_to_the_last(tmp_path: Path) -> None:
    printed = [
        run(language, text, tmp_path)
        for language, text in examples("README.md")
        if language in ("sh", "python")
    ]
    tour = "\n".join(printed)
    assert "command not found: no-such-program" in tour
    assert tour.count("2026-07-28 is a Tuesday.") == 3
    assert re.search(r"^-> agent +hide", tour, re.MULTILINE)
    assert "demo_weekday - Tell on which day" in tour


def test_the_examples_of_the_library_page_run(tmp_path: Path) -> None:
    for language, text in examples("README.md")[1:2]:
        run(language, text, tmp_path)
    (tmp_path / "data").mkdir()
    # Those that need a model are run by test_adapters.py.
    found = [one for one in examples("docs/library.md") if one[0] == "python" and "adapters" not in one[1]]
    printed = "".join(run(*one, tmp_path) for one in found)
    assert "Counted to 3." in printed


def test_the_configurations_of_the_guide_are_valid() -> None:
    found = [text for language, text in examples("docs/guide.md") if language == "json"]
    assert found
    for text in found:
        assert parse_config(text).servers


@pytest.mark.parametrize(
    "page",
    ["README.md", "CHANGELOG.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))],
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text()):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
