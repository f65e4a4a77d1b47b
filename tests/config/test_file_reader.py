from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from toolyard.config import Configuration
from toolyard.config.file_io import MAX_CONFIG_BYTES
from toolyard.errors import ConfigError, Problem

Load = Callable[..., Configuration]

TEXT = '{"mcpServers": {"a": {"command": "x"}}}'


def problem_of(load: Load, path: Path | None) -> Problem:
    with pytest.raises(ConfigError) as exc_info:
        load(path)
    (problem,) = exc_info.value.problems
    return problem


def test_a_byte_order_mark_is_accepted(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert "a" in load(path).servers


def test_bytes_that_are_not_utf8_are_named_with_their_line(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(b'{\n"mcpServers":\n{"a\xff": {}}}')
    problem = problem_of(load, path)
    assert (problem.line, problem.message) == (3, "the text is not valid UTF-8")


def test_so_is_the_usual_text_of_windows(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(TEXT.encode("utf-16"))
    assert "UTF-8" in problem_of(load, path).message


def test_malformed_json_is_an_error_with_its_line(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{\n"mcpServers": {\n"a": {"command": "x" "args": []}}}')
    problem = problem_of(load, path)
    assert (problem.file, problem.line) == (str(path), 3)


def test_a_file_of_ten_megabytes_is_refused_without_being_read_to_its_end(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with path.open("wb") as file:
        file.truncate(10 * 1024 * 1024)
    problem = problem_of(load, path)
    assert "10,485,760 bytes" in problem.message
    assert f"{MAX_CONFIG_BYTES:,}" in problem.message


def test_a_file_at_the_limit_is_read(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(TEXT + " " * (MAX_CONFIG_BYTES - len(TEXT)))
    assert "a" in load(path).servers


def test_a_directory_is_refused(load: Load, tmp_path: Path) -> None:
    assert "found a directory" in problem_of(load, tmp_path).message


def test_a_pipe_is_refused_and_never_waited_for(load: Load, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "found a pipe" in problem_of(load, tmp_path / "pipe").message


def test_a_device_without_end_is_refused(load: Load) -> None:
    assert "device" in problem_of(load, Path("/dev/zero")).message


def test_a_link_is_followed(load: Load, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(TEXT)
    (tmp_path / "link.json").symlink_to("real.json")
    assert "a" in load(tmp_path / "link.json").servers


def test_links_that_lead_in_a_circle_are_an_error(load: Load, tmp_path: Path) -> None:
    (tmp_path / "one.json").symlink_to("two.json")
    (tmp_path / "two.json").symlink_to("one.json")
    assert problem_of(load, tmp_path / "one.json").message == "the symbolic links form a loop"


def test_also_where_such_a_link_was_found_and_not_named(load: Load, project: Path) -> None:
    (project / ".mcp.json").symlink_to(".mcp.json")
    assert problem_of(load, None).message == "the symbolic links form a loop"


def test_and_in_the_data_directory(load: Load, data_dir: Path) -> None:
    (data_dir / "mcp.json").symlink_to("mcp.json")
    assert problem_of(load, None).message == "the symbolic links form a loop"


def test_a_link_to_nowhere_in_the_data_directory_is_an_error(load: Load, data_dir: Path) -> None:
    (data_dir / "mcp.json").symlink_to("nowhere.json")
    assert problem_of(load, None).message == "the link leads to a file that does not exist"


def test_a_path_through_a_file_is_missing(load: Load, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert problem_of(load, tmp_path / "file" / "c.json").message == "the file does not exist"


def test_a_path_with_a_nul_is_refused(load: Load) -> None:
    assert "NUL" in problem_of(load, Path("a\0b")).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(TEXT)
    path.chmod(0)
    assert "no permission to read the file" in problem_of(load, path).message


def test_a_name_that_is_too_long_is_refused(load: Load, tmp_path: Path) -> None:
    assert "cannot be read" in problem_of(load, tmp_path / ("x" * 5000)).message
