"""Turns as a tree: any sequence of messages, retries, edits and switches give the expected branch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from toolyard.types.chat import TurnTree


@dataclass(eq=False)
class TurnNode:
    """A turn of the simple model: it knows its neighbours."""

    number: int
    parent: TurnNode | None
    children: list[TurnNode] = field(default_factory=list)

    @property
    def siblings(self) -> list[TurnNode]:
        return [self] if self.parent is None else self.parent.children

    @property
    def path(self) -> list[int]:
        return [] if self.parent is None else [*self.parent.path, self.number]

    @property
    def newest(self) -> TurnNode:
        return max([self, *(each.newest for each in self.children)], key=lambda node: node.number)


@given(st.lists(st.tuples(st.sampled_from(["send", "fork", "choose"]), st.integers(0, 50)), max_size=40))
def test_any_sequence_of_forks_and_switches_gives_the_branch_of_a_simple_model(
    steps: list[tuple[str, int]],
) -> None:
    root = TurnNode(0, None)
    here, nodes = root, list[TurnNode]()
    rows: list[tuple[int, int | None]] = []
    last = 0

    def begin(parent: TurnNode) -> TurnNode:
        node = TurnNode(7 * len(nodes) + 1, parent)
        parent.children.append(node)
        nodes.append(node)
        return node

    for action, number in steps:
        tree = TurnTree.from_rows(rows)
        branch = tree.branch(last)
        if action == "send" or not nodes:
            here = begin(here)
            rows.append((here.number, last))
            last = here.number
        elif action == "fork":
            turn = branch[number % len(branch)]
            parent_node = next(node for node in nodes if node.number == turn)
            assert parent_node.parent is not None
            here = begin(parent_node.parent)
            rows.append((here.number, tree.parents[turn]))
            last = here.number
        else:
            chosen_node = nodes[number % len(nodes)]
            here = chosen_node.newest
            last = tree.newest_end(chosen_node.number)
        tree = TurnTree.from_rows(rows)
        assert tree.branch(last) == here.path
        for node in nodes:
            assert tree.alternatives(node.number) == [each.number for each in node.siblings]


def test_turns_of_earlier_versions_are_one_line() -> None:
    tree = TurnTree.from_rows([(1, None), (4, None), (9, None)])
    assert (tree.branch(9), tree.alternatives(4)) == ([1, 4, 9], [4])
    # A retry of an earlier version has a parent since the migration; what follows it has none.
    tree = TurnTree.from_rows([(1, None), (4, None), (9, 1), (12, None)])
    assert (tree.branch(12), tree.alternatives(9)) == ([1, 9, 12], [4, 9])


def test_the_turn_in_place_of_another_is_found_where_the_branches_part() -> None:
    tree = TurnTree.from_rows([(1, 0), (2, 1), (3, 2), (4, 1), (5, 4), (6, 0)])
    assert [tree.replacement(turn, 5) for turn in (1, 2, 3, 6)] == [1, 4, 4, 1]
    assert tree.replacement(3, 6) == 6
    assert TurnTree().replacement(3, 6) is None


def test_a_branch_with_wrong_parents_ends() -> None:
    assert TurnTree.from_rows([(1, 2), (2, 1), (3, 3)]).branch(2) == [1, 2]
    assert TurnTree.from_rows([(3, 3)]).branch(3) == [3]
