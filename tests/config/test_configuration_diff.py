from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.config import ConfigDiff, Configuration, diff_configurations, parse_config


def config(**commands: str) -> Configuration:
    return parse_config({"mcpServers": {key: {"command": value} for key, value in commands.items()}})


def test_added_removed_and_changed_servers_are_told_apart() -> None:
    changes = diff_configurations(config(a="x", b="x", c="x"), config(b="x", c="y", d="x"))
    assert changes == ConfigDiff(added=("d",), removed=("a",), changed=("c",))


def test_an_entry_that_only_moved_has_not_changed() -> None:
    one = parse_config('{"mcpServers": {"a": {"command": "x"}}}')
    two = parse_config('{\n\n// a comment\n"mcpServers": {\n"a": {"command": "x"}}}')
    assert one.servers["a"].provenance != two.servers["a"].provenance
    assert not diff_configurations(one, two)


def test_another_value_of_a_variable_is_a_change() -> None:
    source = {"mcpServers": {"a": {"command": "x", "env": {"K": "${V}"}}}}
    assert diff_configurations(
        parse_config(source, env={"V": "1"}), parse_config(source, env={"V": "2"})
    ).changed == ("a",)


def test_a_server_that_gets_disabled_has_changed() -> None:
    source = {"mcpServers": {"a": {"command": "${V}"}}}
    assert diff_configurations(parse_config(source, env={"V": "1"}), parse_config(source)).changed == ("a",)


def test_bundles_that_come_go_or_differ_are_named() -> None:
    def with_bundles(**modes: str) -> Configuration:
        bundles = {key: {"serverId": "a", "mode": mode} for key, mode in modes.items()}
        return parse_config({"mcpServers": {"a": {"command": "x"}}, "bundles": bundles})

    changes = diff_configurations(
        with_bundles(gone="meta", same="meta", other="meta"),
        with_bundles(same="meta", other="direct", new="meta"),
    )
    assert set(changes.bundles) == {"gone", "other", "new"}
    assert (changes.added, changes.removed, changes.changed) == ((), (), ())
    assert changes


entries = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["x", "y"]))


@settings(deadline=None)
@given(entries, entries)
def test_a_diff_is_empty_only_between_equals_and_turns_round(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    forth, back = (
        diff_configurations(config(**one), config(**two)),
        diff_configurations(config(**two), config(**one)),
    )
    assert bool(forth) == (one != two)
    assert (set(forth.added), set(forth.removed)) == (set(back.removed), set(back.added))
    assert (
        set(forth.changed) == set(back.changed) == {key for key in one if key in two and one[key] != two[key]}
    )
