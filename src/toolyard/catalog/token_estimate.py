"""Estimate of the tokens that a definition takes in a model's context, without a tokenizer's vocabulary."""

from __future__ import annotations

import json
import math

import orjson

from toolyard.types.tool import Definition, JsonObject

__all__ = ["estimate_definition_tokens", "estimate_tokens", "estimate_tool_tokens"]

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
