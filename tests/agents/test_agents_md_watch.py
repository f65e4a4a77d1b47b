"""Changes of AGENTS.md while Toolyard runs, and the last valid version while the file is invalid."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from toolyard.agents.definitions.watch import LoadedAgents, load_agents, watch_agents

GOOD = "## Reader\n---\ntools: [a]\n---\nRead.\n"
BROKEN = "## Reader\n---\ntools: all\n---\nRead.\n"


def ids(now: LoadedAgents) -> list[str]:
    return [agent.id for agent in now.agents]


def test_without_a_file_the_list_of_agents_is_empty_and_valid(tmp_path: Path) -> None:
    assert load_agents(None, tmp_path) == LoadedAgents(tmp_path / "AGENTS.md")


def test_a_file_that_a_setting_names_must_be_there(tmp_path: Path) -> None:
    now = load_agents(tmp_path / "other.md", tmp_path)
    assert now.agents == ()
    assert now.problems[0].file == str(tmp_path / "other.md")


def test_the_file_of_the_setting_counts_and_not_the_one_in_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(BROKEN)
    (tmp_path / "other.md").write_text(GOOD)
    now = load_agents(tmp_path / "other.md", tmp_path)
    assert (ids(now), now.problems) == (["reader"], ())


@pytest.mark.parametrize("bad", [BROKEN.encode(), b"\xff\xfe\x00", None])
def test_an_invalid_file_keeps_the_previous_agents(tmp_path: Path, bad: bytes | None) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text(GOOD)
    good = load_agents(None, tmp_path)
    file.unlink() if bad is None else file.write_bytes(bad)
    now = load_agents(None, tmp_path, good)
    assert now.agents == good.agents
    assert now.problems
    file.write_text(GOOD)
    assert load_agents(None, tmp_path, now) == good


def test_a_broken_file_at_the_start_gives_no_agents_and_its_lines(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(BROKEN)
    now = load_agents(None, tmp_path)
    assert now.agents == ()
    assert [problem.line for problem in now.problems] == [3]
    assert f"{tmp_path / 'AGENTS.md'}:3" in str(now)


def test_a_folder_in_the_files_place_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").mkdir()
    assert load_agents(None, tmp_path).problems


async def test_every_change_is_told_once_and_nothing_else(tmp_path: Path) -> None:
    file, now = tmp_path / "AGENTS.md", load_agents(None, tmp_path)
    async with asyncio.timeout(60), aclosing(watch_agents(now, None, tmp_path)) as changes:
        for text, agents, wrong in ((GOOD, ["reader"], 0), (BROKEN, ["reader"], 1), ("none\n", [], 0)):
            task = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            # Replaced atomically: a reader sees the old or the new text, never half of it.
            (tmp_path / "next").write_text(text)
            (tmp_path / "next").replace(file)
            problem_texts = await task
            assert (ids(problem_texts), len(problem_texts.problems)) == (agents, wrong)
