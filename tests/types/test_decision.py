"""A decision says what led to it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from toolyard.types.call import Decision, DecisionStep, RuleOutcome, Verdict

links = st.builds(
    DecisionStep, st.sampled_from(["one", "two"]), st.sampled_from(RuleOutcome), st.just("because")
)


def decision(*outcomes: RuleOutcome) -> Decision:
    chain = tuple(DecisionStep(f"rule {at}", outcome, f"reason {at}") for at, outcome in enumerate(outcomes))
    return Decision.from_chain("repo/search", "repo_search", chain)


def test_nothing_against_it_allows() -> None:
    assert decision().verdict is Verdict.ALLOW
    assert decision(RuleOutcome.PASS, RuleOutcome.PASS).verdict is Verdict.ALLOW
    assert decision(RuleOutcome.PASS).decisive is None


def test_the_first_link_that_hides_or_refuses_decides() -> None:
    first = decision(RuleOutcome.PASS, RuleOutcome.HIDE, RuleOutcome.REFUSE)
    assert first.verdict is Verdict.HIDE
    assert first.decisive == DecisionStep("rule 1", RuleOutcome.HIDE, "reason 1")


def test_an_ask_remains_unless_a_rule_hides_or_refuses() -> None:
    decision_result = decision(RuleOutcome.ASK, RuleOutcome.PASS)
    assert decision_result.verdict is Verdict.ASK
    assert decision_result.decisive == DecisionStep("rule 0", RuleOutcome.ASK, "reason 0")
    assert decision(RuleOutcome.ASK, RuleOutcome.REFUSE).verdict is Verdict.REFUSE


def test_only_allow_and_ask_are_shown() -> None:
    assert [verdict for verdict in Verdict if verdict.is_visible] == [Verdict.ALLOW, Verdict.ASK]


def test_the_explanation_is_one_line_a_link_and_marks_the_one_that_decides() -> None:
    assert decision(RuleOutcome.PASS, RuleOutcome.HIDE, RuleOutcome.PASS).explain().splitlines() == [
        "repo_search (repo/search): hide",
        "   rule 0  pass    reason 0",
        "-> rule 1  hide    reason 1",
        "   rule 2  pass    reason 2",
    ]


@given(chain=st.lists(links, max_size=6).map(tuple))
def test_a_decision_can_be_explained_and_sent_as_json(chain: tuple[DecisionStep, ...]) -> None:
    decision_result = Decision.from_chain("repo/search", "repo_search", chain)
    assert len(str(decision_result).splitlines()) == len(chain) + 1
    document = json.loads(json.dumps(decision_result.as_json()))
    assert document["verdict"] == decision_result.verdict
    assert [link["outcome"] for link in document["chain"]] == [link.outcome for link in chain]
