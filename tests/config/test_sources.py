from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.config import Configuration, load_config
from toolyard.config.sources.layers import layer_from_mapping, merge_layers
from toolyard.errors import ConfigError
from toolyard.types.server import Provenance, StdioSpec

Load = Callable[..., Configuration]
Write = Callable[[Path, object], Path]


def servers(**commands: str) -> dict[str, Any]:
    return {"mcpServers": {key: {"command": command} for key, command in commands.items()}}


def commands(configuration: Configuration) -> dict[str, str]:
    return {
        key: server.transport.command
        for key, server in configuration.servers.items()
        if isinstance(server.transport, StdioSpec)
    }


def test_overrides_win_over_the_environment_and_that_over_the_file(
    load: Load, tmp_path: Path, write: Write
) -> None:
    file = write(tmp_path / "c.json", servers(one="file", two="file", three="file"))
    env = {
        "TOOLYARD_CONFIG_JSON": json.dumps(
            servers(two="environment", three="environment", four="environment")
        )
    }
    configuration = load(file, env=env, overrides=servers(three="overrides", five="overrides"))
    assert commands(configuration) == {
        "one": "file",
        "two": "environment",
        "three": "overrides",
        "four": "environment",
        "five": "overrides",
    }


def test_every_entry_knows_where_it_came_from(load: Load, tmp_path: Path, write: Write) -> None:
    file = write(
        tmp_path / "c.json",
        '{\n"mcpServers": {\n"one": {"command": "x"}},\n'
        '"bundles": {\n"b": {"serverId": "one", "mode": "meta"}}}',
    )
    env = {"TOOLYARD_CONFIG_JSON": '\n\n{"mcpServers": {"two": {"command": "x"}}}'}
    configuration = load(file, env=env, overrides=servers(three="x"))
    assert configuration.file == str(file)
    assert configuration.bundles["b"].provenance == Provenance("file", str(file), 5)
    assert {key: server.provenance for key, server in configuration.servers.items()} == {
        "one": Provenance("file", str(file), 3),
        "two": Provenance("environment", None, 3),
        "three": Provenance("overrides", None, None),
    }


def test_an_entry_is_replaced_as_a_whole(load: Load, tmp_path: Path, write: Write) -> None:
    entry = {"command": "x", "args": ["y"], "label": "Label", "timeouts": {"connect": 1}}
    file = write(tmp_path / "c.json", {"mcpServers": {"one": entry}})
    server = load(file, overrides=servers(one="z")).servers["one"]
    assert replace(server.transport, folder=None) == StdioSpec("z")
    assert server.label is None
    assert server.timeouts.connect == 30


def test_an_entry_may_be_replaced_by_one_of_the_other_dialect(
    load: Load, tmp_path: Path, write: Write
) -> None:
    file = write(tmp_path / "c.json", servers(one="file"))
    strict = {"servers": {"one": {"trust": "trusted", "transport": {"type": "stdio", "command": "z"}}}}
    assert commands(load(file, overrides=strict)) == {"one": "z"}


def test_references_are_checked_after_the_merge(load: Load, tmp_path: Path, write: Write) -> None:
    file = write(tmp_path / "c.json", {"bundles": {"b": {"serverId": "late", "mode": "direct"}}})
    with pytest.raises(ConfigError) as exc_info:
        load(file)
    assert exc_info.value.problems[0].path == "bundles.b.serverId"
    assert load(file, overrides=servers(late="x")).bundles["b"].server_id == "late"


def test_trust_that_is_taken_away_above_makes_the_bundle_below_an_error(
    load: Load, tmp_path: Path, write: Write
) -> None:
    file = write(
        tmp_path / "c.json", {**servers(one="x"), "bundles": {"b": {"serverId": "one", "mode": "direct"}}}
    )
    assert load(file).bundles
    above = {"mcpServers": {"one": {"command": "x", "trust": "untrusted", "allowTools": ["a"]}}}
    with pytest.raises(ConfigError) as exc_info:
        load(file, overrides=above)
    (problem,) = exc_info.value.problems
    assert (problem.file, problem.path) == (str(file), "bundles.b.mode")


def test_the_problems_of_all_sources_are_told_at_once(load: Load, tmp_path: Path, write: Write) -> None:
    file = write(tmp_path / "c.json", '{"mcpServers": {"a": {"command": 1}}}')
    env = {"TOOLYARD_CONFIG_JSON": "{oops"}
    with pytest.raises(ConfigError) as exc_info:
        load(file, env=env, overrides={"mcpServers": {"b": {}}})
    assert [problem.file for problem in exc_info.value.problems] == [
        str(file),
        "TOOLYARD_CONFIG_JSON",
        "overrides",
    ]


def test_a_source_that_cannot_be_read_is_the_only_one_reported(
    load: Load, tmp_path: Path, write: Write
) -> None:
    file = write(tmp_path / "c.json", "{oops")
    overrides = {"bundles": {"b": {"serverId": "in-the-file", "mode": "meta"}}}
    with pytest.raises(ConfigError) as exc_info:
        load(file, overrides=overrides)
    assert [problem.file for problem in exc_info.value.problems] == [str(file)]


def test_an_error_names_file_line_path_values_and_a_hint(load: Load, tmp_path: Path, write: Write) -> None:
    file = write(tmp_path / "c.json", '{\n"servers": {"r": {\n"trust": "trustd"}}}')
    with pytest.raises(ConfigError) as exc_info:
        load(file)
    text = str(exc_info.value)
    assert f'{file}:3: servers.r.trust: expected "trusted" or "untrusted", found "trustd"' in text
    assert "hint: did you mean 'trusted'?" in text
    assert exc_info.value.exit_code == 2


