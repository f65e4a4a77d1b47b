"""The tools that the benchmark's server offers: two that answer, and as many more as were asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["big_text", "definitions"]

NOUNS = ("issue", "invoice", "branch", "customer", "deployment", "document", "event", "order", "volume")
VERBS = ("create", "delete", "describe", "list", "search", "update")
LINE = 'The quick brown fox said "no" to the lazy dog,\n\tand that was that: 0123456789 über alles.\n'

ANSWERING: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Gives back the text that it was given.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "What to give back"}},
            "required": ["text"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "big",
        "description": "Gives back a text of as many megabytes as were asked for.",
        "inputSchema": {
            "type": "object",
            "properties": {"mb": {"type": "integer", "minimum": 1, "description": "Megabytes"}},
            "required": ["mb"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "seen",
        "description": "Gives back, a line each, how often every method was asked for in this process.",
        "inputSchema": {"type": "object", "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    },
]


def definitions(tool_count: int) -> list[dict[str, Any]]:
    """The answering tools and ``generated`` more, of the size that tools of real servers have."""
    return ANSWERING + [_build_tool(number) for number in range(tool_count)]


def big_text(megabytes: int) -> str:
    """About a million characters per megabyte; some need an escape in JSON, as real text does."""
    return LINE * (megabytes * 1_000_000 // len(LINE))


def _build_tool(number: int) -> dict[str, Any]:
    verb, noun = VERBS[number % len(VERBS)], NOUNS[number // len(VERBS) % len(NOUNS)]
    return {
        "name": f"{verb}_{noun}_{number}",
        "title": f"{verb.capitalize()} {noun}",
        "description": (
            f"{verb.capitalize()} one {noun} or many of them in the given project. Use it when the user "
            f"names the {noun} or describes it closely enough. Answers with the {noun} as it is afterwards; "
            "an unknown project is an error, an empty match is not."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "project": {"type": "string", "description": "Key, such as CORE", "minLength": 1},
                f"{noun}_id": {"type": "integer", "description": f"Number of the {noun}", "minimum": 1},
                "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
                "labels": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Only those that carry all of these labels",
                },
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
                "options": {
                    "type": "object",
                    "properties": {
                        "dry_run": {"type": "boolean", "description": "Say what would be done, do nothing"},
                        "notify": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                    },
                    "additionalProperties": False,
                },
            },
            "required": ["project"],
            "additionalProperties": False,
        },
        "annotations": {
            "readOnlyHint": verb in ("describe", "list", "search"),
            "destructiveHint": verb == "delete",
        },
    }
