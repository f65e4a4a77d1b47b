"""Cost of tool definitions in tokens, and proposals to stay within a budget. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["SavingKind", "SavingProposal", "ToolCost", "propose_savings"]


class SavingKind(StrEnum):
    """A way to spend fewer tokens; also the word that applies it."""

    TOOLS = "tools"
    """Deny tools that were not used, the largest first, until the rest fits."""
    BUNDLES = "bundles"
    """Define a bundle of the used tools of each server, for clients and agents to select."""
    META = "meta"
    """Let clients use the meta tools."""


@dataclass(frozen=True, slots=True)
class ToolCost:
    """A tool, by its server's own name, with an estimate of its tokens. ``calls`` is None if unknown."""

    server: str
    tool: str
    tokens: int
    calls: int | None


@dataclass(frozen=True, slots=True)
class SavingProposal:
    """A proposal with the tokens that remain, and the tools by server that it denies or selects."""

    kind: SavingKind
    tokens: int
    tools: Mapping[str, Sequence[str]]


def propose_savings(costs: Iterable[ToolCost], meta_tokens: int, limit: int) -> list[SavingProposal]:
    """Return proposals if the definitions cost more than ``limit`` tokens: those that fit come first."""
    known = list(costs)
    total = sum(each.tokens for each in known)
    if total <= limit:
        return []
    proposals = [SavingProposal(SavingKind.META, meta_tokens, {})]
    if known and all(each.calls is not None for each in known):
        used = [each for each in known if each.calls]
        denied, rest = list[ToolCost](), total
        for each in sorted(known, key=lambda each: each.tokens, reverse=True):
            if not each.calls and rest > limit:
                denied.append(each)
                rest -= each.tokens
        if denied:
            proposals.insert(0, SavingProposal(SavingKind.TOOLS, rest, _group(denied)))
        if used and len(used) < len(known):
            tokens = sum(each.tokens for each in used)
            proposals.insert(1, SavingProposal(SavingKind.BUNDLES, tokens, _group(used)))
    return sorted(proposals, key=lambda proposal: proposal.tokens > limit)


def _group(costs: Iterable[ToolCost]) -> dict[str, list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for each in costs:
        groups[each.server].append(each.tool)
    return {server: sorted(tools) for server, tools in sorted(groups.items())}
