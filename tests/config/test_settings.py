from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolyard.config import (
    SETTINGS,
    LogLevel,
    PeopleMode,
    Settings,
    WriteTools,
    default_data_dir,
    load_settings,
)
from toolyard.config.settings.table import Setting
from toolyard.errors import ConfigError, Problem

Write = Callable[[Path, object], Path]


def problems(data_dir: Path, **options: Any) -> list[Problem]:
    with pytest.raises(ConfigError) as exc_info:
        load_settings(data_dir, **{"env": {}, **options})
    return list(exc_info.value.problems)


def test_without_file_and_variables_the_defaults_hold(data_dir: Path) -> None:
    settings = load_settings(data_dir, env={})
    assert settings == Settings()
    assert (settings.people_mode, settings.write_tools) == (PeopleMode.NONE, WriteTools.REJECT)
    assert (settings.result_limit, settings.meta_description_limit, settings.meta_call_timeout) == (
        64_000,
        400,
        30,
    )
    assert (settings.naming_template, settings.host) == ("{server}_{tool}", "127.0.0.1")
    assert {row.origin for row in settings.table()} == {"default"}


def test_the_file_is_read_and_its_lines_are_the_origins(data_dir: Path, write: Write) -> None:
    file = write(
        data_dir / "toolyard.toml",
        """# ours
people_mode = "password"
port = 9000

warm = false
admins = ["ada", "bob"]
meta_call_timeout = 5
workspace_root = "work"
public_url = "https://yard.example.com/"
""",
    )
    settings = load_settings(data_dir, env={})
    assert (settings.people_mode, settings.port, settings.warm) == (PeopleMode.PASSWORD, 9000, False)
    assert (settings.admins, settings.meta_call_timeout) == (("ada", "bob"), 5.0)
    assert settings.workspace_root == data_dir / "work"
    assert settings.public_url == "https://yard.example.com"
    assert settings.origins["port"] == f"{file}:3"
    assert settings.origins["warm"] == f"{file}:5"


def test_a_variable_wins_over_the_file_and_overrides_over_both(data_dir: Path, write: Write) -> None:
    write(data_dir / "toolyard.toml", 'port = 1\nhost = "a"\nlog_level = "debug"\n')
    env = {"TOOLYARD_PORT": "2", "TOOLYARD_HOST": "b"}
    settings = load_settings(data_dir, env=env, overrides={"port": 3, "model": None})
    assert (settings.port, settings.host, settings.log_level) == (3, "b", LogLevel.DEBUG)
    assert (settings.origins["port"], settings.origins["host"]) == ("overrides", "TOOLYARD_HOST")
    assert settings.model is None


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TOOLYARD_WARM", "no", "warm", False),
        ("TOOLYARD_WARM", "0", "warm", False),
        ("TOOLYARD_WARM", "True", "warm", True),
        ("TOOLYARD_ADMINS", "ada, bob ,", "admins", ("ada", "bob")),
        ("TOOLYARD_RESULT_LIMIT", "5000", "result_limit", 5000),
        ("TOOLYARD_META_CALL_TIMEOUT", "2.5", "meta_call_timeout", 2.5),
        ("TOOLYARD_WRITE_TOOLS", "ask", "write_tools", WriteTools.ASK),
        ("TOOLYARD_DATABASE_URL", "postgresql://u:p@h/d", "database_url", "postgresql://u:p@h/d"),
        ("TOOLYARD_HOST", "", "host", "127.0.0.1"),
    ],
)
def test_every_kind_can_be_set_by_a_variable(
    data_dir: Path, variable: str, text: str, name: str, value: object
) -> None:
    assert getattr(load_settings(data_dir, env={variable: text}), name) == value


def test_every_setting_has_a_variable_and_a_description() -> None:
    names = [row.name for row in SETTINGS]
    assert len(names) == len(set(names)) >= 30
    for row in SETTINGS:
        assert row.variable == f"TOOLYARD_{row.name.upper()}"
        assert row.description
        assert hasattr(Settings(), row.name)


