from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolyard.config import parse_config
from toolyard.errors import Problem

Problems = Callable[..., list[Problem]]

DIALECTS = ("servers", "mcpServers")


def config(
    dialect: str, allow: list[str] | None, *bundles: dict[str, Any], trust: str = "untrusted"
) -> dict[str, Any]:
    entry: dict[str, Any] = {"trust": trust}
    if dialect == "servers":
        entry["transport"] = {"type": "http", "url": "http://a/"}
    else:
        entry["url"] = "http://a/"
    if allow is not None:
        entry["allowTools"] = allow
    named_bundles = {f"b{number}": {"serverId": "repo", **bundle} for number, bundle in enumerate(bundles)}
    return {dialect: {"repo": entry}, "bundles": named_bundles}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("allow", [["read"], ["read*"], ["*read"], ["r*d", "search"], ["*_*"]])
def test_an_untrusted_server_may_allow_names_and_narrow_globs(dialect: str, allow: list[str]) -> None:
    assert parse_config(config(dialect, allow)).servers["repo"].allow_tools == tuple(allow)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("star", ["*", "**", "***"])
def test_an_untrusted_server_may_not_allow_everything(problems: Problems, dialect: str, star: str) -> None:
    (problem,) = problems(config(dialect, ["read", star]))
    assert problem.path == f"{dialect}.repo.allowTools[1]"
    assert f'found "{star}"' in problem.message


def test_a_trusted_server_may_allow_everything() -> None:
    assert parse_config(config("servers", ["*"], trust="trusted")).servers["repo"].allow_tools == ("*",)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_untrusted_server_needs_an_allowlist(problems: Problems, dialect: str) -> None:
    (problem,) = problems(config(dialect, None))
    assert problem.path == f"{dialect}.repo"
    assert "needs 'allowTools'" in problem.message


def test_an_allowlist_on_every_bundle_will_do() -> None:
    bundles = ({"mode": "meta", "allowTools": ["a"]}, {"mode": "meta", "allowTools": ["b"]})
    assert len(parse_config(config("servers", None, *bundles)).bundles) == 2


def test_one_bundle_without_an_allowlist_will_not(problems: Problems) -> None:
    (problem,) = problems(config("servers", None, {"mode": "meta", "allowTools": ["a"]}, {"mode": "meta"}))
    assert problem.path == "servers.repo"


def test_with_an_allowlist_of_its_own_the_bundles_need_none() -> None:
    assert len(parse_config(config("servers", ["a"], {"mode": "meta"})).bundles) == 1


def test_a_bundle_of_an_untrusted_server_may_not_allow_everything(problems: Problems) -> None:
    (problem,) = problems(config("servers", ["a"], {"mode": "meta", "allowTools": ["*"]}))
    assert problem.path == "bundles.b0.allowTools[0]"


def test_a_direct_bundle_of_an_untrusted_server_is_an_error(problems: Problems) -> None:
    (problem,) = problems(config("servers", ["a"], {"mode": "direct", "allowTools": ["a"]}))
    assert problem.path == "bundles.b0.mode"
    assert "untrusted" in problem.message


def test_a_bundle_without_its_server_is_an_error_with_a_suggestion(problems: Problems) -> None:
    (problem,) = problems(config("servers", ["a"], {"mode": "meta", "serverId": "rpo"}))
    assert (problem.path, problem.message) == ("bundles.b0.serverId", "unknown server 'rpo'")
    assert problem.hint == "did you mean 'repo'?"


def test_a_bundle_is_not_blamed_for_the_broken_entry_of_its_server(problems: Problems) -> None:
    found_problems = problems(
        {"servers": {"repo": {"trust": "trusted"}}, "bundles": {"b": {"serverId": "repo", "mode": "meta"}}}
    )
    assert [problem.path for problem in found_problems] == ["servers.repo.transport"]


@pytest.mark.parametrize(
    ("bundle", "path", "words"),
    [
        ({"mode": "meta", "serverId": None}, "bundles.b0.serverId", "expected a non-empty string"),
        ({"serverId": "repo"}, "bundles.b0.mode", 'missing; expected "direct" or "meta"'),
        ({"mode": "both"}, "bundles.b0.mode", 'found "both"'),
        ({"mode": "meta", "allowTools": []}, "bundles.b0.allowTools", "an empty list"),
        ({"mode": "meta", "denyTools": "x"}, "bundles.b0.denyTools", "expected a list"),
        ({"mode": "meta", "tools": ["x"]}, "bundles.b0.tools", "unknown key"),
    ],
)
def test_a_bundle_is_checked_like_everything_else(
    problems: Problems, bundle: dict[str, Any], path: str, words: str
) -> None:
    (problem,) = problems(config("servers", ["a"], bundle))
    assert problem.path == path
    assert words in problem.message


def test_an_empty_denylist_is_fine() -> None:
    assert (
        parse_config(config("servers", ["a"], {"mode": "meta", "denyTools": []})).bundles["b0"].deny_tools
        == ()
    )
