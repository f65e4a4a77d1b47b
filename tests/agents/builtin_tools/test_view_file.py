"""Viewing a file: its lines, bounded; a picture as a picture; nothing else."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.list_files import list_folder
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.view_file import view_file

if TYPE_CHECKING:
    from tests.agents.builtin_tools.conftest import WorkspaceFixture

MAX_RESULT_CHARACTERS = 10_000


def view_text(
    tree: Any, path: str, first: int = 1, most: int = 100, room: int = MAX_RESULT_CHARACTERS
) -> str:
    [block] = view_file(tree.workspace, path, first, most, room, CancellationToken(60))
    return block["text"]


def test_lines_are_numbered_and_the_range_is_told(tree: WorkspaceFixture) -> None:
    assert view_text(tree, "README.md") == (
        "README.md, lines 1 to 3 of 3\n1\t# Title\n2\tfirst line\n3\tsecond line"
    )
    assert (
        view_text(tree, "README.md", 2, 1) == "README.md, lines 2 to 2; continue with offset 3\n2\tfirst line"
    )
    assert view_text(tree, "README.md", 3) == "README.md, lines 3 to 3 of 3\n3\tsecond line"


def test_lines_beyond_the_end_are_an_error_that_says_how_many_there_are(tree: WorkspaceFixture) -> None:
    with pytest.raises(NativeToolError, match="has 3 lines; line 4 does not exist"):
        view_text(tree, "README.md", 4)


def test_an_empty_file_is_said_to_be_empty(tree: WorkspaceFixture) -> None:
    tree.write("empty", "")
    assert view_text(tree, "empty") == "empty is empty"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_either_kind_of_line_end_counts_and_is_not_shown(tree: WorkspaceFixture, end: str) -> None:
    tree.write("a.txt", f"one{end}two{end}")
    assert view_text(tree, "a.txt").split("\n")[1:] == ["1\tone", "2\ttwo"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_texts_are_read_in_the_encoding_that_they_are_in(tree: WorkspaceFixture, encoding: str) -> None:
    tree.write("a.txt", "grüße\n漢字\n".encode(encoding))
    assert view_text(tree, "a.txt").split("\n")[1:] == ["1\tgrüße", "2\t漢字"]


def test_invalid_bytes_do_not_prevent_reading_the_rest(tree: WorkspaceFixture) -> None:
    tree.write("a.txt", b"caf\xe9\nnext\n")
    assert view_text(tree, "a.txt").split("\n")[1:] == ["1\tcaf\ufffd", "2\tnext"]


def test_a_long_line_is_cut_and_says_so(tree: WorkspaceFixture) -> None:
    tree.write("a.txt", "x" * 200_000 + "\nshort\n")
    first, second = view_text(tree, "a.txt").split("\n")[1:]
    assert first == f"1\t{'x' * 2000} … (200,001 characters in this line)"
    assert second == "2\tshort"


def test_lines_beyond_the_limit_are_left_for_the_next_call(tree: WorkspaceFixture) -> None:
    tree.write("a.txt", "".join(f"line {number}\n" for number in range(1, 1001)))
    text = view_text(tree, "a.txt", most=2000, room=500)
    assert len(text) < 700
    head, *lines = text.split("\n")
    following = int(head.rpartition(" ")[2])
    assert lines[-1] == f"{following - 1}\tline {following - 1}"
    assert view_text(tree, "a.txt", following, 1).split("\n")[1] == f"{following}\tline {following}"


def test_a_huge_file_is_viewed_by_range_without_reading_all_of_it(tree: WorkspaceFixture) -> None:
    with open(tree.root / "huge", "wb") as file:
        file.write(b"begin\n" + b"some text\n" * 1000)
        file.truncate(1 << 40)
    assert view_text(tree, "huge", 1, 1) == "huge, lines 1 to 1; continue with offset 2\n1\tbegin"
    with pytest.raises(NativeToolError, match=r"took longer than 0\.2 s"):
        view_file(tree.workspace, "huge", 2000, 10, MAX_RESULT_CHARACTERS, CancellationToken(0.2))


def test_a_picture_comes_as_media(tree: WorkspaceFixture) -> None:
    tree.write("pic.txt", tree.png)
    text, image = view_file(tree.workspace, "pic.txt", 1, 10, MAX_RESULT_CHARACTERS, CancellationToken(60))
    assert text["text"] == f"pic.txt: a PNG image, {len(tree.png)} bytes"
    assert image == {
        "type": "image",
        "mimeType": "image/png",
        "data": base64.b64encode(tree.png).decode(),
    }


def test_a_picture_that_is_too_large_is_refused_with_its_size(tree: WorkspaceFixture) -> None:
    with open(tree.write("pic.png", tree.png), "r+b") as file:
        file.truncate(5_000_000)
    with pytest.raises(NativeToolError, match="a PNG image of 5,000,000 bytes"):
        view_text(tree, "pic.png")


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04xyz\0", "a ZIP archive"),
        (b"\x7fELF\x02\x01\x01\0", r"a program \(ELF\)"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x1f\x8b\x08\0", "a gzip archive"),
        (b"RIFF\0\0\0\0WAVEfmt ", r"audio \(WAV\)"),
        (b"text and then\0", "binary data"),
    ],
)
def test_binary_content_is_refused_with_its_media_type(
    tree: WorkspaceFixture, head: bytes, words: str
) -> None:
    tree.write("thing", head)
    with pytest.raises(NativeToolError, match=rf"is {words}.* \({len(head)} bytes\), which cannot be shown"):
        view_text(tree, "thing")


@pytest.mark.parametrize("text", ["BZh is what bzip2 begins with\n", "MZ\n", "ID3 tags\n", "GIF\n"])
def test_a_text_that_begins_like_something_else_is_a_text(tree: WorkspaceFixture, text: str) -> None:
    tree.write("a", text)
    assert view_text(tree, "a").endswith(text.strip())


@pytest.mark.parametrize(
    "name", [b"caf\xe9.txt", b"two\nlines", b"tab\t\x1b[31m", "‮rtl".encode(), b"back\\x41"]
)
def test_a_name_of_odd_bytes_is_shown_so_that_it_can_be_given_back(
    tree: WorkspaceFixture, name: bytes
) -> None:
    Path(os.fsdecode(os.fsencode(tree.root) + b"/" + name)).write_text("odd\n")
    entries = list_folder(tree.workspace, ".", 100, MAX_RESULT_CHARACTERS, CancellationToken(60)).split("\n")
    [own_names] = [line.partition("  ")[0] for line in entries if line.endswith("  4 bytes")]
    assert own_names.isprintable()
    own_names.encode()
    assert view_text(tree, own_names) == f"{own_names}, lines 1 to 1 of 1\n1\todd"
