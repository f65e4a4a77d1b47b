from __future__ import annotations

import re
import subprocess
import sys
import weakref
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.exposed_names import (
    RESERVED_NAMES,
    NameAssigner,
    NameTemplates,
    RenameReason,
    ServerToolNames,
    ToolAddress,
)
from toolyard.errors import ConfigError

SOUND = re.compile(r"[A-Za-z0-9_-]{1,64}")


def server(id: str, *tools: str) -> ServerToolNames:
    return ServerToolNames(id, id, tools)


def map_exposed_names(*groups: ServerToolNames, naming: NameAssigner | None = None) -> dict[str, str]:
    """Return a map from canonical ids to exposed names."""
    names = (naming or NameAssigner()).names(groups)
    return {target.id: name for name, target in names.targets.items()}


def test_a_tool_of_a_server_is_called_by_both() -> None:
    assert map_exposed_names(server("github", "search")) == {"github/search": "github_search"}


def test_a_tool_of_an_instance_is_called_by_its_slug() -> None:
    group = ServerToolNames("@ann/my-github", "my-github", ("search_code",), instance=True)
    assert map_exposed_names(group) == {"@ann/my-github/search_code": "mcp_my-github__search_code"}


def test_dashes_stay_as_they_are() -> None:
    exposed_names = map_exposed_names(server("context7", "resolve-library-id", "query-docs"))
    assert set(exposed_names.values()) == {"context7_resolve-library-id", "context7_query-docs"}


def test_other_characters_become_underscores() -> None:
    assert map_exposed_names(server("my.srv", "admin.tools/list")) == {
        "my.srv/admin.tools/list": "my_srv_admin_tools_list"
    }


def test_a_long_name_keeps_its_ends_around_a_hash() -> None:
    tool = "begin" + "x" * 100 + "end"
    (name,) = map_exposed_names(server("s", tool)).values()
    assert len(name) == 64
    assert name.startswith("s_begin")
    assert name.endswith("end")


def test_exact_claimants_of_one_name_all_get_a_hash() -> None:
    exposed_names = map_exposed_names(server("a", "b_c"), server("a_b", "c"))
    assert len(set(exposed_names.values())) == 2
    assert all(re.fullmatch(r"a_b_c_[0-9a-f]{8}", name) for name in exposed_names.values())


def test_the_only_exact_claimant_keeps_the_name() -> None:
    exposed_names = map_exposed_names(server("s", "a_b", "a.b", "a:b"))
    assert exposed_names["s/a_b"] == "s_a_b"
    assert re.fullmatch(r"s_a_b_[0-9a-f]{8}", exposed_names["s/a.b"])
    assert re.fullmatch(r"s_a_b_[0-9a-f]{8}", exposed_names["s/a:b"])
    assert exposed_names["s/a.b"] != exposed_names["s/a:b"]


def test_no_claimant_keeps_the_name_where_none_is_exact() -> None:
    assert "s_a_b" not in map_exposed_names(server("s", "a.b", "a:b")).values()


def test_a_reserved_name_stays_with_its_owner_and_the_report_says_so() -> None:
    names = NameAssigner().names([server("web", "fetch", "other"), server("tools", "search")])
    assert names.find("web_fetch") is None
    assert names.find("tools_search") is None
    assert re.fullmatch(r"web_fetch_[0-9a-f]{8}", names.exposed_name("web", "fetch") or "")
    assert [(entry.target.id, entry.reason) for entry in names.renamed_tools] == [
        ("tools/search", RenameReason.RESERVED),
        ("web/fetch", RenameReason.RESERVED),
    ]
    assert "'web_fetch' is reserved for a built-in tool" in str(names.renamed_tools[1])


def test_the_report_names_the_rivals_of_a_collision() -> None:
    names = NameAssigner().names([server("a", "b_c"), server("a_b", "c")])
    assert [entry.reason for entry in names.renamed_tools] == [RenameReason.COLLISION] * 2
    assert "also claimed by a_b/c" in str(names.renamed_tools[0])


def test_the_report_names_overlong_names() -> None:
    (entry,) = NameAssigner().names([server("s", "x" * 70)]).renamed_tools
    assert entry.reason is RenameReason.LENGTH


