"""The rules of the policy, in no particular order; ``policy.py`` has the order of their evaluation.

``Rule`` is their interface.

A rule decides by one input: the token's scope, the agent, the bundles, the selected tools, the server's
lists, state or trust, the definition's state, native tools, or the setting ``write_tools``. Allowlists and
denylists contain the server's own tool names, and deny takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from toolyard.policy.agent_patterns import ToolPatterns, compile_patterns
from toolyard.policy.glob import NameMatcher, compile_globs, matches_glob
from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import RuleOutcome, Surface, WriteTools
from toolyard.types.server import Bundle, Server, State, Trust
from toolyard.types.tool import Definition

__all__ = [
    "AllowDenyLists",
    "AllowDenyRule",
    "Candidate",
    "ConstantRule",
    "DefinitionRule",
    "Rule",
    "agent_rule",
    "build_allow_deny_rule",
    "bundles_rule",
    "choice_rule",
    "instance_rule",
    "native_rule",
    "scope_covers_server",
    "scope_covers_slug",
    "server_rule",
    "state_rule",
    "token_rule",
    "trust_rule",
    "write_rule",
]


class Candidate(NamedTuple):
    """A tool to decide about."""

    definition: Definition
    name: str
    """Exposed name."""
    quarantine: str | None = None
    """Reason why the tool is quarantined: invalid, or different from the locked definition.

    None: it is not.
    """


class Rule(Protocol):
    """One rule, compiled for one server and one caller. A tool passes, or the result is ``fail_outcome``.

    ``passes`` is called for every tool of a listing and builds no text; ``reason`` explains the same result.
    """

    @property
    def title(self) -> str: ...

    @property
    def fail_outcome(self) -> RuleOutcome: ...

    def passes(self, tool: Candidate) -> bool: ...

    def reason(self, tool: Candidate) -> str: ...


@dataclass(frozen=True, slots=True)
class ConstantRule:
    """Rule with the same outcome for every tool of the server: ``fail_outcome``, which may be PASS."""

    title: str
    fail_outcome: RuleOutcome
    explanation: str

    def passes(self, tool: Candidate) -> bool:
        return self.fail_outcome is RuleOutcome.PASS

    def reason(self, tool: Candidate) -> str:
        return self.explanation


TOKEN_RULE_TITLE = "token"


def token_rule(scope: TokenScope, server: Server, agent: Agent | None) -> Rule:
    """Hide servers, tools and agents outside the scope of the token."""
    if scope.agents is not None and (agent is None or not compile_globs(scope.agents)(agent.id)):
        agents = ", ".join(scope.agents) or "none"
        return ConstantRule(
            TOKEN_RULE_TITLE, RuleOutcome.HIDE, f"the token is limited to these agents: {agents}"
        )
    if not scope_covers_server(scope, server):
        return ConstantRule(
            TOKEN_RULE_TITLE, RuleOutcome.HIDE, f"the token does not include server '{server.id}'"
        )
    if scope.tools is None:
        return ConstantRule(TOKEN_RULE_TITLE, RuleOutcome.PASS, "the token includes all tools of this server")
    return _PatternRule(TOKEN_RULE_TITLE, "the token", compile_patterns(scope.tools))


def scope_covers_server(scope: TokenScope | None, server: Server) -> bool:
    """Return whether a token includes a server, by the id of a configured one or the slug of an instance."""
    return scope_covers_slug(scope, server.id if server.instance is None else server.instance.slug)


def scope_covers_slug(scope: TokenScope | None, slug: str) -> bool:
    """Return whether a token includes an instance with this slug."""
    return scope is None or scope.servers is None or bool(compile_globs(scope.servers)(slug))


@dataclass(frozen=True, slots=True)
class _PatternRule:
    """Hides tools that the patterns of a token or an agent do not allow."""

    title: str
    owner: str
    """Name of the token or agent in reasons."""
    patterns: ToolPatterns
    fail_outcome: RuleOutcome = RuleOutcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return self.patterns.allows(tool.name)

    def reason(self, tool: Candidate) -> str:
        text = self.patterns.deciding_pattern(tool.name)
        if text is None:
            return f"no pattern of {self.owner} matches '{tool.name}'"
        return f"'{text}' is the last pattern of {self.owner} that matches '{tool.name}'"


AGENT_RULE_TITLE = "agent"


def agent_rule(agent: Agent | None, surface: Surface) -> Rule:
    """Hide tools that the agent's patterns do not allow; in meta mode, hide all from its direct tools."""
    if agent is None:
        return ConstantRule(AGENT_RULE_TITLE, RuleOutcome.PASS, "no agent")
    if agent.mode == "meta" and surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            AGENT_RULE_TITLE, RuleOutcome.HIDE, f"agent '{agent.id}' finds its tools by search (mode: meta)"
        )
    if agent.tools is None:
        return ConstantRule(
            AGENT_RULE_TITLE, RuleOutcome.PASS, f"agent '{agent.id}' has no tools list, so it has all tools"
        )
    return _PatternRule(AGENT_RULE_TITLE, f"agent '{agent.id}'", compile_patterns(agent.tools))


