"""Nothing outside the workspace is read, for every path that a model gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.directory_walk import DirectoryWalk
from toolyard.agents.builtin_tools.grep import FileMatches, format_matches
from toolyard.agents.builtin_tools.list_files import find_files, list_folder
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.view_file import view_file
from toolyard.agents.builtin_tools.workspace import Workspace

if TYPE_CHECKING:
    from tests.agents.builtin_tools.conftest import WorkspaceFixture

NAMES = [
    *(
        "..",
        ".",
        "",
        "/",
        "//",
        "~",
        "%2e%2e",
        "..\\\\",
        "...",
        " ..",
        ".. ",
        "\\x2e\\x2e",
        "\\x00",
        "..\\x2f..",
    ),
    *("to-file", "to-folder", "up", "far-up", "sideways", "to-root", "to-proc", "to-fd", "to-dev", "to-data"),
    *("to-data-abs", "loop", "ping", "out", "chain", "inside", "inside-abs", "inside-folder", "sneaky"),
    *("src", "sub", "app.py", "deep", "deep.py", "state", "secret.txt", "secret.key", ".git", "config"),
    *(
        "outside",
        "work",
        "etc",
        "passwd",
        "proc",
        "self",
        "environ",
        "root",
        "cwd",
        "fd",
        "0",
        "3",
        "dev",
        "zero",
    ),
    *("README.md", "pipe", "socket", "*", "**"),
]
PATHS = st.builds(
    lambda before, parts: before + "/".join(parts),
    st.sampled_from(
        ["", "", "", "/", "{root}/", "{root}/../", "{outside}/", "{data}/", "//", "./", "/proc/self/cwd/"]
    ),
    st.lists(st.sampled_from(NAMES) | st.text(max_size=6), max_size=8),
)


def everything(workspace: Workspace, path: str) -> str:
    """Return the output of all file tools for a path."""

    def describe_attempt(work: Any, *arguments: Any) -> str:
        try:
            return str(work(workspace, *arguments))
        except NativeToolError as failure:
            return str(failure)

    token = CancellationToken(60)
    return "\n".join(
        (
            describe_attempt(view_file, path, 1, 100, 10_000, token),
            describe_attempt(list_folder, path, 100, 10_000, token),
            describe_attempt(find_files, "**", path, 1000, 100_000, token),
            describe_attempt(format_matches, FileMatches(path, [1, 2, 3])),
        )
    )


@settings(max_examples=600)
@given(PATHS)
@example("../outside/secret.txt")
@example("src/../../outside/secret.txt")
@example("to-file")
@example("to-folder/secret.txt")
@example("to-folder/deep/secret.txt")
@example("sideways/secret.txt")
@example("src/chain/secret.txt")
@example("far-up/etc/passwd")
@example("to-root/etc/passwd")
@example("to-proc")
@example("to-fd/0")
@example("state/secret.key")
@example("to-data/secret.key")
@example("to-data-abs/deep/secret.txt")
@example("{data}/secret.key")
@example("{outside}/secret.txt")
@example("{root}/../outside/secret.txt")
@example("/proc/self/cwd/../outside/secret.txt")
@example("\\x2e\\x2e/outside/secret.txt")
def test_no_path_leads_out(lasting_tree: WorkspaceFixture, path: str) -> None:
    tree = lasting_tree
    for word, place in (("{root}", tree.root), ("{outside}", tree.outside), ("{data}", tree.data)):
        path = path.replace(word, str(place))
    text = everything(tree.workspace, path)
    assert tree.canary not in text
    assert "root:x:" not in text
    assert "PATH=" not in text


def test_the_canary_would_be_seen(tree: WorkspaceFixture) -> None:
    """The property above can fail: with a root one folder further up, the canary is read."""
    assert tree.canary in everything(Workspace(tree.root.parent, None), "outside/secret.txt")
    assert tree.canary in everything(Workspace(tree.root, None), "state/secret.key")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../outside/secret.txt", "points outside the workspace"),
        ("src/../../outside", "points outside the workspace"),
        ("/etc/passwd", "is outside the workspace"),
        ("to-file", "is a link that points outside the workspace"),
        ("sideways/secret.txt", "points outside the workspace"),
        ("to-dev", "is a link that points outside the workspace"),
        ("pipe", "is a named pipe, not a file"),
        ("socket", "is a socket, not a file"),
        ("state", "is not part of the workspace"),
        ("to-data/secret.key", "is not part of the workspace"),
        ("loop", "contains too many symbolic links"),
        ("ping", "contains too many symbolic links"),
        ("nothing", "does not exist"),
        ("dangling", "does not exist"),
        ("README.md/x", "one of its parents is not a folder"),
        ("x\0y", "is not a valid path"),
        ("\ud800", "is not a valid path"),
        ("x" * 300, "is too long"),
        ("x/" * 4000, "longer than 4,096 characters"),
    ],
)
def test_a_path_that_cannot_be_read_says_why(tree: WorkspaceFixture, path: str, words: str) -> None:
    with pytest.raises(NativeToolError, match=words.replace("(", r"\(")), tree.workspace.open(path):
        pass


@pytest.mark.parametrize(
    ("path", "expected_text"),
    [
        ("src/app.py", "src/app.py"),
        ("./src//sub/../app.py", "src/app.py"),
        ("{root}/src/app.py", "src/app.py"),
        ("inside", "src/app.py"),
        ("inside-abs", "src/app.py"),
        ("inside-folder/sub/../app.py", "src/app.py"),
        ("", "."),
        ("{root}", "."),
        ("src/..", "."),
    ],
)
def test_every_way_finds_files_inside_the_workspace(
    tree: WorkspaceFixture, path: str, expected_text: str
) -> None:
    with tree.workspace.open(path.replace("{root}", str(tree.root))) as opened_file:
        assert opened_file.path == expected_text


def test_a_root_behind_a_link_is_entered(tree: WorkspaceFixture) -> None:
    door = tree.outside / "door"
    door.symlink_to(tree.root)
    with Workspace(door, None).open(f"{tree.root}/src/app.py") as opened_file:
        assert opened_file.path == "src/app.py"


def test_a_root_that_is_the_data_directory_is_not_read(tree: WorkspaceFixture) -> None:
    with (
        pytest.raises(NativeToolError, match="its root is the data directory"),
        Workspace(tree.data, tree.data).open("."),
    ):
        pass


def test_a_root_inside_the_data_directory_is_read(tree: WorkspaceFixture) -> None:
    with Workspace(tree.data / "deep", tree.data).open("secret.txt") as opened_file:
        assert opened_file.path == "secret.txt"


def test_a_root_that_is_gone_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(NativeToolError, match="its root does not exist"),
        Workspace(tmp_path / "no", None).open("."),
    ):
        pass


def test_the_root_directory_as_a_workspace_excludes_process_files() -> None:
    workspace = Workspace(Path("/"), None)
    for path in ("proc/self/environ", "proc/1/status", "sys/kernel", "/proc/self/cmdline"):
        with pytest.raises(NativeToolError, match="is not part of the workspace"), workspace.open(path):
            pass
    files = find_files(workspace, "proc/self/*", ".", 10, 1000, CancellationToken(0.5))
    assert "proc/self" not in files.replace("'proc/self/*'", "")


def test_no_descriptor_stays_open(tree: WorkspaceFixture) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (
        "src/sub/deep.py",
        "to-file",
        "nothing/x",
        "src/sub/../../src/app.py",
        "a/" * 50,
        "ping",
        "\\x00",
    ):
        everything(tree.workspace, path)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_long_way_in_and_out_holds_few_descriptors(tree: WorkspaceFixture) -> None:
    path = "src/../" * 500 + "src/app.py"
    before = len(os.listdir("/proc/self/fd"))
    with tree.workspace.open(path):
        assert len(os.listdir("/proc/self/fd")) < before + 5


@pytest.mark.parametrize("path", ["swap/secret.txt", "swap/deep/secret.txt", "swap"])
@pytest.mark.parametrize("moment", ["stat", "open"])
def test_a_file_swapped_for_a_link_during_reading_is_refused(
    tree: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch, path: str, moment: str
) -> None:
    """A link to the outside replaces the file before or after it is opened."""
    place = tree.root / "swap"
    (place / "deep").mkdir(parents=True)
    for name in ("secret.txt", "deep/secret.txt"):
        (place / name).write_text("harmless\n")
    real = getattr(os, moment)

    def swapping(name: Any, *arguments: Any, **options: Any) -> Any:
        result = real(name, *arguments, **options)
        if name == "swap" and not place.is_symlink():
            place.rename(tree.root / "spare")
            place.symlink_to(tree.outside)
        return result

    monkeypatch.setattr(os, moment, swapping)
    text = everything(tree.workspace, path)
    assert place.is_symlink(), "nothing was swapped, so this shows nothing"
    assert tree.canary not in text


def test_a_file_that_is_swapped_for_a_link_leads_nowhere(
    tree: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tree.write("swap.txt", "harmless\n")
    real = os.stat

    def swapping(name: Any, *arguments: Any, **options: Any) -> Any:
        result = real(name, *arguments, **options)
        if name == "swap.txt" and not file.is_symlink():
            file.unlink()
            file.symlink_to(tree.outside / "secret.txt")
        return result

    monkeypatch.setattr(os, "stat", swapping)
    with pytest.raises(NativeToolError, match="was replaced while it was read"):
        view_file(tree.workspace, "swap.txt", 1, 10, 1000, CancellationToken(60))


def test_a_file_swapped_for_a_pipe_does_not_block(
    tree: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tree.write("swap.txt", "harmless\n")
    real = os.stat

    def swapping(name: Any, *arguments: Any, **options: Any) -> Any:
        result = real(name, *arguments, **options)
        if name == "swap.txt":
            file.unlink()
            os.mkfifo(file)
        return result

    monkeypatch.setattr(os, "stat", swapping)
    with pytest.raises(NativeToolError, match="is a named pipe, not a file"):
        view_file(tree.workspace, "swap.txt", 1, 10, 1000, CancellationToken(60))


def test_a_folder_that_is_swapped_under_a_walk_is_not_entered(tree: WorkspaceFixture) -> None:
    tree.write("a/first.txt", "x")
    tree.write("b/secret.txt", "x")
    with tree.workspace.open_folder(".") as start:
        contents: list[str] = []
        for entry in DirectoryWalk(tree.workspace, start, CancellationToken(60)):
            contents.append(entry.path)
            if entry.path == "a/first.txt":
                (tree.root / "b").rename(tree.root / "spare")
                (tree.root / "b").symlink_to(tree.outside)
    assert "a/first.txt" in contents
    assert not [path for path in contents if path.startswith("b/")]


STORM = """
import os, sys
root, outside = sys.argv[1:]
place, spare = os.path.join(root, "swap"), os.path.join(root, "spare")
print("ready", flush=True)
while True:
    os.rename(place, spare)
    os.symlink(outside, place)
    os.unlink(place)
    os.mkfifo(place)
    os.unlink(place)
    os.rename(spare, place)
