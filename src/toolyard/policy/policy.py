"""Policy of one caller, compiled for each server: the inputs of all rules, their order, and refusals.

Models, and tokens that do not cover a tool, are refused a hidden tool with the same message as one that does
not exist. Others learn which rule hides it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

from toolyard.errors import ConfigError, Problem, ToolRefused
from toolyard.policy import rules
from toolyard.policy.rules import TOKEN_RULE_TITLE, Candidate, ConstantRule, Rule
from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Decision, DecisionStep, HiddenTool, RuleOutcome, Surface, Verdict, WriteTools
from toolyard.types.server import NATIVE_SERVER_ID, Bundle, Server, State

__all__ = ["Policy", "ServerPolicy", "build_hidden_refusal", "build_refusal", "select_bundles"]

_Check: TypeAlias = tuple[Callable[[Candidate], bool], Verdict]


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Chain of rules for the tools of one server.

    ``verdict`` is the fast path without text; ``explain`` records every step. Both have the same verdict.
    """

    rules: tuple[Rule, ...]
    blocks_all: bool
    """Whether every tool of this server is hidden or refused, so that a listing can skip the server."""
    _checks: tuple[_Check, ...] = field(repr=False, compare=False)

    @classmethod
    def from_rules(cls, rules: Iterable[Rule]) -> ServerPolicy:
        """Compile a chain of rules, in order."""
        chain = tuple(rules)
        return cls(chain, any(map(_is_always_final, chain)), tuple(_compile_checks(chain)))

    def verdict(self, tool: Candidate) -> Verdict:
        """Return the verdict about a tool."""
        # ASK is not final: a later rule may still hide or refuse the tool.
        verdict = _ALLOW
        for passes, fail_verdict in self._checks:
            if not passes(tool):
                if fail_verdict is not _ASK:
                    return fail_verdict
                verdict = fail_verdict
        return verdict

    def find_hiding_rule(self, tool: Candidate) -> Rule | None:
        """Return the first rule that hides or refuses a tool, if the caller may know that the tool exists.

        None for a visible tool, and for one outside the token's scope.
        """
        hiding = [rule for rule in self.rules if rule.fail_outcome in _FINAL and not rule.passes(tool)]
        if not hiding or any(rule.title == TOKEN_RULE_TITLE for rule in hiding):
            return None
        return hiding[0]

    def explain(self, tool: Candidate) -> Decision:
        """Return the verdict together with the outcome and reason of every rule."""
        # Every rule is evaluated, so that an operator who removes one obstacle already sees the next.
        steps = (
            DecisionStep(
                rule.title, RuleOutcome.PASS if rule.passes(tool) else rule.fail_outcome, rule.reason(tool)
            )
            for rule in self.rules
        )
        return Decision.from_chain(tool.definition.id, tool.name, tuple(steps))


# Looking up a module constant is faster than an enum member, and a listing computes a verdict for every tool.
_ALLOW, _ASK = Verdict.ALLOW, Verdict.ASK
_FINAL = frozenset({RuleOutcome.HIDE, RuleOutcome.REFUSE})


def _compile_checks(chain: Iterable[Rule]) -> Iterator[_Check]:
    """Yield the checks that matter: none for rules that always pass, none after a rule that is final."""
    for rule in chain:
        if rule.fail_outcome is not RuleOutcome.PASS:
            yield rule.passes, Verdict(rule.fail_outcome.value)
        if _is_always_final(rule):
            return


def _is_always_final(rule: Rule) -> bool:
    return isinstance(rule, ConstantRule) and rule.fail_outcome in _FINAL


