"""Commands of a user without privileges, for whom the kernel enforces permissions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unprivileged_user import run_as_user

CONFIG = '{"mcpServers": {"one": {"command": "true"}}}'


@pytest.mark.parametrize(
    "command",
    [("connect", "cursor", "--write"), ("import", "other.json", "--yes")],
    ids=lambda words: words[0],
)
def test_a_read_only_file_is_left_alone(user_folder: Path, command: tuple[str, ...]) -> None:
    file = user_folder / "mcp.json"
    file.write_text(CONFIG)
    file.chmod(0o444)
    (user_folder / "other.json").write_text(CONFIG.replace("one", "two"))
    result = run_as_user(user_folder, "-m", "toolyard", *command, "--to", "mcp.json")
    assert (result.returncode, f"{file} cannot be written: the file is read-only" in result.stderr) == (
        2,
        True,
    ), result.stderr
    assert file.read_text() == CONFIG
    assert not list(user_folder.glob("*.bak-*"))


@pytest.mark.parametrize("command", ["servers", "settings", "serve"])
def test_a_data_directory_that_cannot_be_read_is_not_treated_as_empty(
    user_folder: Path, command: str
) -> None:
    data = user_folder / "home" / "data"
    data.mkdir(parents=True)
    (data / "toolyard.toml").write_text('people_mode = "password"')
    data.chmod(0o000)
    result = run_as_user(user_folder / "home", "-m", "toolyard", command, TOOLYARD_DATA_DIR=str(data))
    assert (result.returncode, f"no permission to read {data}" in result.stderr) == (2, True), result.stderr
    assert "hint: " in result.stderr


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_data_directory_that_is_not_a_directory_is_named(user_folder: Path, kind: str) -> None:
    data = user_folder / "data"
    if kind == "file":
        data.touch()
    else:
        os.symlink("nowhere", data)
    result = run_as_user(user_folder, "-m", "toolyard", "users", "list", TOOLYARD_DATA_DIR=str(data))
    expected = "is not a directory" if kind == "file" else "is a link to a directory that does not exist"
    assert (result.returncode, f"{data} {expected}" in result.stderr) == (2, True), result.stderr


def test_credentials_that_cannot_be_read_are_named(user_folder: Path) -> None:
    credentials = user_folder / "home" / "credentials"
    credentials.mkdir(parents=True)
    credentials.chmod(0o000)
    result = run_as_user(
        user_folder / "home", "-m", "toolyard", "settings", CREDENTIALS_DIRECTORY=str(credentials)
    )
    expected = f"{credentials / 'secret_key'}: no permission to read the file"
    assert (result.returncode, expected in result.stderr) == (2, True), result.stderr
