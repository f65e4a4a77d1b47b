"""The sets of a term match the documents' tables after every addition and removal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.search.documents import SearchDocument
from toolyard.catalog.search.postings import Postings, bitset_members

weights = st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=12, max_size=40)
rounds = st.lists(st.tuples(weights, st.sets(st.integers(0, 80)), st.booleans()), min_size=2, max_size=5)


@given(rounds)
def test_settled_sets_are_those_of_the_table(rounds: list[tuple[list[float], set[int], bool]]) -> None:
    postings = Postings()
    held_weights: dict[int, float] = {}
    for added_names, removed_names, remaining_names in rounds:
        for weight in added_names:
            held_weights[postings.add(SearchDocument({"paint": weight}, ("paint",)))] = weight
        for number in removed_names & held_weights.keys():
            postings.remove(number)
            del held_weights[number]
        if remaining_names:
            postings.flush_pending()
    postings.flush_pending()
    tables = {number: table for number, table in enumerate(postings.documents) if table}
    assert tables == {number: {"paint": -weight} for number, weight in held_weights.items()}
    for posting in postings.posting_by_term.values():
        assert posting.document_count == len(held_weights)
        assert bitset_members(posting.present) == sorted(held_weights)
        assert bitset_members(posting.strong_documents) == sorted(
            number for number, weight in held_weights.items() if weight >= 0.6
        )
