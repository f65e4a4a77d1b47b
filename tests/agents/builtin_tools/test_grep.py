"""Grep: ripgrep and our own engine give the same answers for every pattern and tree."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolyard.agents.builtin_tools.bounded_thread import BoundedThreadPool
from toolyard.agents.builtin_tools.grep import GrepEngine, GrepQuery, grep
from toolyard.agents.builtin_tools.grep_engines import FallbackGrepEngine, RipgrepEngine
from toolyard.agents.builtin_tools.path_globs import compile_glob
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.workspace import Workspace

if TYPE_CHECKING:
    from tests.agents.builtin_tools.conftest import WorkspaceFixture

Grep = Callable[..., Awaitable[list[str]]]


def engine(program: str, workspace: Workspace, threads: BoundedThreadPool) -> GrepEngine:
    own = FallbackGrepEngine(workspace, threads)
    return RipgrepEngine(program, workspace, threads, own) if program else own


@pytest.fixture
async def threads() -> AsyncIterator[BoundedThreadPool]:
    bounded_thread_pool = BoundedThreadPool()
    yield bounded_thread_pool
    bounded_thread_pool.close()


@pytest.fixture
def grep_lines(leaks: None, tree: WorkspaceFixture, threads: BoundedThreadPool, program: str) -> Grep:
    """``await grep_lines(pattern, path)``: the lines of an answer."""

    async def look(
        pattern: str,
        path: str = ".",
        *,
        only: str | None = None,
        ignore_case: bool = False,
        most: int = 100,
        room: int = 10_000,
        seconds: float = 60.0,
    ) -> list[str]:
        workspace = tree.workspace
        search = GrepQuery(pattern, path, None if only is None else compile_glob(only), ignore_case)
        engine_result = engine(program, workspace, threads)
        return (await grep(engine_result, workspace, threads, search, most, room, seconds)).split("\n")

    return look


@pytest.mark.both_loops
async def test_matching_lines_come_with_path_and_number_in_order(grep_lines: Grep) -> None:
    assert await grep_lines("line|def") == [
        "README.md:2: first line",
        "README.md:3: second line",
        "src/app.py:3: def main():",
        "src/sub/deep.py:1: def deep():",
    ]


async def test_it_looks_where_it_is_told(grep_lines: Grep) -> None:
    assert await grep_lines("def", "src/sub") == ["src/sub/deep.py:1: def deep():"]
    assert await grep_lines("def", "src/app.py") == ["src/app.py:3: def main():"]
    assert await grep_lines("e", only="*.md", most=1) == [
        "README.md:1: # Title",
        "(only the first 1 matches are shown)",
    ]
    assert await grep_lines("return", only="sub/*.py", path="src") == ["src/sub/deep.py:2:     return 1"]
    assert await grep_lines("nowhere") == ["no matches in ."]


async def test_case_counts_unless_it_is_told_not_to(grep_lines: Grep) -> None:
    assert await grep_lines("TITLE") == ["no matches in ."]
    assert await grep_lines("TITLE", ignore_case=True) == ["README.md:1: # Title"]


async def test_nothing_outside_or_hidden_is_found(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    for path in (".", "src", "inside-folder"):
        assert await grep_lines(tree.canary, path) == [f"no matches in {path}"]
    for path in ("to-folder", "to-file", "..", "state", "/etc", "sideways/secret.txt"):
        with pytest.raises(NativeToolError, match=r"out of the workspace|outside the|not part of the"):
            await grep_lines("a", path)


async def test_binary_huge_and_git_are_left_out(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    tree.write("early.bin", b"needle\n\0")
    tree.write("late.bin", b"needle\n" + b"x\n" * 200_000 + b"\0")
    tree.write("huge.txt", b"needle\n" + b"x" * 8 * 1024 * 1024)
    tree.write("sub/.git/x", b"needle\n")
    tree.write("ok.txt", b"the needle\n")
    assert await grep_lines("needle") == ["ok.txt:1: the needle"]


async def test_hidden_and_ignored_files_are_looked_at(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    tree.write(".gitignore", "ignored.txt\n")
    tree.write(".ignore", "ignored.txt\n")
    tree.write(".hidden", "needle\n")
    tree.write("ignored.txt", "needle\n")
    assert await grep_lines("needle") == [".hidden:1: needle", "ignored.txt:1: needle"]


async def test_windows_line_ends_are_not_part_of_a_line(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    tree.write("win.txt", "one;\r\ntwo\r\n")
    assert await grep_lines(";$") == ["win.txt:1: one;"]


async def test_a_long_line_is_cut(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    tree.write("min.js", "x" * 100_000 + "needle\n")
    assert await grep_lines("needle") == [f"min.js:1: {'x' * 400} … (100,006 characters in this line)"]


async def test_names_of_odd_bytes_are_shown_in_one_line(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    Path(os.fsdecode(os.fsencode(tree.root) + b"/a\xff\nb.txt")).write_text("needle\n")
    assert await grep_lines("needle") == ["a\\xff\\x0ab.txt:1: needle"]


@pytest.mark.parametrize(
    "pattern", ["(", "[[:alpha:]]", "a{2,1}", "*x", r"\p{L}", "", "x" * 2000, "(?P<a>x)(?P<a>y)"]
)
async def test_an_invalid_pattern_is_refused_with_a_message(grep_lines: Grep, pattern: str) -> None:
    with pytest.raises(NativeToolError, match="pattern"):
        await grep_lines(pattern)


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (r"(\w)\1", ["a.txt:2: book"]),
        (r"o(?=k)", ["a.txt:2: book"]),
        (r"(?i)BOOK", ["a.txt:2: book"]),
        (r"\Abook", ["a.txt:2: book"]),
        (r"\<", ["a.txt:3: a<b"]),
        (r"o*+o", ["no matches in a.txt"]),
        (r"x{", ["a.txt:4: x{y"]),
        (r"grüße", ["a.txt:1: grüße"]),
        (r"gr.ße$", ["a.txt:1: grüße"]),
        ("book\n", ["no matches in a.txt"]),
    ],
)
async def test_both_engines_read_a_pattern_in_the_same_way(
    grep_lines: Grep, tree: WorkspaceFixture, pattern: str, lines: list[str]
) -> None:
    tree.write("a.txt", "grüße\nbook\na<b\nx{y\n")
    assert await grep_lines(pattern, "a.txt") == lines
    tree.write("only/a.txt", "grüße\nbook\na<b\nx{y\n")
    expected_lines = [
        line.replace("a.txt", "only/a.txt", 1) if ":" in line else "no matches in only" for line in lines
    ]
    assert await grep_lines(pattern, "only") == expected_lines


@pytest.mark.both_loops
async def test_no_pattern_hangs(grep_lines: Grep, tree: WorkspaceFixture) -> None:
    tree.write("bad.txt", "a" * 64 + "\n")
    lines = await grep_lines(r"(?=(a+)+b)x", seconds=1.0)
    assert lines[-1] == "(stopped after 1 s, so there may be more; narrow the path or the pattern)"


@pytest.mark.both_loops
async def test_a_cancelled_search_leaves_nothing_behind(
    grep_lines: Grep,
    tree: WorkspaceFixture,
    matchers: Callable[[], int],
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    tree.write("bad.txt", "a" * 64 + "\n")
    task = asyncio.create_task(grep_lines(r"(?=(a+)+b)x", seconds=60))
    await asyncio.sleep(0)
    await wait_until(lambda: matchers() > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: matchers() == 0)


# A property: both engines agree on all patterns and texts.

ATOMS = st.sampled_from(
    ["a", "b", "A", "é", ".", "[ab]", "[^a]", "[a-z]", r"\d", r"\w", r"\s", r"\b", "^", "$", r"\.", "-"]
)
PATTERNS = st.recursive(
    st.lists(ATOMS, min_size=1, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"{two[0]}|{two[1]}"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=4,
)
LINES = st.lists(st.text("abAé. \t-_19[x", max_size=8), max_size=8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=PATTERNS, lines=LINES, ignore_case=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_both_engines_find_the_same_lines(
    rg: str, tmp_path: Path, pattern: str, lines: list[str], ignore_case: bool, end: str
) -> None:
    (tmp_path / "a.txt").write_bytes("".join(line + end for line in lines).encode())
    workspace, search = Workspace(tmp_path, None), GrepQuery(pattern, ".", None, ignore_case)

    async def both() -> list[str]:
        threads = BoundedThreadPool()
        try:
            return [
                await grep(engine(program, workspace, threads), workspace, threads, search, 100, 10_000, 60)
                for program in ("", rg)
            ]
        finally:
            threads.close()

    own, other_result = asyncio.run(both())
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    expected = [number for number, line in enumerate(lines, 1) if re.search(pattern, line, flags)]
    assert own == other_result
    assert [int(line.split(":")[1]) for line in own.split("\n") if line.startswith("a.txt:")] == expected