def test_a_server_that_publishes_the_hashed_name_of_another_tool_does_not_get_it() -> None:
    victim = server("web", "fetch")
    taken_name = map_exposed_names(victim)["web/fetch"]
    thief = server("web", "fetch", taken_name.removeprefix("web_"))
    exposed_names = map_exposed_names(thief)
    assert taken_name not in exposed_names.values()
    assert len(set(exposed_names.values())) == 2


def test_not_even_where_its_own_words_are_that_name() -> None:
    taken_name = map_exposed_names(server("s", "a.b", "a:b"))["s/a.b"]
    exposed_names = map_exposed_names(server("s", "a.b", "a:b", taken_name.removeprefix("s_")))
    assert taken_name not in exposed_names.values()


def test_a_server_that_publishes_every_hashed_name_of_a_tool_breaks_nothing() -> None:
    naming = NameAssigner(NameTemplates(server="{tool}"))
    tools = ["grep"]
    for _ in range(6):
        names = naming.names([server("s", *tools)])
        assert len(names.targets) == len(set(tools))
        tools.append(names.exposed_name("s", "grep") or "")
    assert len(set(tools)) < len(tools), "the last hash must have been reached"


def test_the_same_parts_of_one_canonical_id_are_two_tools() -> None:
    names = NameAssigner().names([server("a", "b/c"), server("a/b", "c")])
    assert len(names.targets) == 2


def test_the_same_tool_given_twice_is_one() -> None:
    assert len(NameAssigner().names([server("a", "b", "b"), server("a", "b")]).targets) == 1


def test_an_unchanged_set_gets_the_same_object_while_it_is_referenced() -> None:
    naming = NameAssigner()
    names = naming.names([server("a", "b"), server("c", "d")])
    assert naming.names([server("c", "d"), server("a", "b")]) is names


def test_unreferenced_sets_of_names_are_freed() -> None:
    naming = NameAssigner()
    cached_names = naming.names([server("a", "b")])
    names_ref = weakref.ref(naming.names([server("a", "b"), server("c", "d")]))
    assert names_ref() is None
    assert cached_names.find("a_b") is not None


def test_the_template_is_a_setting() -> None:
    naming = NameAssigner(NameTemplates(server="{tool}--{server}", instance="{slug}.{tool}"))
    groups = [server("github", "search"), ServerToolNames("@ann/gh", "gh", ("find",), instance=True)]
    assert set(map_exposed_names(*groups, naming=naming).values()) == {"search--github", "gh_find"}


@pytest.mark.parametrize("text", ["", "{server}", "{tool}{tool}", "{tool}_{user}", "{tool}}", "{tool}{"])
def test_a_template_that_cannot_work_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(ConfigError) as exc_info:
        NameTemplates(server=text)
    assert exc_info.value.problems[0].path == "naming_template"


def test_a_template_of_literals_only_still_gives_sound_names() -> None:
    (name,) = map_exposed_names(server("é", "ü"), naming=NameAssigner()).values()
    assert SOUND.fullmatch(name)


def test_many_tools_with_one_name_are_reported_without_naming_each_other_in_full() -> None:
    tools = tuple(f"a{chr(0x4E00 + number)}" for number in range(3000))
    names = NameAssigner().names([server("s", *tools)])
    assert len(names.targets) == 3000
    assert len(names.renamed_tools) == 3000
    assert all(len(entry.rivals) <= 5 for entry in names.renamed_tools)


def test_an_unchanged_set_of_tools_is_not_named_again() -> None:
    naming = NameAssigner()
    first = naming.names([server("a", "x"), server("b", "y")])
    assert naming.names([server("b", "y"), server("a", "x")]) is first
    assert naming.names([server("b", "y")]) is not first


def test_another_process_gives_the_same_names() -> None:
    program = (
        "from toolyard.catalog.exposed_names import *\n"
        "groups = [ServerToolNames('a', 'a', ('b_c', 'x'*80, 'grep')),\n"
        "ServerToolNames('a_b', 'a_b', ('c', 'ü'))]\n"
        "print(list(NameAssigner(NameTemplates(server='{server}_{tool}')).names(groups).targets.items()))"
    )
    stdouts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(stdouts) == 1


