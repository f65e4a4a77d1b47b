"""Every example of the documentation is run or checked, page by page, in the order in which it stands."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import ROOT, ProgramStarter
from tests.docs.example_session import ExampleSession, matches
from tests.docs.pages import PAGES, Example, examples, read
from tests.ports import free_port

from toolyard.config import load_settings, parse_config

MEASURED_PAGES = {"docs/benchmarks.md", "docs/conformance.md", "docs/reliability.md"}
"""Pages with commands that take hours, and write the pages."""
PAGE_EXAMPLES = {page: found for page in PAGES if page not in MEASURED_PAGES and (found := examples(page))}
WITH_DATABASE = "docs/guides/postgresql.md"
NOT_RUN = {
    "docs/models.md": 1,
    "docs/deploying.md": 1,
    "docs/guides/first-five-minutes.md": 1,
    "docs/guides/postgresql.md": 1,
    "docs/guides/sign-in-to-servers.md": 1,
}
"""The number of examples per page that are not run, each with its reason above it. Keep them few."""
QUESTION = "On which day does 2026-07-28 fall?"
ORDER = r"call demo_weekday {\"date\": \"2026-07-28\"}"
"""The prompt for the scripted model in place of the question."""

pytestmark = pytest.mark.timeout(400)


def is_run(example: Example) -> bool:
    return not example.marker.startswith(("not run: ", "run by "))


def models(page: str, start_program: ProgramStarter) -> Mapping[str, str]:
    """Start models of our own, at the addresses that the libraries of the providers use."""
    if "_API_KEY" not in read(page):
        return {}
    chat = start_program(sys.executable, "-I", ROOT / "tests/servers/openai_server.py", "{port}").url
    others = start_program(sys.executable, "-I", ROOT / "tests/servers/providers_server.py", "{port}").url
    quiet = {"PYDANTIC_AI_NO_BANNER": "1"}
    return {"OPENAI_BASE_URL": f"{chat}/v1", "ANTHROPIC_BASE_URL": others, **quiet}


def here(example: Example, ports: Mapping[str, str], database: str) -> Example:
    """Return the example with replaced ports, database, models and keys."""
    then = "\n" if example.language == "sh" else r"\n"
    script = ORDER if "anthropic" in example.text else f"{ORDER}{then}then{then}results?"
    words = {
        **ports,
        "postgresql://toolyard:secret@db.example.org/toolyard": database,
        "sk-ant-…": "good",
        "sk-…": "good",
        "gpt-5-mini": "fake-1",
        QUESTION: script,
    }
    text, expected_output = example.text, example.shown
    for port, ours in words.items():
        text, expected_output = text.replace(port, ours), expected_output.replace(port, ours)
    return replace(example, text=text, shown=expected_output)


def read_through(page: str, folder: Path, env: Mapping[str, str], database: str = "") -> None:
    ports = {port: str(free_port()) for port in ("8420", "8421", "8422", "8423", "8430")}
    with closing(ExampleSession(folder / "home", {"TOOLYARD_PORT": ports["8420"], **env})) as session:
        for example in filter(is_run, PAGE_EXAMPLES[page]):
            ours = here(example, ports, database)
            match example.language:
                case "json":
                    assert parse_config(example.text).servers, example.place
                case "toml":
                    check_settings(ours, folder)
                case _:
                    session.run(ours)


def check_settings(example: Example, folder: Path) -> None:
    (folder / "toolyard.toml").write_text(example.text)
    assert any(value.origin != "default" for value in load_settings(folder, env={}).table()), example.place


@pytest.mark.parametrize("page", sorted(set(PAGE_EXAMPLES) - {WITH_DATABASE}))
def test_a_page_can_be_followed(page: str, tmp_path: Path, start_program: ProgramStarter) -> None:
    read_through(page, tmp_path, models(page, start_program))


def test_the_page_about_postgresql_can_be_followed(tmp_path: Path, postgres_url: str) -> None:
    read_through(WITH_DATABASE, tmp_path, {}, postgres_url)


def test_every_guide_has_examples() -> None:
    guides = {page for page in PAGES if page.startswith("docs/guides/")}
    assert guides <= set(PAGE_EXAMPLES)


def test_few_examples_are_not_run_and_each_says_why() -> None:
    left_out = [each for examples in PAGE_EXAMPLES.values() for each in examples if not is_run(each)]
    reasons = [each for each in left_out if each.marker.startswith("not run: ")]
    assert all(len(each.marker) > len("not run: because") for each in reasons)
    assert Counter(each.page for each in reasons) == NOT_RUN
    for each in left_out:
        if each.marker.startswith("run by "):
            assert (ROOT / each.marker.removeprefix("run by ")).exists(), each.place


def test_every_marker_is_one_that_is_understood() -> None:
    for page_examples in PAGE_EXAMPLES.values():
        for each in page_examples:
            marker_pattern = r"(keeps running|not run: .+|run by tests/\S+|ends with \d+)?"
            assert re.fullmatch(marker_pattern, each.marker), f"{each.place}: {each.marker}"


@pytest.mark.parametrize(
    ("expected_output", "output", "same"),
    [
        ("a  b\n\nc\n", "a b \nc", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nd\n", True),
        ("took … s\n", "took 3 s\n", True),
        ("a\n", "a\nb\n", False),
        ("…b\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_the_shown_output_is_compared_line_by_line(expected_output: str, output: str, same: bool) -> None:
    assert matches(expected_output, output) is same