@dataclass(frozen=True, slots=True)
class Policy:
    """Inputs of one caller that are independent of a server.

    ``compile_server_policy`` adds those of a server.
    """

    surface: Surface
    write_tools: WriteTools = WriteTools.REJECT
    bundles: tuple[Bundle, ...] = ()
    """The selected bundles; without any, bundles restrict nothing."""
    agent: Agent | None = None
    choice: frozenset[str] | None = None
    """Canonical ids of the tools selected in the chat; None: no selection."""
    scope: TokenScope | None = None
    """Scope of the API token; None: no token."""
    in_chat: bool = False

    def compile_server_policy(
        self, server: Server, state: State, *, instance_filter: Iterable[str] | None = None
    ) -> ServerPolicy:
        """Compile the chain of rules for the tools of one server, in order of evaluation."""
        server_bundles = tuple(each for each in self.bundles if each.server_id == server.id)
        # Rules that refuse for every caller come first, then those that hide by selection and rights. The
        # first rule that refuses or hides is the one that an explanation names as decisive.
        return ServerPolicy.from_rules(
            (
                rules.state_rule(server, state),
                rules.DefinitionRule(),
                rules.write_rule(server, self.write_tools),
                rules.trust_rule(server, self.surface, server_bundles),
                rules.server_rule(server),
                rules.native_rule(self.in_chat)
                if server.id == NATIVE_SERVER_ID
                else rules.bundles_rule(server.id, self.bundles, self.surface),
                rules.agent_rule(self.agent, self.surface),
                rules.instance_rule(instance_filter),
                rules.choice_rule(server.id, self.choice),
                *(() if self.scope is None else (rules.token_rule(self.scope, server, self.agent),)),
            )
        )


_MAX_COMPARED_NAMES = 500
"""Maximum number of names compared for a suggestion; comparing thousands would block the event loop."""
_MAX_NAME_CHARACTERS = 128
"""Maximum number of characters of an unknown name that are compared and shown."""


def build_refusal(
    name: str, visible_names: Iterable[str] = (), hidden_tools: Iterable[HiddenTool] = ()
) -> ToolRefused:
    """Build the error for a name that does not exist for the caller.

    Only ``visible_names``, the names that this caller sees, and ``hidden_tools``, whose existence it may
    know, are suggested, so that the message reveals nothing about other tools.
    """
    hidden = {tool.name: tool for tool in hidden_tools}
    known_names = _nearby_names(name, {*visible_names, *hidden})
    similar = next(iter(get_close_matches(name[:_MAX_NAME_CHARACTERS], known_names, n=1)), None)
    hint = f"did you mean '{similar}'?" if similar else "list the tools to see the available names"
    if similar and (tool := hidden.get(similar)) is not None:
        hint = f"did you mean '{tool.name}'? It is hidden ({tool.rule}): {tool.reason}"
    shortened = name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"
    return ToolRefused(f"no tool named '{shortened}' is available", hint=hint, suggestion=similar)


def build_hidden_refusal(name: str, rule: str, reason: str, options: str = "") -> ToolRefused:
    """Build the error for a hidden tool whose existence the caller may know.

    ``options`` are those of the call, which ``toolyard why`` needs as well.
    """
    hint = f"`toolyard why {name}{options}` explains all rules"
    if rule == rules.WRITE_RULE_TITLE:
        hint = f"set write_tools to 'ask' or 'allow' to use it; {hint}"
    return ToolRefused(f"'{name}' is hidden: {reason}", hint=hint, rule=rule)


def _nearby_names(name: str, visible_names: Iterable[str]) -> list[str]:
    """Return the names to compare with; if there are too many, the alphabetical neighbours of ``name``."""
    # A misspelled name usually sorts near the intended one, because the beginning is right.
    others = sorted(other for other in visible_names if other != name)
    first = (
        max(0, bisect(others, name) - _MAX_COMPARED_NAMES // 2) if len(others) > _MAX_COMPARED_NAMES else 0
    )
    return others[first : first + _MAX_COMPARED_NAMES]


def select_bundles(ids: Iterable[str], known: Mapping[str, Bundle]) -> tuple[Bundle, ...]:
    """Return the bundles with these ids. Raises ConfigError with one problem per unknown id.

    Unknown ids must not be skipped: an empty selection means that bundles restrict nothing.
    """
    unique_ids = tuple(dict.fromkeys(ids))
    problems = [_unknown_bundle_problem(each, known) for each in unique_ids if each not in known]
    if problems:
        raise ConfigError(problems)
    return tuple(known[each] for each in unique_ids)


def _unknown_bundle_problem(bundle_id: str, known: Mapping[str, Bundle]) -> Problem:
    similar = get_close_matches(bundle_id, known, n=1)
    hint = f"did you mean '{similar[0]}'?" if similar else 'define it under "bundles" in the configuration'
    return Problem(f"unknown bundle '{bundle_id}'", hint=hint)