BUNDLES_RULE_TITLE = "bundles"


def bundles_rule(server_id: str, bundles: tuple[Bundle, ...], surface: Surface) -> Rule:
    """Hide tools that the selected bundles do not include.

    Several bundles of one server combine to the intersection of their allowlists and the union of their
    denylists. If one of them is in meta mode, models do not receive the server's tools directly, since an
    additional bundle must never widen access.
    """
    if not bundles:
        return ConstantRule(BUNDLES_RULE_TITLE, RuleOutcome.PASS, "no bundle is selected")
    own = tuple(each for each in bundles if each.server_id == server_id)
    if not own:
        return ConstantRule(
            BUNDLES_RULE_TITLE, RuleOutcome.HIDE, f"no selected bundle includes server '{server_id}'"
        )
    meta = next((each for each in own if each.mode == "meta"), None)
    if meta is not None and surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            BUNDLES_RULE_TITLE,
            RuleOutcome.HIDE,
            f"the tools of bundle '{meta.id}' can only be found by search (mode: meta)",
        )
    entries = [AllowDenyLists(f"bundle '{each.id}'", each.allow_tools, each.deny_tools) for each in own]
    return build_allow_deny_rule(BUNDLES_RULE_TITLE, RuleOutcome.HIDE, entries)


DEFINITION_RULE_TITLE = "definition"


@dataclass(frozen=True, slots=True)
class DefinitionRule:
    """Refuse a tool that the catalogue or the lock has quarantined."""

    title: str = DEFINITION_RULE_TITLE
    fail_outcome: RuleOutcome = RuleOutcome.REFUSE

    def passes(self, tool: Candidate) -> bool:
        return tool.quarantine is None

    def reason(self, tool: Candidate) -> str:
        return "not in quarantine" if tool.quarantine is None else f"in quarantine: {tool.quarantine}"


NATIVE_RULE_TITLE = "native"


def native_rule(in_chat: bool) -> Rule:
    """Hide the built-in tools from callers outside a chat."""
    if in_chat:
        return ConstantRule(
            NATIVE_RULE_TITLE,
            RuleOutcome.PASS,
            "built-in tools are available in chats; bundles do not apply to them",
        )
    return ConstantRule(NATIVE_RULE_TITLE, RuleOutcome.HIDE, "built-in tools are available in chats only")


INSTANCE_RULE_TITLE = "instance"
CHAT_RULE_TITLE = "chat"


def instance_rule(names: Iterable[str] | None) -> Rule:
    """Hide tools that are not enabled on the instance. None: no filter, all tools; empty: none."""
    if names is None:
        return ConstantRule(INSTANCE_RULE_TITLE, RuleOutcome.PASS, "no instance filter applies")
    return _SelectedToolsRule(INSTANCE_RULE_TITLE, "enabled on the instance", frozenset(names))


def choice_rule(server_id: str, ids: Iterable[str] | None) -> Rule:
    """Hide tools that are not selected in the chat. ``ids`` are canonical; None: no selection, all tools."""
    if ids is None:
        return ConstantRule(CHAT_RULE_TITLE, RuleOutcome.PASS, "the chat has no selection of tools")
    prefix = f"{server_id}/"
    names = frozenset(each.removeprefix(prefix) for each in ids if each.startswith(prefix))
    return _SelectedToolsRule(CHAT_RULE_TITLE, "selected in the chat", names)


@dataclass(frozen=True, slots=True)
class _SelectedToolsRule:
    title: str
    criterion: str
    names: frozenset[str]
    fail_outcome: RuleOutcome = RuleOutcome.HIDE

    def passes(self, tool: Candidate) -> bool:
        return tool.definition.name in self.names

    def reason(self, tool: Candidate) -> str:
        verb = "is" if self.passes(tool) else "is not"
        return f"'{tool.definition.name}' {verb} {self.criterion}"


SERVER_RULE_TITLE = "server"


def server_rule(server: Server) -> Rule:
    """Refuse tools that are not in allowTools or that are in denyTools of the server."""
    if server.allow_tools is None and not server.deny_tools:
        return ConstantRule(
            SERVER_RULE_TITLE, RuleOutcome.PASS, "the server has neither allowTools nor denyTools"
        )
    entry = AllowDenyLists(f"server '{server.id}'", server.allow_tools, server.deny_tools)
    return build_allow_deny_rule(SERVER_RULE_TITLE, RuleOutcome.REFUSE, [entry])


STATE_RULE_TITLE = "state"


def state_rule(server: Server, state: State) -> Rule:
    """Refuse the tools of a disabled or closed server.

    A server that failed or needs credentials keeps its tools. Its calls return the cause, and the list of
    tools, on which the prompt caches of models depend, stays stable.
    """
    if server.disabled_reason is not None:
        return ConstantRule(
            STATE_RULE_TITLE,
            RuleOutcome.REFUSE,
            f"server '{server.id}' is disabled: {server.disabled_reason}",
        )
    if not server.enabled or state is State.DISABLED:
        return ConstantRule(STATE_RULE_TITLE, RuleOutcome.REFUSE, f"server '{server.id}' is disabled")
    if state is State.CLOSED:
        return ConstantRule(STATE_RULE_TITLE, RuleOutcome.REFUSE, f"server '{server.id}' is closed")
    return ConstantRule(
        STATE_RULE_TITLE, RuleOutcome.PASS, f"server '{server.id}' is enabled; its state is {state.value}"
    )