def test_all_problems_are_told_at_once_each_with_file_and_line(data_dir: Path, write: Write) -> None:
    file = write(
        data_dir / "toolyard.toml",
        'people_mode = "open"\nport = "80"\nresult_limit = 5\nwarm = 1\nadmins = "ada"\n"prot" = 1\n'
        "[guard]\nallow = []\n",
    )
    found_problems = problems(
        data_dir, env={"TOOLYARD_LOG_LEVEL": "loud"}, overrides={"portt": 1, "public_url": "x"}
    )
    assert [(problem.file, problem.line, problem.path) for problem in found_problems] == [
        (str(file), 1, "people_mode"),
        (str(file), 2, "port"),
        (str(file), 3, "result_limit"),
        (str(file), 4, "warm"),
        (str(file), 5, "admins"),
        (str(file), 6, "prot"),
        (str(file), 7, "guard"),
        ("TOOLYARD_LOG_LEVEL", None, "log_level"),
        ("overrides", None, "portt"),
        ("overrides", None, "public_url"),
    ]
    assert 'expected "none" or "proxy" or "password" or "oidc", found \'open\'' in found_problems[0].message
    assert "expected a whole number, from 0 to 65535, found '80'" in found_problems[1].message


@pytest.mark.parametrize(
    ("configured_url", "read"),
    [
        ("https://Yard.Example.org/", "https://yard.example.org"),
        ("https://m\u00fcnchen.example:8443", "https://xn--mnchen-3ya.example:8443"),
        ("http://[2001:DB8::1]:8420", "http://[2001:db8::1]:8420"),
    ],
)
def test_the_public_address_is_kept_as_browsers_write_it(
    data_dir: Path, configured_url: str, read: str
) -> None:
    settings = load_settings(data_dir, env={"TOOLYARD_PUBLIC_URL": configured_url})
    assert settings.public_url == read


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/toolyard",
        "https://example.org?a=1",
        "https://example.org#a",
        "https://ann@example.org",
        "https://*.example.org",
        "https://a\u3002.example",
    ],
)
def test_a_public_address_at_which_nothing_would_work_is_refused(data_dir: Path, address: str) -> None:
    [problem] = problems(data_dir, env={"TOOLYARD_PUBLIC_URL": address})
    assert problem.path == "public_url"
    assert "expected an http(s) URL without a path" in problem.message


def test_names_that_no_request_carries_are_refused(data_dir: Path) -> None:
    hosts = ("Yard", "other.example:9000", "2001:db8::1", "m\u00fcnchen.example")
    settings = load_settings(data_dir, env={"TOOLYARD_ALLOWED_HOSTS": ",".join(hosts)})
    assert settings.allowed_hosts == (
        *("yard", "other.example:9000", "[2001:db8::1]"),
        "xn--mnchen-3ya.example",
    )
    for wrong in ("https://yard.example", "*.example", "yard.example/ui"):
        [problem] = problems(data_dir, overrides={"allowed_hosts": ["yard.example", wrong]})
        assert problem.path == "allowed_hosts"
        assert "expected a list of host names" in problem.message
        assert wrong in problem.message


def test_an_unknown_setting_comes_with_a_suggestion(data_dir: Path, write: Write) -> None:
    write(data_dir / "toolyard.toml", "writetools = 1\nxyzzy = 1\n")
    first, second = problems(data_dir)
    assert (first.message, first.hint) == ("unknown setting", "did you mean 'write_tools'?")
    assert "toolyard settings" in (second.hint or "")


@pytest.mark.parametrize(
    ("text", "line"), [("port = \n", 1), ("a = 1\nb = [1,\n", None), ("x = 1\nport 5\n", 2)]
)
def test_invalid_toml_is_an_error_with_its_line(
    data_dir: Path, write: Write, text: str, line: int | None
) -> None:
    file = write(data_dir / "toolyard.toml", text)
    (problem,) = problems(data_dir)
    assert problem.file == str(file)
    assert "not valid TOML" in problem.message
    if line is not None:
        assert problem.line == line


def test_a_file_of_settings_that_cannot_be_read_is_an_error(data_dir: Path) -> None:
    (data_dir / "toolyard.toml").mkdir()
    assert "directory" in problems(data_dir)[0].message


def test_secrets_are_never_shown(data_dir: Path) -> None:
    env = {
        "TOOLYARD_SECRET_KEY": "sk-secret",
        "TOOLYARD_DATABASE_URL": "postgresql://u:sk-secret@h/d",
        "TOOLYARD_MODEL_API_KEY": "sk-secret",
        "TOOLYARD_OIDC_CLIENT_SECRET": "sk-secret",
    }
    settings = load_settings(data_dir, env=env)
    assert settings.secret_key == "sk-secret"
    assert "sk-secret" not in repr(settings)
    shown_values = {row.setting.name: row.shown for row in settings.table()}
    assert "sk-secret" not in repr(shown_values)
    assert (shown_values["secret_key"], shown_values["oidc_issuer"]) == ("(set, hidden)", "(not set)")
    with pytest.raises(ConfigError) as exc_info:
        load_settings(data_dir, env={}, overrides={"secret_key": ["sk-secret"]})
    assert "sk-secret" not in str(exc_info.value)