"""


def test_a_storm_of_renames_by_another_process_neither_escapes_nor_blocks(
    tree: WorkspaceFixture,
) -> None:
    (tree.root / "swap" / "deep").mkdir(parents=True)
    for name in ("secret.txt", "deep/secret.txt"):
        (tree.root / "swap" / name).write_text("harmless\n")
    command = [sys.executable, "-I", "-S", "-c", STORM, str(tree.root), str(tree.outside)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as storm:
        assert storm.stdout is not None
        storm.stdout.readline()
        try:
            for _ in range(100):
                for path in (".", "swap", "swap/secret.txt", "swap/deep", "swap/deep/secret.txt"):
                    assert tree.canary not in everything(tree.workspace, path)
        finally:
            storm.kill()


def test_a_huge_sparse_file_is_read_within_its_time(tree: WorkspaceFixture) -> None:
    file = tree.write("huge.txt", "first line\n" * 20_000)
    with file.open("r+b") as stream:
        stream.truncate(1 << 40)
    assert "first line" in str(view_file(tree.workspace, "huge.txt", 1, 1, 1000, CancellationToken(60)))
    with pytest.raises(NativeToolError):
        view_file(tree.workspace, "huge.txt", 30_000, 10, 1000, CancellationToken(0.2))


@pytest.mark.parametrize("name", ["secret.key", "toolyard.db"])
def test_a_hard_link_to_a_file_of_the_data_directory_is_not_read(tmp_path: Path, name: str) -> None:
    root, data = tmp_path / "work", tmp_path / "data"
    root.mkdir()
    data.mkdir()
    (data / name).write_text("the key\n")
    os.link(data / name, root / "notes.txt")
    workspace = Workspace(root, data)
    with pytest.raises(NativeToolError, match="is not part of the workspace"):
        view_file(workspace, "notes.txt", 1, 10, 1000, CancellationToken(60))
    assert format_matches(workspace, FileMatches("notes.txt", [1])) == []


def test_other_hard_links_are_read(tmp_path: Path) -> None:
    """Package stores and worktrees consist of hard links."""
    root, data = tmp_path / "work", tmp_path / "data"
    root.mkdir()
    data.mkdir()
    (data / "secret.key").write_text("the key\n")
    (root / "one.txt").write_text("shared\n")
    os.link(root / "one.txt", root / "two.txt")
    assert format_matches(Workspace(root, data), FileMatches("two.txt", [1])) == ["two.txt:1: shared"]


def test_the_data_directory_is_recognised_under_any_name(tmp_path: Path) -> None:
    """It is compared by identity, not by name, because file systems may ignore case."""
    root, data = tmp_path / "work", tmp_path / "work/.toolyard"
    data.mkdir(parents=True)
    (data / "secret.key").write_text("the key\n")
    for alias in (".Toolyard", ".TOOLYARD", "notes"):
        (root / alias).symlink_to(data, target_is_directory=True)
    workspace = Workspace(root, data)
    for name in (".toolyard", ".Toolyard", ".TOOLYARD", "notes"):
        with pytest.raises(NativeToolError, match="is not part of the workspace"):
            view_file(workspace, f"{name}/secret.key", 1, 10, 1000, CancellationToken(60))
        with pytest.raises(NativeToolError, match="is not part of the workspace"):
            list_folder(workspace, name, 100, 1000, CancellationToken(60))
    data.rename(root / "Renamed")
    (root / ".toolyard").symlink_to("Renamed", target_is_directory=True)
    with pytest.raises(NativeToolError, match="is not part of the workspace"):
        view_file(workspace, "Renamed/secret.key", 1, 10, 1000, CancellationToken(60))
