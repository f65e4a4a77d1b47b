"""Our entry in a file of another program: everything else in it stays, or nothing is written."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from toolyard.config.file_edits.entry_edits import (
    EditEffect,
    EntryEdit,
    FileEditPlan,
    plan_edits,
    resolve_entry_path,
    write_entry,
)
from toolyard.config.file_edits.text_edits import EditRefused, find_comments, remove_member, set_member
from toolyard.config.sources.json_document import read_json
from toolyard.errors import ConfigError


def plan_entry(file: Path, path: tuple[str, ...], entry: Any) -> FileEditPlan:
    return plan_edits(file, [EntryEdit(path, entry)])


PATH = ("mcpServers", "toolyard")
ENTRY: dict[str, Any] = {"command": "toolyard", "args": ["stdio"]}

WITH_COMMENTS = """{
    // my servers
    "mcpServers": { // all of them
        "files": { "command": "npx" }, /* from npm */
        "old": { "command": "x" } // the last
        // and nothing else
    },
    "theme": "dark",
}
"""


# JSON.


def test_an_entry_is_added_as_a_person_would_and_taken_out_without_a_trace() -> None:
    edited_text = set_member(WITH_COMMENTS, PATH, ENTRY)
    assert (
        """        "old": { "command": "x" }, // the last
        // and nothing else
        "toolyard": {
            "command": "toolyard",
            "args": [
                "stdio"
            ]
        }
    },
"""
        in edited_text
    )
    restored_text = remove_member(edited_text, PATH)
    assert restored_text == WITH_COMMENTS


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x": 1}', '{"x": 1, "a": {"b": 1}}'),
        ('{"x": 1,}', '{"x": 1, "a": {"b": 1},}'),
        ('{"a": {}}', '{"a": {\n  "b": 1\n}}'),
        ('{"a":{"c":2}}', '{"a":{"c":2, "b": 1}}'),
        ('{"a":{"b":2}}', '{"a":{"b":1}}'),
        ('{\n\t"x": [1, 2]\n}\n', '{\n\t"x": [1, 2],\n\t"a": {\n\t\t"b": 1\n\t}\n}\n'),
        ('{\r\n "x": "}"\r\n}\r\n', '{\r\n "x": "}",\r\n "a": {\r\n  "b": 1\r\n }\r\n}\r\n'),
        ('{\n  "a": { /* none */ }\n}', '{\n  "a": { /* none */\n    "b": 1\n  }\n}'),
    ],
)
def test_the_layout_of_the_file_is_followed(text: str, after: str) -> None:
    assert set_member(text, ("a", "b"), 1) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{"b": 1}', "{}"),
        ('{"b": 1, "c": 2}', '{"c": 2}'),
        ('{"c": 2, "b": 1}', '{"c": 2}'),
        ('{\n  "c": 2, // two\n  "b": {"x": 1}\n}', '{\n  "c": 2 // two\n}'),
        ('{\n  "b": 1,\n  "c": 2\n}', '{\n  "c": 2\n}'),
        ('{\n  "c": 2,\n  "b": 1,\n}', '{\n  "c": 2,\n}'),
    ],
)
def test_a_removed_entry_takes_its_comma_along(text: str, after: str) -> None:
    assert remove_member(text, ("b",)) == after


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"toolyard": {"command": "x" /* mine */}}}',
        '{"mcpServers": {"toolyard": // mine\n {"command": "x"}}}',
        '{"mcpServers": []}',
        '{"mcpServers": null}',
        "[]",
    ],
    ids=["a comment inside", "a comment before", "a list", "null", "no object"],
)
def test_edits_that_would_lose_data_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    for entry in (ENTRY, None):
        if entry is None and "toolyard" not in text:
            continue
        if "//" in text and entry is not None:
            continue  # A value that is replaced alone leaves the text before it.
        with pytest.raises(EditRefused) as exc_info:
            plan_entry(file, PATH, entry)
        assert exc_info.value.problems[0].file == str(file)
        assert exc_info.value.problems[0].hint == "edit the file by hand"


def test_a_key_that_stands_twice_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"toolyard": {"command": "a"}, "toolyard": {"command": "b"}}}')
    with pytest.raises(EditRefused):
        plan_entry(file, PATH, None)


_words = st.text('abc/*"\\{}[],: \n', max_size=6)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_words, inner, max_size=2),
    max_leaves=6,
)
_gaps = st.sampled_from(["", " ", "\n", "\n  ", " // note, {\n", " /* } */ ", "\t"])


@st.composite
def _write_odd_json(draw: st.DrawFn, value: Any) -> str:
    """A strategy for a value as people might write it, with comments and odd spaces anywhere."""
    if isinstance(value, dict | list):
        pairs = isinstance(value, dict)
        items: list[Any] = [*value.items()] if pairs else [*value]  # type: ignore[misc]
        parts: list[str] = []
        for item in items:
            head = f"{json.dumps(item[0])}{draw(_gaps)}:{draw(_gaps)}" if pairs else ""
            body = draw(_write_odd_json(item[1] if pairs else item))
            parts.append(f"{draw(_gaps)}{head}{body}{draw(_gaps)}")
        comma = draw(st.sampled_from(["", ","])) if parts else ""
        open_, close = "{}" if pairs else "[]"
        return f"{open_}{','.join(parts)}{comma}{draw(_gaps)}{close}"
    return json.dumps(value)


@given(st.data(), st.dictionaries(_words, _values, max_size=3), st.dictionaries(_words, _values, max_size=2))
def test_nothing_else_changes_in_any_file(
    data: st.DataObject, around: dict[str, Any], servers: dict[str, Any]
) -> None:
    root = {**around, "mcpServers": servers}
    text = data.draw(_gaps) + data.draw(_write_odd_json(root)) + data.draw(_gaps)
    edited_text = set_member(text, PATH, ENTRY)
    assert read_json(edited_text).root == {**root, "mcpServers": {**servers, "toolyard": ENTRY}}
    assert find_comments(edited_text) == find_comments(text)
    restored_text = remove_member(edited_text, PATH)
    assert read_json(restored_text).root == root
    assert find_comments(restored_text) == find_comments(text)


# TOML.

CODEX = """model = "o5"  # the good one

