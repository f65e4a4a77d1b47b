"""Instance filter and chat choice: tools that a person ticked, by the server's own names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.policy.rule import Always, Candidate, Rule
from toolyard.types.decision import Outcome

__all__ = ["choice_rule", "instance_rule"]

INSTANCE = "instance"
CHAT = "chat"


def instance_rule(names: Iterable[str] | None) -> Rule:
    """Hide what an instance's filter leaves out. None: no filter, all; empty: none."""
    if names is None:
        return Always(INSTANCE, Outcome.PASS, "no instance filter")
    return _Picked(INSTANCE, "the instance's filter", frozenset(names))


def choice_rule(server_id: str, ids: Iterable[str] | None) -> Rule:
    """Hide what was not chosen for the chat. ``ids`` are canonical; None: nothing was chosen, all stay."""
    if ids is None:
        return Always(CHAT, Outcome.PASS, "no choice was made in the chat")
    own = f"{server_id}/"
    names = frozenset(each.removeprefix(own) for each in ids if each.startswith(own))
    return _Picked(CHAT, "the chat's choice", names)


@dataclass(frozen=True, slots=True)
class _Picked:
    title: str
    where: str
    names: frozenset[str]
    otherwise: Outcome = Outcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return tool.definition.name in self.names

    def reason(self, tool: Candidate) -> str:
        verb = "has" if self.passes(tool) else "does not have"
        return f"{self.where} {verb} '{tool.definition.name}'"