SECRET_SETTINGS = [row for row in SETTINGS if row.secret]


@pytest.mark.parametrize("row", SECRET_SETTINGS, ids=lambda row: row.name)
def test_every_secret_can_come_from_a_file(row: Setting, data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / row.name).write_text("from-a-file\n")
    for env in (
        {f"{row.variable}_FILE": str(tmp_path / row.name)},
        {"CREDENTIALS_DIRECTORY": str(tmp_path)},
        {f"{row.variable}_FILE": str(tmp_path / row.name), "CREDENTIALS_DIRECTORY": "/nowhere"},
    ):
        settings = load_settings(data_dir, env=env)
        assert getattr(settings, row.name) == "from-a-file"
        assert settings.origins[row.name] == str(tmp_path / row.name)
        assert not settings.hints


def test_a_file_of_a_secret_that_every_user_can_read_is_reported(data_dir: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key")
        file.write_text("from-a-file\n")
        env = {"TOOLYARD_SECRET_KEY_FILE": str(file)}
        for folder_mode, file_mode, modes in (
            (0o755, 0o644, True),
            (0o755, 0o640, False),
            (0o700, 0o644, False),
        ):
            os.chmod(folder, folder_mode)
            file.chmod(file_mode)
            hints = load_settings(data_dir, env=env).hints
            assert [hint.file for hint in hints] == ([str(file)] if modes else [])
            assert all("all users of this machine can read this file" in hint.message for hint in hints)


def test_a_variable_wins_over_a_credential_and_a_credential_over_the_settings_file(
    data_dir: Path, write: Write, tmp_path: Path
) -> None:
    write(data_dir / "toolyard.toml", 'secret_key = "of-toml"\n')
    (tmp_path / "secret_key").write_text("of-systemd")
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert load_settings(data_dir, env=env).secret_key == "of-systemd"
    assert load_settings(data_dir, env={**env, "TOOLYARD_SECRET_KEY": "of-env"}).secret_key == "of-env"


def test_a_file_of_a_secret_that_cannot_be_used_is_named_and_not_shown(
    data_dir: Path, tmp_path: Path
) -> None:
    absent, empty, full = tmp_path / "absent", tmp_path / "empty", tmp_path / "full"
    empty.write_text("\n")
    full.write_text("sk-secret")
    (missing,) = problems(data_dir, env={"TOOLYARD_SECRET_KEY_FILE": str(absent)})
    assert (missing.file, missing.message) == (str(absent), "the file does not exist")
    (blank,) = problems(data_dir, env={"TOOLYARD_SECRET_KEY_FILE": str(empty)})
    assert (blank.file, blank.path) == (str(empty), "secret_key")
    both = {"TOOLYARD_SECRET_KEY_FILE": str(full), "TOOLYARD_SECRET_KEY": "sk-secret"}
    (twice,) = problems(data_dir, env=both)
    assert twice.message == "TOOLYARD_SECRET_KEY is also set"
    assert "sk-secret" not in str(twice)


def test_only_secrets_come_from_files(data_dir: Path) -> None:
    (hint,) = load_settings(data_dir, env={"TOOLYARD_PORT_FILE": "/x"}).hints
    assert hint.file == "TOOLYARD_PORT_FILE"


def test_the_table_shows_value_and_origin_as_people_read_them(data_dir: Path) -> None:
    env = {"TOOLYARD_WARM": "off", "TOOLYARD_ADMINS": "a,b"}
    rows = {row.setting.name: (row.shown, row.origin) for row in load_settings(data_dir, env=env).table()}
    assert rows["warm"] == ("false", "TOOLYARD_WARM")
    assert rows["admins"] == ("a, b", "TOOLYARD_ADMINS")
    assert rows["port"] == ("8420", "default")
    assert rows["people_mode"] == ("none", "default")


def test_a_variable_that_nearly_names_a_setting_is_remarked_on(data_dir: Path) -> None:
    env = {
        "TOOLYARD_PROT": "1",
        "TOOLYARD_DATA_DIR": "/x",
        "TOOLYARD_CONFIG_PATH": "/y",
        "TOOLYARD_QQQQQ_ZZZ_1": "1",
    }
    (hint,) = load_settings(data_dir, env=env).hints
    assert (hint.file, hint.hint) == ("TOOLYARD_PROT", "did you mean 'TOOLYARD_PORT'?")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_the_data_directory_is_named_or_the_platforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_data_dir({"TOOLYARD_DATA_DIR": str(tmp_path)}) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert default_data_dir({"TOOLYARD_DATA_DIR": "here"}) == tmp_path / "here"
    assert default_data_dir({}).name == "toolyard"
    assert default_data_dir({}).is_absolute()
    monkeypatch.setenv("TOOLYARD_DATA_DIR", str(tmp_path / "real"))
    assert default_data_dir() == tmp_path / "real"


def test_settings_are_found_in_the_data_directory_that_the_environment_names(
    tmp_path: Path, write: Write
) -> None:
    write(tmp_path / "toolyard.toml", "port = 7\n")
    assert load_settings(env={"TOOLYARD_DATA_DIR": str(tmp_path)}).port == 7


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_data_directory_that_everyone_can_write_to_is_refused(data_dir: Path, mode: int) -> None:
    data_dir.mkdir(exist_ok=True)
    data_dir.chmod(mode)
    (problem,) = problems(data_dir, env={})
    assert problem.file == str(data_dir)
    assert f"mode {mode:o}" in problem.message
    assert f"chmod o-w {data_dir}" in str(problem.hint)
    assert load_settings(data_dir, env={"TOOLYARD_DATA_DIR_SHARED": "1"}).hints == ()


@pytest.mark.parametrize("exists", [True, False])
def test_a_data_directory_that_everyone_can_replace_is_refused(tmp_path: Path, exists: bool) -> None:
    parent = tmp_path / "open"
    (parent / "between" / "data").mkdir(parents=True)
    folder = parent / "between" / ("data" if exists else "later")
    parent.chmod(0o777)
    (problem,) = problems(folder, env={})
    assert f"{parent} is writable for all (mode 777)" in problem.message
    assert f"chmod o-w {parent}" in str(problem.hint)
    assert load_settings(folder, env={"TOOLYARD_DATA_DIR_SHARED": "1"}).hints == ()
    parent.chmod(0o1777)  # Like /tmp: users cannot rename files of others.
    assert load_settings(folder, env={}).hints == ()


def test_a_data_directory_through_a_link_that_everyone_can_replace_is_refused(
    tmp_path: Path, data_dir: Path
) -> None:
    data_dir.mkdir(exist_ok=True)
    parent = tmp_path / "open"
    parent.mkdir()
    (parent / "link").symlink_to(data_dir)
    assert load_settings(parent / "link", env={}).hints == ()
    parent.chmod(0o777)
    (problem,) = problems(parent / "link", env={})
    assert f"{parent} is writable for all (mode 777)" in problem.message


@pytest.mark.parametrize("name", ["mcp.json", "toolyard.toml", "toolyard.db"])
def test_a_file_of_the_data_directory_that_everyone_can_write_to_is_refused(
    data_dir: Path, name: str
) -> None:
    """Servers in ``mcp.json`` are started without approval."""
    data_dir.mkdir(exist_ok=True)
    file = data_dir / name
    file.touch()
    file.chmod(0o646)
    (problem,) = problems(data_dir, env={})
    assert (problem.file, problem.hint) == (str(file), f"check its contents, then run: chmod o-w {file}")
    assert load_settings(data_dir, env={"TOOLYARD_DATA_DIR_SHARED": "1"}).hints == ()
    file.chmod(0o664)
    assert load_settings(data_dir, env={}).hints == ()


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770, 0o2775])
def test_a_data_directory_that_a_group_can_write_to_is_accepted(data_dir: Path, mode: int) -> None:
    """Containers that run with any user id depend on it."""
    data_dir.mkdir(exist_ok=True)
    data_dir.chmod(mode)
    assert load_settings(data_dir, env={}).hints == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_data_directory_of_another_user_is_remarked_on(data_dir: Path) -> None:
    data_dir.mkdir(exist_ok=True)
    os.chown(data_dir, 12345, 12345)
    (hint,) = load_settings(data_dir, env={}).hints
    assert "belongs to another user (id 12345)" in hint.message
