"""Listing a folder and finding files: in order, bounded, never through a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.list_files import find_files, list_folder
from toolyard.agents.builtin_tools.path_globs import compile_glob
from toolyard.agents.builtin_tools.tool_error import NativeToolError

if TYPE_CHECKING:
    from tests.agents.builtin_tools.conftest import WorkspaceFixture

MAX_RESULT_CHARACTERS = 10_000


def find_in_tree(
    tree: Any, pattern: str, path: str = ".", most: int = 100, room: int = MAX_RESULT_CHARACTERS
) -> list[str]:
    return find_files(tree.workspace, pattern, path, most, room, CancellationToken(60)).split("\n")


# One folder.


def test_a_folder_is_listed_by_name_with_kinds_and_sizes(tree: WorkspaceFixture) -> None:
    lines = list_folder(tree.workspace, "src", 100, MAX_RESULT_CHARACTERS, CancellationToken(60)).split("\n")
    assert lines == ["app.py  42 bytes", "chain  -> out/deep", "out  -> ../../outside", "sub/"]


def test_the_root_leaves_out_git_and_the_data_directory(tree: WorkspaceFixture) -> None:
    lines = list_folder(tree.workspace, ".", 100, MAX_RESULT_CHARACTERS, CancellationToken(60)).split("\n")
    assert "pipe  (a named pipe)" in lines
    assert "socket  (a socket)" in lines
    assert not [line for line in lines if line.startswith((".git", "state"))]


def test_a_folder_with_more_than_fits_says_how_many_are_left(tree: WorkspaceFixture) -> None:
    for number in range(20):
        tree.write(f"many/{number:02}.txt", "x")
    lines = list_folder(tree.workspace, "many", 5, MAX_RESULT_CHARACTERS, CancellationToken(60)).split("\n")
    assert lines == [
        *(f"{number:02}.txt  1 bytes" for number in range(5)),
        "(15 more are not shown; narrow the request)",
    ]
    short = list_folder(tree.workspace, "many", 100, 60, CancellationToken(60))
    assert "more are not shown" in short
    assert len(short) < 150


def test_an_empty_folder_and_a_file_are_told_apart(tree: WorkspaceFixture) -> None:
    (tree.root / "empty").mkdir()
    assert (
        list_folder(tree.workspace, "empty", 5, MAX_RESULT_CHARACTERS, CancellationToken(60))
        == "empty is empty"
    )
    with pytest.raises(NativeToolError, match="is a file, not a folder"):
        list_folder(tree.workspace, "README.md", 5, MAX_RESULT_CHARACTERS, CancellationToken(60))


# Finding.


def test_files_are_found_at_any_depth_or_where_the_glob_says(tree: WorkspaceFixture) -> None:
    assert find_in_tree(tree, "*.py") == ["src/app.py", "src/sub/deep.py"]
    assert find_in_tree(tree, "src/*.py") == ["src/app.py"]
    assert find_in_tree(tree, "src/**/*.py") == ["src/app.py", "src/sub/deep.py"]
    assert find_in_tree(tree, "*.py", "src/sub") == ["src/sub/deep.py"]
    assert find_in_tree(tree, "**/{app,deep}.py") == ["src/app.py", "src/sub/deep.py"]
    assert find_in_tree(tree, "*.rs") == ["no file below . matches '*.rs'"]


def test_a_walk_goes_through_no_link_and_finds_no_pipe(tree: WorkspaceFixture) -> None:
    everything = find_in_tree(tree, "**", most=1000)
    assert everything == ["README.md", "src/app.py", "src/sub/deep.py"]


def test_finding_is_bounded_and_reports_omissions(tree: WorkspaceFixture) -> None:
    for number in range(30):
        tree.write(f"many/{number:02}.txt", "x")
    assert find_in_tree(tree, "*.txt", most=3)[-1] == "(27 more are not shown; narrow the request)"


def test_a_very_deep_tree_ends(tree: WorkspaceFixture) -> None:
    path = "/".join(["d"] * 100)
    tree.write(f"{path}/x.txt", "x")
    assert find_in_tree(tree, "*.txt") == [
        "no file below . matches '*.txt'",
        "(some entries could not be read, so there may be more)",
    ]
    assert find_in_tree(tree, "x.txt", "/".join(["d"] * 60)) == [f"{path}/x.txt"]


def test_a_cancelled_walk_ends(tree: WorkspaceFixture) -> None:
    token = CancellationToken(60)
    token.cancel()
    assert "some entries could not be read" in find_files(
        tree.workspace, "*", ".", 10, MAX_RESULT_CHARACTERS, token
    )


# Globs.


@pytest.mark.parametrize(
    ("pattern", "fitting", "unfitting"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("/*.py", ["a.py"], ["x/a.py"]),
        ("./src/*.py", ["src/a.py"], ["a.py", "src/x/a.py"]),
        ("src/**", ["src/a", "src/b/c"], ["src2/a", "x/src/a"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["a/b", "ba"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "b"]),
        ("a?c", ["abc", "aéc"], ["ac", "a/c"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[!a-c]x", ["dx", "-x"], ["ax"]),
        ("[]]x", ["]x"], ["x"]),
        ("[x", ["[x"], ["x"]),
        ("[z-a]", ["z", "-", "a"], ["m"]),
        ("a.{ts,js}x", ["a.tsx", "a.jsx"], ["a.ts", "axtsx"]),
        ("{a,b}/{c,d}", ["a/c", "b/d"], ["a/b"]),
        ("a\\*", ["a\\b"], ["a*"]),
        ("(a|b)+", ["(a|b)+"], ["a", "ab"]),
    ],
)
def test_a_glob_matches_its_definition(pattern: str, fitting: list[str], unfitting: list[str]) -> None:
    fits = compile_glob(pattern)
    assert [path for path in fitting if not fits(path)] == []
    assert [path for path in unfitting if fits(path)] == []


@pytest.mark.parametrize("pattern", ["", "x" * 2000, "{a,b}" * 20])
def test_a_glob_that_is_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(NativeToolError, match="a glob"):
        compile_glob(pattern)


def test_no_glob_takes_long() -> None:
    assert not compile_glob("a*" * 400 + "b")("a" * 10_000)
    assert not compile_glob("**/" * 300 + "b")("/".join(["a"] * 300))


@settings(max_examples=300)
@given(st.text("ab*?[]!-{},/.\\^$(|+", max_size=12), st.text("ab/.", max_size=8))
def test_every_text_is_a_glob_that_answers(pattern: str, path: str) -> None:
    if pattern:
        assert compile_glob(pattern)(path) in (True, False)
