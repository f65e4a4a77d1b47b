"""Bundles: they select servers, allow is the intersection, deny the union, and deny wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.errors import ConfigError
from toolyard.policy.glob import matches_glob
from toolyard.policy.policy import Policy, select_bundles
from toolyard.policy.rules import Candidate
from toolyard.types.call import Surface, Verdict
from toolyard.types.server import Bundle, Server, State, StdioSpec
from toolyard.types.tool import Definition

REPO = Server("repo", StdioSpec("x"))
NAMES = ("readFile", "readSecret", "search", "writeFile")

globs = st.lists(st.text(alphabet="ab*", max_size=3), max_size=3).map(tuple)


def bundle(bundle_id: str, allow: tuple[str, ...] | None = None, deny: tuple[str, ...] = ()) -> Bundle:
    return Bundle(bundle_id, "repo", "direct", allow_tools=allow, deny_tools=deny)


def list_remaining_tools(*bundle: Bundle, names: tuple[str, ...] = NAMES) -> set[str]:
    gate = Policy(Surface.MODEL_DIRECT, bundles=tuple(bundle)).compile_server_policy(REPO, State.READY)
    return {name for name in names if gate.verdict(Candidate(Definition("repo", name), name)).is_visible}


def test_nothing_selected_leaves_the_servers_tools_as_they_are() -> None:
    assert list_remaining_tools() == set(NAMES)


def test_a_bundle_allows_the_tools_it_names() -> None:
    assert list_remaining_tools(bundle("repoRead", ("readFile", "search"))) == {"readFile", "search"}


def test_allow_comes_first_then_deny_and_deny_wins() -> None:
    assert list_remaining_tools(bundle("repoRead", ("read*", "search"), ("readSecret",))) == {
        "readFile",
        "search",
    }


def test_several_bundles_of_one_server_allow_the_intersection() -> None:
    assert list_remaining_tools(bundle("one", ("read*",)), bundle("two", ("*File",))) == {"readFile"}


def test_an_empty_intersection_allows_nothing() -> None:
    assert list_remaining_tools(bundle("one", ("readFile",)), bundle("two", ("search",))) == set()


def test_several_bundles_of_one_server_deny_the_union() -> None:
    assert list_remaining_tools(bundle("one", None, ("readSecret",)), bundle("two", None, ("write*",))) == {
        "readFile",
        "search",
    }


def test_a_bundle_without_an_allowlist_does_not_empty_the_intersection() -> None:
    assert list_remaining_tools(bundle("one", ("search",)), bundle("two")) == {"search"}


def test_servers_without_a_selected_bundle_are_hidden() -> None:
    other = Bundle("docsAll", "docs", "direct")
    gate = Policy(Surface.OPERATOR, bundles=(other,)).compile_server_policy(REPO, State.READY)
    decision = gate.explain(Candidate(Definition("repo", "search"), "repo_search"))
    assert decision.verdict is Verdict.HIDE
    assert gate.blocks_all
    assert decision.decisive is not None
    assert decision.decisive.rule == "bundles"


def test_a_meta_bundle_is_reached_through_meta_and_not_directly() -> None:
    meta = Bundle("repoMeta", "repo", "meta")
    candidate = Candidate(Definition("repo", "search"), "repo_search")
    for surface, verdict in (
        (Surface.MODEL_DIRECT, Verdict.HIDE),
        (Surface.MODEL_META, Verdict.ALLOW),
        (Surface.OPERATOR, Verdict.ALLOW),
    ):
        gate = Policy(surface, bundles=(meta,)).compile_server_policy(REPO, State.READY)
        assert gate.verdict(candidate) is verdict


def test_one_meta_bundle_makes_its_server_meta_in_any_selection() -> None:
    selected_bundles = [bundle("repoDirect"), Bundle("repoMeta", "repo", "meta")]
    gate = Policy(Surface.MODEL_DIRECT, bundles=tuple(selected_bundles)).compile_server_policy(
        REPO, State.READY
    )
    assert gate.blocks_all


@given(
    lists=st.lists(st.tuples(st.none() | globs, globs), min_size=1, max_size=4),
    names=st.lists(st.text(alphabet="ab", max_size=3)),
)
def test_allow_is_the_intersection_and_deny_the_union(
    lists: list[tuple[tuple[str, ...] | None, tuple[str, ...]]], names: list[str]
) -> None:
    selected_bundles = [bundle(str(at), allow, deny) for at, (allow, deny) in enumerate(lists)]
    universe = set(names)
    expected = set(universe)
    for allow, _ in lists:
        if allow is not None:
            expected &= {name for name in universe if any(matches_glob(glob, name) for glob in allow)}
    for _, deny in lists:
        expected -= {name for name in universe if any(matches_glob(glob, name) for glob in deny)}
    assert list_remaining_tools(*selected_bundles, names=tuple(names)) == expected


@given(
    lists=st.lists(st.tuples(st.none() | globs, globs), min_size=1, max_size=4),
    more=st.tuples(st.none() | globs, globs),
    names=st.lists(st.text(alphabet="ab", max_size=3)).map(tuple),
)
def test_a_further_bundle_never_widens_and_the_order_never_matters(
    lists: list[tuple[tuple[str, ...] | None, tuple[str, ...]]],
    more: tuple[tuple[str, ...] | None, tuple[str, ...]],
    names: tuple[str, ...],
) -> None:
    selected_bundles = [bundle(str(at), allow, deny) for at, (allow, deny) in enumerate(lists)]
    further = bundle("more", *more)
    assert list_remaining_tools(*selected_bundles, further, names=names) <= list_remaining_tools(
        *selected_bundles, names=names
    )
    assert list_remaining_tools(*selected_bundles, further, names=names) == list_remaining_tools(
        further, *reversed(selected_bundles), names=names
    )


def test_ids_select_bundles_in_their_order_and_once() -> None:
    bundles_by_name = {"one": bundle("one"), "two": bundle("two")}
    assert select_bundles(["two", "one", "two"], bundles_by_name) == (
        bundles_by_name["two"],
        bundles_by_name["one"],
    )


def test_an_unknown_bundle_is_an_error_with_a_suggestion_and_all_are_named() -> None:
    bundles_by_name = {"repoRead": bundle("repoRead")}
    with pytest.raises(ConfigError) as exc_info:
        select_bundles(["repoRaed", "zzz"], bundles_by_name)
    assert len(exc_info.value.problems) == 2
    assert "did you mean 'repoRead'?" in str(exc_info.value)
    assert "'zzz'" in str(exc_info.value)