[mcp_servers.docs]
url = "https://docs.example/mcp"

# about profiles
[profiles.work]
model = "o5-mini"
"""
TABLE = ("mcp_servers", "toolyard")


def test_a_table_is_added_replaced_in_its_place_and_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(CODEX)
    plan = plan_entry(file, TABLE, ENTRY)
    assert plan.after.decode() == (
        CODEX + '\n[mcp_servers.toolyard]\ncommand = "toolyard"\nargs = ["stdio"]\n'
    )
    write_entry(plan, private=False)
    file.write_text(file.read_text() + "\n# the end\n[last]\nx = 1\n")
    http = {"url": "https://yard.example/mcp", "http_headers": {"Authorization": "Bearer ty_x"}}
    write_entry(plan_entry(file, TABLE, http), private=True)
    after = tomllib.loads(file.read_text())
    assert after["mcp_servers"]["toolyard"] == http
    assert file.read_text().index("toolyard") < file.read_text().index("# the end")
    text_after = plan_entry(file, TABLE, None)
    assert text_after.after.decode() == f"{CODEX}\n\n# the end\n[last]\nx = 1\n"


def test_a_table_goes_with_those_below_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[mcp_servers."toolyard"]\nurl = "u"\n[mcp_servers.toolyard.http_headers]\na = "b"\n[z]\ny = 1\n'
    )
    assert plan_entry(file, TABLE, None).after == b"[z]\ny = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { toolyard = { url = "u" } }\n',
        '[mcp_servers]\ntoolyard = { url = "u" }\n',
        '[mcp_servers.toolyard]\nurl = "u" # mine\n',
        '[mcp_servers]\ntoolyard.url = "u"\n',
    ],
)
def test_a_table_that_is_written_in_another_way_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    for entry in (ENTRY, None):
        with pytest.raises(EditRefused):
            plan_entry(file, TABLE, entry)


def test_a_text_of_several_lines_that_looks_like_a_table_does_not_mislead(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    text = 'x = """\n[mcp_servers.toolyard]\nurl = "inside"\n"""\n'
    file.write_text(text)
    after = plan_entry(file, ("mcp_servers", "other"), ENTRY).after.decode()
    assert after.startswith(text)
    with pytest.raises(EditRefused):
        plan_entry(file, TABLE, ENTRY)


# Writing.


def test_a_file_is_written_in_one_step_with_a_backup_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("\ufeff" + WITH_COMMENTS)
    file.chmod(0o644)
    plan = plan_entry(file, PATH, ENTRY)
    assert plan.change is EditEffect.ADDED
    backup = write_entry(plan, private=False)
    assert backup is not None
    assert backup.read_text() == "\ufeff" + WITH_COMMENTS
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert file.read_bytes().startswith(b"\xef\xbb\xbf")
    assert plan_entry(file, PATH, ENTRY).change is EditEffect.SAME
    private = plan_entry(file, PATH, {"url": "u"})
    assert private.change is EditEffect.REPLACED
    write_entry(private, private=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert min(path.name for path in tmp_path.iterdir()) == "mcp.json"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    real.write_text("{}")
    link.symlink_to(real)
    write_entry(plan_entry(link, PATH, ENTRY), private=True)
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"mcpServers": {"toolyard": ENTRY}}


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    plan = plan_entry(file, PATH, ENTRY)
    file.write_text("{}")
    with pytest.raises(ConfigError, match="changed while"):
        write_entry(plan, private=False)
    assert file.read_text() == "{}"


def test_a_file_that_cannot_be_read_is_named_and_never_replaced(tmp_path: Path) -> None:
    for name, text in (("mcp.json", "{"), ("config.toml", "x =")):
        file = tmp_path / name
        file.write_text(text)
        with pytest.raises(ConfigError) as error:
            plan_entry(file, PATH, ENTRY)
        assert error.value.problems[0].file == str(file)
        assert file.read_text() == text


def test_a_file_that_is_empty_or_not_there_is_made(tmp_path: Path) -> None:
    for name in ("absent.json", "empty.json"):
        file = tmp_path / name
        if name == "empty.json":
            file.write_text("\n")
        plan = plan_entry(file, PATH, ENTRY)
        assert json.loads(plan.after) == {"mcpServers": {"toolyard": ENTRY}}
        assert plan.after.endswith(b"}\n")
    assert plan_entry(tmp_path / "absent.json", PATH, None).change is EditEffect.ABSENT


def test_opencode_keeps_its_servers_in_one_of_two_places(tmp_path: Path) -> None:
    file = tmp_path / "opencode.json"
    assert resolve_entry_path(file, ("mcp", "toolyard")) == ("mcp", "toolyard")
    file.write_text('{"mcp": {"servers": {}}}')
    assert resolve_entry_path(file, ("mcp", "toolyard")) == ("mcp", "servers", "toolyard")
    file.write_text('{"mcp": {"servers": {"type": "local", "command": ["x"]}}}')
    assert resolve_entry_path(file, ("mcp", "toolyard")) == ("mcp", "toolyard")


def test_a_file_with_all_that_was_ever_said_is_not_too_long(tmp_path: Path) -> None:
    file = tmp_path / ".claude.json"
    document = {"history": ["x" * 6_000_000], "mcpServers": {}}
    file.write_text(json.dumps(document), "utf-8")
    plan = plan_entry(file, PATH, ENTRY)
    write_entry(plan, private=False)
    assert json.loads(file.read_text("utf-8")) == {**document, "mcpServers": {"toolyard": ENTRY}}
