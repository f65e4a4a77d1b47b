"""Calls of tools: the caller, the policy decision, the call, the request to a server, and the record of the
outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from toolyard.types.account import LOCAL_PRINCIPAL, Principal, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.server import Bundle, Timeouts
from toolyard.types.tool import Definition, JsonObject, ResultLimits

__all__ = [
    "ApprovalRequest",
    "CallRecord",
    "Caller",
    "Decision",
    "DecisionStep",
    "HiddenTool",
    "McpRequest",
    "OnProgress",
    "RequestClient",
    "RuleOutcome",
    "Surface",
    "ToolCall",
    "Verdict",
    "WriteTools",
    "summarize_hiding_rules",
]


class Surface(StrEnum):
    """Way in which a tool is offered to the caller."""

    MODEL_DIRECT = "model-direct"
    """A model receives the definition of the tool itself."""
    MODEL_META = "model-meta"
    """A model calls the tool through the meta tools."""
    OPERATOR = "operator"
    """A person or a program calls it: library, command line, tool console."""


class WriteTools(StrEnum):
    """Treatment of tools that are not known to be read-only."""

    REJECT = "reject"
    """No caller may use them."""
    ASK = "ask"
    """Each call needs an approval."""
    ALLOW = "allow"
    """They are treated like read-only tools."""


class Verdict(StrEnum):
    """Result of a policy decision."""

    ALLOW = "allow"
    """Visible and callable."""
    ASK = "ask"
    """Visible, and callable after an approval."""
    HIDE = "hide"
    """Outside the selection or the rights of this caller; another caller may have access."""
    REFUSE = "refuse"
    """Unavailable to every caller until the operator changes the configuration."""

    @property
    def is_visible(self) -> bool:
        """Whether the caller sees the tool."""
        return self in _VISIBLE_VERDICTS


_VISIBLE_VERDICTS = frozenset({Verdict.ALLOW, Verdict.ASK})


class RuleOutcome(StrEnum):
    """Outcome of one rule."""

    PASS = "pass"
    """No objection; the next rule decides."""
    ASK = "ask"
    """Allowed only with an approval."""
    HIDE = "hide"
    """Final: the tool is hidden."""
    REFUSE = "refuse"
    """Final: the tool is refused."""


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """Outcome of one rule, with its reason for people. Steps are in order of evaluation."""

    rule: str
    outcome: RuleOutcome
    reason: str


@dataclass(frozen=True, slots=True)
class HiddenTool:
    """A tool that a rule hides or refuses. ``name`` is its exposed name, ``id`` its canonical id."""

    name: str
    id: str
    server: str
    rule: str
    reason: str


_RULE_SUMMARIES = {
    "definition": "in quarantine",
    "trust": "untrusted server",
    "server": "not in allowTools, or in denyTools",
    "bundles": "not in the bundles",
    "agent": "not for this agent",
    "instance": "not enabled on the instance",
}


def summarize_hiding_rules(rules: Iterable[str]) -> str:
    """Return the rules that hide some tools, each with the number of its tools if there are several rules."""
    counts = Counter(_RULE_SUMMARIES.get(rule, rule) for rule in rules)
    if len(counts) <= 1:
        return "".join(counts)
    return "; ".join(f"{summary}: {number}" for summary, number in counts.most_common())


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdict about one tool. ``tool`` is its canonical id, ``server/tool``; ``name`` its exposed name.

    The first step that hides or refuses decides. Later steps are evaluated too, so that an operator who
    removes one obstacle already sees the next.
    """

    tool: str
    name: str
    verdict: Verdict
    chain: tuple[DecisionStep, ...]

    @classmethod
    def from_chain(cls, tool: str, name: str, chain: tuple[DecisionStep, ...]) -> Decision:
        """Build the decision that follows from a chain of steps."""
        return cls(tool, name, _combine_outcomes(chain), chain)

    @property
    def decisive(self) -> DecisionStep | None:
        """The step that determined the verdict; None if the tool is allowed."""
        return next((step for step in self.chain if step.outcome.value == self.verdict.value), None)

    def explain(self) -> str:
        """Return the chain as text, one line per step, with an arrow at the decisive step."""
        decisive = self.decisive
        width = max((len(step.rule) for step in self.chain), default=0)
        lines = [f"{self.name} ({self.tool}): {self.verdict}"]
        for step in self.chain:
            mark = "->" if step is decisive else "  "
            lines.append(f"{mark} {step.rule:<{width}}  {step.outcome:<6}  {step.reason}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    def as_json(self) -> dict[str, object]:
        """Return the decision as a JSON object."""
        return {
            "tool": self.tool,
            "name": self.name,
            "verdict": self.verdict.value,
            "chain": [
                {"rule": step.rule, "outcome": step.outcome.value, "reason": step.reason}
                for step in self.chain
            ],
        }


def _combine_outcomes(chain: tuple[DecisionStep, ...]) -> Verdict:
    # ASK is not final: a later rule may still hide or refuse the tool.
    verdict = Verdict.ALLOW
    for step in chain:
        if step.outcome in (RuleOutcome.HIDE, RuleOutcome.REFUSE):
            return Verdict(step.outcome.value)
        if step.outcome is RuleOutcome.ASK:
            verdict = Verdict.ASK
    return verdict


OnProgress: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None] | None]
"""Called with the params of each progress notification of a call. May be a coroutine function."""


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Identity of a caller and everything that narrows its tools: agent, bundles, selected tools, token.

    Compiled policy is cached per ``Caller`` object (compared by identity), so reuse the object between calls.
    """

    principal: Principal = LOCAL_PRINCIPAL
    surface: Surface = Surface.OPERATOR
    agent: Agent | None = None
    bundles: tuple[Bundle, ...] = ()
    choice: frozenset[str] | None = None
    """Canonical ids of the tools selected in a chat; None: no selection, all tools."""
    scope: TokenScope | None = None
    """Limits of the API token that authenticated the call; None: no token was used."""
    chat: str | None = None
    """Id of the chat. Calls of a chat to instances use connections dedicated to that chat."""
    _by_surface: dict[Surface, Caller] = field(
        default_factory=lambda: dict[Surface, Caller](), init=False, repr=False
    )

    def on_surface(self, surface: Surface) -> Caller:
        """Return this caller on another surface: the same object each time."""
        if surface is self.surface:
            return self
        if surface not in self._by_surface:
            self._by_surface[surface] = replace(self, surface=surface)
        return self._by_surface[surface]


@dataclass(slots=True, eq=False, weakref_slot=True)
class RequestClient:
    """Client of ours that a request to a server is made for: a gateway client or a chat.

    A modern server learns its capabilities with the request. A legacy server on a channel that several
    clients share does not say which call its question belongs to: the client of all unanswered calls gets it.
    """

    key: str | None
    """Requests with equal keys are of one client. None: no other request is known to be of the same one."""
    name: str = "a client"
    """Name for people."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ask: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]] | None = None
    """Returns the client's answer to a request from a server: server id, method, params."""
    log_level: str | None = None
    """Level from which on the client wants the log messages from servers; None if it wants none."""
    send_log: Callable[[Mapping[str, Any]], None] | None = None
    """Sends the client the params of a log message, if they are at its level."""
    on_progress: OnProgress | None = None
    """Progress handler for calls that are made for this client."""
    round_params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Params of a request that continues an earlier one, for servers that ask in results."""
    on_input_required: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
    """Checks and returns an ``input_required`` result, for a client that answers by another request: server
    id, result. None: ``ask`` is used."""

    @property
    def is_of_one_request(self) -> bool:
        """True if this object stands for the client during one request only."""
        return self.on_input_required is not None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, as an interface requests it."""

    name: str
    """The exposed name."""
    arguments: JsonObject = field(default_factory=dict[str, Any])
    meta: Mapping[str, Any] | None = None
    """Keys for the ``_meta`` of the request, such as a trace context."""
    on_progress: OnProgress | None = None
    timeouts: Timeouts | float | None = None
    """None: those of the server. A number of seconds only shortens them."""
    limits: ResultLimits | None = None
    """Limits of the shaped result. None: those of the settings."""
    client: RequestClient | None = None
    """Client that the call is made for; None: the program itself, or the caller's chat."""
    approve: Callable[[ApprovalRequest], Awaitable[bool]] | None = None
    """Approval handler of this call; None: that of the process."""


@dataclass(frozen=True, slots=True)
class McpRequest:
    """One request to a server, passed unchanged from its origin to the session."""

    method: str
    params: Mapping[str, Any] | None = None
    repeatable: bool = False
    """Executing the request twice does no harm, so it is sent again if its outcome is unknown."""
    timeouts: Timeouts | None = None
    """None: those of the server."""
    meta: Mapping[str, Any] | None = None
    """Keys for the ``_meta`` of the request, such as a trace context."""
    on_progress: OnProgress | None = None
    client: RequestClient | None = None
    """Client that the request is made for."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that policy allows only after an approval."""

    decision: Decision
    arguments: JsonObject
    caller: Caller
    definition: Definition
    """Definition of the tool that would be called."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Outcome of one call for audit log, metrics and traces. Contains neither arguments nor results."""

    tool: str
    """The canonical id."""
    name: str
    principal: str
    agent: str | None
    outcome: str
    """``ok``, ``tool error``, ``cancelled``, or the ``kind`` of the error."""
    seconds: float
    error: str | None = None