TRUST_RULE_TITLE = "trust"


def trust_rule(server: Server, surface: Surface, selected: Sequence[Bundle]) -> Rule:
    """Keep the definitions of an untrusted server out of a model's prompt.

    ``selected`` are the selected bundles of this server. The configuration requires an allowlist on the
    server or on each of its bundles; if only the bundles have one and none is selected, no tool is allowed.
    """
    if server.trust is Trust.TRUSTED:
        return ConstantRule(TRUST_RULE_TITLE, RuleOutcome.PASS, "the server is trusted")
    has_allowlist = server.allow_tools is not None or any(each.allow_tools is not None for each in selected)
    if not has_allowlist:
        return ConstantRule(
            TRUST_RULE_TITLE, RuleOutcome.REFUSE, "the server is untrusted and no allowTools applies"
        )
    if surface is Surface.MODEL_DIRECT:
        return ConstantRule(
            TRUST_RULE_TITLE,
            RuleOutcome.HIDE,
            "the server is untrusted, so models can only find its tools by search",
        )
    return ConstantRule(
        TRUST_RULE_TITLE, RuleOutcome.PASS, f"the server is untrusted, which is allowed for '{surface}'"
    )


WRITE_RULE_TITLE = "write tools"


def write_rule(server: Server, write_tools: WriteTools) -> Rule:
    """Refuse write tools, or require an approval for each call, depending on ``write_tools``.

    The readOnlyHint of a trusted server is believed. A missing hint is accepted there, because most servers
    send none. The hints of an untrusted server are ignored, so none of its tools is known to be read-only.
    """
    if write_tools is WriteTools.ALLOW:
        return ConstantRule(WRITE_RULE_TITLE, RuleOutcome.PASS, "write_tools is 'allow'")
    fail_outcome = RuleOutcome.ASK if write_tools is WriteTools.ASK else RuleOutcome.REFUSE
    return _WriteRule(fail_outcome, write_tools, server.trust)


@dataclass(frozen=True, slots=True)
class _WriteRule:
    fail_outcome: RuleOutcome
    write_tools: WriteTools
    trust: Trust
    title: str = WRITE_RULE_TITLE

    def passes(self, tool: Candidate) -> bool:
        return self.trust is Trust.TRUSTED and tool.definition.read_only_hint is not False

    def reason(self, tool: Candidate) -> str:
        passes = self.passes(tool)
        match tool.definition.read_only_hint:
            case False:
                cause = "this tool can change data (readOnlyHint is false)"
            case True:
                cause = "readOnlyHint is true"
                cause += "" if passes else ", which is not accepted from an untrusted server"
            case None:
                accepted = "accepted from a trusted" if passes else "not accepted from an untrusted"
                cause = f"no readOnlyHint, which is {accepted} server"
        if passes:
            return cause
        if self.write_tools is WriteTools.ASK:
            return f"{cause}, so your approval is needed"
        return f"{cause}, and write_tools is '{self.write_tools}'"


@dataclass(frozen=True, slots=True)
class AllowDenyLists:
    """Both lists of one entry. ``place`` names the entry in messages, e.g. ``server 'repo'``."""

    place: str
    allow: tuple[str, ...] | None
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowDenyRule:
    """Pass a tool that every allowlist and no denylist matches."""

    title: str
    fail_outcome: RuleOutcome
    entries: tuple[AllowDenyLists, ...]
    allow: tuple[NameMatcher, ...]
    deny: NameMatcher

    def passes(self, tool: Candidate) -> bool:
        name = tool.definition.name
        for matches in self.allow:
            if not matches(name):
                return False
        return not self.deny(name)

    def reason(self, tool: Candidate) -> str:
        name = tool.definition.name
        allowed = [
            (each.place, _first_match(each.allow, name)) for each in self.entries if each.allow is not None
        ]
        for place, glob in allowed:
            if glob is None:
                return f"allowTools of {place} does not include '{name}'"
        for each in self.entries:
            glob = _first_match(each.deny, name)
            if glob is not None:
                return f"denyTools of {each.place} includes '{glob}'"
        return (
            "; ".join(f"allowTools of {place} includes '{glob}'" for place, glob in allowed)
            or "no denyTools matches"
        )


def build_allow_deny_rule(
    title: str, fail_outcome: RuleOutcome, entries: Iterable[AllowDenyLists]
) -> AllowDenyRule:
    """Build the rule for several entries that all apply."""
    all_entries = tuple(entries)
    return AllowDenyRule(
        title,
        fail_outcome,
        all_entries,
        allow=tuple(compile_globs(each.allow) for each in all_entries if each.allow is not None),
        deny=compile_globs(tuple(glob for each in all_entries for glob in each.deny)),
    )


def _first_match(globs: Iterable[str], name: str) -> str | None:
    return next((glob for glob in globs if matches_glob(glob, name)), None)
