"""Cost of tool definitions in tokens, estimated without a tokenizer's vocabulary, and proposals to stay
within a budget. Pure functions.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson

from toolyard.types.tool import Definition, JsonObject

__all__ = [
    "SavingKind",
    "SavingProposal",
    "ToolCost",
    "estimate_definition_tokens",
    "estimate_tokens",
    "estimate_tool_tokens",
    "propose_savings",
]

# Tokens per character of each class, fitted by least squares to o200k_base counts over the tool definitions
# of five published servers, with prose, code and five other languages beside them. Lower-case letters inside
# a word cost little; characters that begin or separate words cost most of a token.
_TOKENS_PER_CHARACTER = {
    b"a": 0.105,  # lower-case letters
    b"A": 0.42,  # upper-case letters: they begin words, also within camelCase
    b"0": 0.62,  # digits
    b" ": 0.50,  # white space
    b".": 0.48,  # punctuation
    b"2": 0.21,  # characters of two bytes: Cyrillic, Greek, Arabic
    b"3": 0.62,  # of three: Chinese, Japanese, Korean
    b"4": 2.00,  # of four: emoji
}


def _character_class(byte: int) -> bytes:
    if byte >= 0x80:
        lengths = ((0xF0, b"4"), (0xE0, b"3"), (0xC0, b"2"))
        return next((name for first, name in lengths if byte >= first), b"_")
    char = chr(byte)
    if char.isalpha():
        return b"a" if char.islower() else b"A"
    return b"0" if char.isdigit() else b" " if char.isspace() else b"."


_CLASS_BY_BYTE = b"".join(_character_class(byte) for byte in range(256))


def estimate_tokens(text: str) -> int:
    """Return an estimate of the o200k_base tokens in ``text``; for tool definitions mostly within a sixth.

    Takes a few microseconds per definition. User interfaces should show the number as an estimate.
    """
    classes = text.encode("utf-8", "replace").translate(_CLASS_BY_BYTE)
    return math.ceil(sum(weight * classes.count(name) for name, weight in _TOKENS_PER_CHARACTER.items()))


def estimate_definition_tokens(definition: Definition) -> int:
    """Return an estimate of the tokens of a tool's name, description and input schema."""
    if definition.tokens is not None:
        return definition.tokens
    return estimate_tool_tokens(definition.name, definition.description, definition.input_schema)


def estimate_tool_tokens(name: str, description: str, input_schema: JsonObject) -> int:
    """Return an estimate of the tokens of a tool as a client or model sees it."""
    shown = {"name": name, "description": description, "parameters": dict(input_schema)}
    try:
        text = orjson.dumps(shown).decode()
    except TypeError:
        text = json.dumps(shown, separators=(",", ":"))
    return estimate_tokens(text)


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