def test_an_empty_variable_counts_as_not_set(load: Load) -> None:
    env = {"TOOLYARD_CONFIG_JSON": "", "TOOLYARD_CONFIG_PATH": "", "MCP_CONFIG_PATH": ""}
    assert dict(load(env=env).servers) == {}


def test_the_file_is_chosen_in_the_documented_order(
    load: Load, tmp_path: Path, project: Path, data_dir: Path, write: Write
) -> None:
    explicit = write(tmp_path / "explicit.json", servers(a="explicit"))
    ours = write(tmp_path / "ours.json", servers(a="TOOLYARD_CONFIG_PATH"))
    other_file = write(tmp_path / "theirs.json", servers(a="MCP_CONFIG_PATH"))
    write(project / ".mcp.json", servers(a="discovered"))
    write(data_dir / "mcp.json", servers(a="data"))
    env = {"TOOLYARD_CONFIG_PATH": str(ours), "MCP_CONFIG_PATH": str(other_file)}
    assert commands(load(explicit, env=env)) == {"a": "explicit"}
    assert commands(load(env=env)) == {"a": "TOOLYARD_CONFIG_PATH"}
    assert commands(load(env={"MCP_CONFIG_PATH": str(other_file)})) == {"a": "MCP_CONFIG_PATH"}
    assert commands(load()) == {"a": "discovered"}
    (project / ".mcp.json").unlink()
    assert commands(load()) == {"a": "data"}
    (data_dir / "mcp.json").unlink()
    nothing = load()
    assert (commands(nothing), nothing.file) == ({}, None)


def test_only_one_file_is_read(load: Load, tmp_path: Path, data_dir: Path, write: Write) -> None:
    write(data_dir / "mcp.json", servers(b="data"))
    assert commands(load(write(tmp_path / "c.json", servers(a="x")))) == {"a": "x"}


def test_a_relative_path_starts_from_the_working_directory(load: Load, project: Path, write: Write) -> None:
    write(project / "sub" / "c.json", servers(a="x"))
    assert commands(load("sub/c.json")) == {"a": "x"}
    assert commands(load(env={"MCP_CONFIG_PATH": "sub/c.json"})) == {"a": "x"}


def test_an_explicit_path_that_is_missing_is_an_error_that_names_it(load: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as exc_info:
        load(tmp_path / "nowhere.json")
    (problem,) = exc_info.value.problems
    assert (problem.file, problem.message) == (str(tmp_path / "nowhere.json"), "the file does not exist")


@pytest.mark.parametrize("variable", ["TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH"])
def test_a_variables_path_that_is_missing_is_an_error_that_names_both(
    load: Load, tmp_path: Path, variable: str
) -> None:
    with pytest.raises(ConfigError) as exc_info:
        load(env={variable: str(tmp_path / "nowhere.json")})
    assert str(tmp_path / "nowhere.json") in str(exc_info.value)
    assert variable in str(exc_info.value)


def test_default_places_that_are_empty_mean_no_servers(tmp_path: Path) -> None:
    configuration = load_config(env={}, cwd=tmp_path, data_dir=tmp_path / "never-made")
    assert dict(configuration.servers) == {}
    assert configuration.hints == ()


def test_the_data_directory_may_be_named_by_the_environment(
    tmp_path: Path, project: Path, write: Write
) -> None:
    write(tmp_path / "elsewhere" / "mcp.json", servers(a="x"))
    env = {"TOOLYARD_DATA_DIR": str(tmp_path / "elsewhere")}
    assert commands(load_config(env=env, cwd=project)) == {"a": "x"}


ids = st.text(alphabet="abcdef", min_size=1, max_size=2)
layers = st.lists(st.dictionaries(ids, st.sampled_from(["x", "y", "z"]), max_size=4), max_size=4)


def merge_parts(parts: list[dict[str, str]]) -> dict[str, str]:
    return commands(merge_layers([layer_from_mapping(servers(**part), "code") for part in parts], {}))


@settings(deadline=None)
@given(layers)
def test_merging_is_a_dictionary_update_from_the_lowest_to_the_highest(parts: list[dict[str, str]]) -> None:
    expected: dict[str, str] = {}
    for part in parts:
        expected |= part
    assert merge_parts(parts) == expected


@settings(deadline=None)
@given(layers, layers, layers)
def test_merging_is_associative_and_a_layer_twice_is_a_layer_once(
    one: list[dict[str, str]], two: list[dict[str, str]], three: list[dict[str, str]]
) -> None:
    merged_left = merge_parts([merge_parts([*one, *two]), *three])
    right = merge_parts([*one, merge_parts([*two, *three])])
    assert merged_left == right == merge_parts([*one, *two, *three])
    assert merge_parts([*one, *one]) == merge_parts(one)


@settings(deadline=None)
@given(
    st.dictionaries(ids, st.just("file")),
    st.dictionaries(ids, st.just("environment")),
    st.dictionaries(ids, st.just("overrides")),
)
def test_the_highest_source_that_has_an_entry_gives_it(
    tmp_path_factory: Any, file: dict[str, str], environment: dict[str, str], overrides: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("law")
    (folder / "c.json").write_text(json.dumps(servers(**file)))
    env = {"TOOLYARD_CONFIG_JSON": json.dumps(servers(**environment))}
    configuration = load_config(
        folder / "c.json", env=env, overrides=servers(**overrides), cwd=folder, data_dir=folder
    )
    for key, server in configuration.servers.items():
        highest = overrides.get(key) or environment.get(key) or file[key]
        assert server.provenance.source == highest
    assert set(configuration.servers) == {*file, *environment, *overrides}