# Properties. Few letters, so that collisions are common; odd ones, so that replacements are.
words = st.text(alphabet="ab_.é-", min_size=1, max_size=6) | st.text(alphabet="ab.", min_size=50, max_size=90)
anything = words | st.text(min_size=1, max_size=20) | st.sampled_from(["fetch", "search", "call", "read"])
labels = st.sampled_from(["a", "b", "a_b", "a.b", "web", "tools", "result", "x" * 70])
groups = st.builds(
    lambda label, tools, instance: ServerToolNames(
        f"@o/{label}" if instance else label, label, tuple(tools), instance
    ),
    labels | anything,
    st.lists(anything, max_size=6),
    st.booleans(),
)
naming_rules = st.sampled_from(
    [
        NameAssigner(),
        NameAssigner(NameTemplates(server="{tool}")),
        NameAssigner(reserved=()),
        NameAssigner(NameTemplates(instance="{tool}_")),
    ]
)


def all_targets(some: Iterable[ServerToolNames]) -> set[ToolAddress]:
    return {ToolAddress(group.id, tool) for group in some for tool in group.tools}


@given(st.lists(groups, max_size=5), naming_rules)
def test_names_are_sound_unique_alphabetical_and_reversible(
    some: list[ServerToolNames], naming: NameAssigner
) -> None:
    names = naming.names(some)
    assert all(SOUND.fullmatch(name) for name in names.targets)
    assert set(names.targets.values()) == all_targets(some)
    assert len(names.targets) == len(all_targets(some))
    assert list(names.targets) == sorted(names.targets)
    for target in all_targets(some):
        name = names.exposed_name(*target)
        assert name is not None
        assert names.find(name) == target


@given(st.lists(groups, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_servers_and_tools_changes_nothing(some: list[ServerToolNames], chance: object) -> None:
    reordered_groups = [
        ServerToolNames(group.id, group.label, tuple(reversed(group.tools)), group.instance)
        for group in reversed(some)
    ]
    chance.shuffle(reordered_groups)  # type: ignore[attr-defined]
    one, other = NameAssigner().names(some), NameAssigner().names(reordered_groups)
    assert dict(one.targets) == dict(other.targets)
    assert one.renamed_tools == other.renamed_tools


@given(st.lists(groups, max_size=4), st.lists(anything, min_size=1, max_size=5))
def test_an_unrelated_server_changes_no_name(some: list[ServerToolNames], tools: list[str]) -> None:
    newcomer = server("ZZ-unrelated", *tools)
    before, after = NameAssigner().names(some), NameAssigner().names([*some, newcomer])
    for name, target in before.targets.items():
        assert after.find(name) == target


@given(st.lists(groups, max_size=4), groups)
def test_a_name_changes_its_meaning_only_in_favour_of_an_exact_claimant(
    some: list[ServerToolNames], newcomer: ServerToolNames
) -> None:
    before, after = NameAssigner().names(some), NameAssigner().names([*some, newcomer])
    for name, target in before.targets.items():
        heir = after.find(name)
        if heir not in (None, target):
            group = next(group for group in [*some, newcomer] if group.id == heir.server_id)
            assert SOUND.fullmatch(group.label)
            assert re.fullmatch(r"[A-Za-z0-9_-]+", heir.tool)


@given(st.lists(groups, max_size=5))
def test_no_reserved_name_is_ever_given(some: list[ServerToolNames]) -> None:
    assert RESERVED_NAMES.isdisjoint(NameAssigner().names(some).targets)


@pytest.mark.parametrize(
    ("label", "instance", "templates", "prefix"),
    [
        ("git.hub", False, NameTemplates(), "git_hub_"),
        ("my-desk", True, NameTemplates(), "mcp_my-desk__"),
        ("my-desk", True, NameTemplates(instance="{slug}.{tool}"), "my-desk_"),
        ("my-desk", False, NameTemplates(server="{slug}:{tool}"), "my-desk_"),
    ],
)
def test_a_prefix_is_the_beginning_of_the_names(
    label: str, instance: bool, templates: NameTemplates, prefix: str
) -> None:
    naming = NameAssigner(templates)
    assert naming.prefix(label, instance=instance) == prefix
    (name,) = map_exposed_names(
        ServerToolNames("id", label, ("t",), instance=instance), naming=naming
    ).values()
    assert name == f"{prefix}t"
