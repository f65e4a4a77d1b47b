"""Texts of pages about the rules of the policy, and names instead of ids."""

from __future__ import annotations

import sys

import pytest
from tests.conftest import ROOT
from tests.web.conftest import Opening
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.policy import rules
from toolyard.types.call import Decision, DecisionStep, RuleOutcome
from toolyard.web.ui.components.rule_texts import describe_access, describe_obstacle, describe_step
from toolyard.web.ui.components.server_names import ServerNames, find_owners

TITLES = [value for name, value in vars(rules).items() if name.endswith("_RULE_TITLE")]


@pytest.mark.parametrize("title", TITLES)
def test_every_rule_is_described_in_words(title: str) -> None:
    reason = "server '@u1/docs': allowTools"
    for outcome in (RuleOutcome.PASS, RuleOutcome.REFUSE):
        step = describe_step(DecisionStep(title, outcome, reason))
        assert step.title[0].isupper()
        if title != rules.DEFINITION_RULE_TITLE or outcome is RuleOutcome.PASS:
            assert "@u1" not in step.text
        assert step.detail == ("" if outcome is RuleOutcome.PASS else reason)


def test_a_blocked_definition_shows_its_problem() -> None:
    assert describe_obstacle("definition", "in quarantine: its definition has changed") == (
        "its definition has changed"
    )


def test_access_is_one_sentence() -> None:
    steps = (
        DecisionStep("state", RuleOutcome.PASS, "server '@u1/docs' is enabled; its state is ready"),
        DecisionStep("write tools", RuleOutcome.ASK, "readOnlyHint is false"),
    )
    allow_decision = Decision.from_chain("docs/read", "docs_read", steps[:1])
    assert describe_access(allow_decision) == "You can see and call this tool."
    asks = Decision.from_chain("docs/write", "docs_write", steps)
    assert describe_access(asks) == "This tool can change data, so your approval is needed."


def test_servers_and_tools_have_names_and_owners_where_there_are_several_people() -> None:
    instances = {"@u1/work": "GitHub, at work"}
    names = ServerNames({"demo": "Demo"}, instances, {"u1": "ann", "u2": "bob"})
    assert names.name_tool("@u1/work/find") == "GitHub, at work: find (ann)"
    assert names.name_tool("demo/a/b") == "Demo: a/b"
    assert names.name_server("@u2/gone") == "gone (bob)"
    assert names.name_tool("gone/find") == "gone/find"
    assert ServerNames({}, instances, {"u1": "ann"}).name_server("@u1/work") == "GitHub, at work"
    assert find_owners(["@u1/work/find", "@u2/x", "demo/count", "@native", "@native/x"]) == {"u1", "u2"}


async def test_a_tool_that_needs_approval_is_not_marked_as_blocked(open_site: Opening) -> None:
    server = ROOT / "src/toolyard/cli/demo_server.py"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(server)]}
    for treatment, icon in (("ask", "#i-shield"), ("reject", "#i-x")):
        local = await open_site({"demo": entry}, write_tools=treatment)
        page = await ScriptlessBrowser(local.client()).get("/ui/admin/mcp/files/demo/contents")
        (mark,) = [line.one("use").attrs["href"] for line in page.root.all("p", class_="blocked-reason")]
        assert mark == icon
