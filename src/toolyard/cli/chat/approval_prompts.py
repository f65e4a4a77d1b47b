"""What a person is asked in the middle of a turn: may this call be made, and what servers want to know."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolyard.agents.chat.approval_grants import Remember
from toolyard.cli.chat.elicitation_forms import Field, Unfit, fields_of, read_field
from toolyard.cli.chat.tool_cards import Body
from toolyard.cli.input.prompts import arguments_to_approve, line_while_running
from toolyard.cli.output.messages import show_error
from toolyard.cli.output.safe_text import one_line, plain
from toolyard.cli.output.terminal import paint
from toolyard.types.visible_text import visible

__all__ = ["Approved", "InputEnded", "Replied", "ask_approval", "ask_question"]

_HOUR = 3_600.0
_SHOWN_CHOICES = 50


class InputEnded(Exception):
    """Nobody types any more. What was asked stays unanswered."""


@dataclass(frozen=True, slots=True)
class Approved:
    """What the person said about a call."""

    yes: bool
    remember: Remember | None = None


@dataclass(frozen=True, slots=True)
class Replied:
    """What the person said to a server. ``action`` is accept, decline or cancel."""

    action: str
    content: Mapping[str, Any] | None = None


async def ask_approval(call: Body, reason: str) -> Approved:
    """Whether a call may be made. Raises InputEnded."""
    name, server = one_line(str(call.get("name")), 80), one_line(str(call.get("server") or ""), 60)
    _say(f"{paint(name, 'bold', sys.stderr)} of {server} needs your approval: {one_line(reason, 300)}")
    shown = arguments_to_approve(call.get("arguments"), indent=2)
    if shown is None:
        _say("The arguments are too long to be shown here, so the call cannot be approved at a terminal.")
        while (await _line("Decline it? [n] no call: ")).casefold() not in ("n", "no"):
            pass
        return Approved(False)
    _say(shown)
    while True:
        answer = (await _line("Call it? [y] once, [a] with these arguments for an hour, [n] no: ")).casefold()
        if answer in ("y", "yes"):
            return Approved(True)
        if answer in ("a", "always"):
            return Approved(True, Remember(_HOUR, "these", True))
        if answer in ("n", "no"):
            return Approved(False)


async def ask_question(question: Body) -> Replied:
    """What a server wants to know. Raises InputEnded."""
    server = one_line(str(question.get("server") or ""), 60)
    _say(f"{paint(server, 'bold', sys.stderr)} asks: {plain(str(question.get('message') or ''))}")
    kind = question.get("kind")
    if kind == "url":
        _say(f"\n{visible(question.get('url') or '', spaces=True)}\n")
        return await _yes_or_no("Open it, and answer here when you are done. Done? [y/n]: ")
    if kind == "sampling":
        _say(visible(question.get("request") or "", spaces=True))
        return await _yes_or_no("Let it ask your model this? [y/n]: ")
    return await _form(fields_of(question.get("schema")))


async def _form(fields: list[Field]) -> Replied:
    if fields and (await _yes_or_no("Answer it? [y/n]: ")).action != "accept":
        return Replied("decline")
    content: dict[str, Any] = {}
    for field in fields:
        value = await _value(field)
        if value is not None:
            content[field.name] = value
    if not fields:
        return await _yes_or_no("Agree? [y/n]: ")
    _say(visible(json.dumps(content, ensure_ascii=False, indent=2, default=str), spaces=True))
    return Replied("accept", content) if await _sure() else Replied("decline")


async def _sure() -> bool:
    return (await _yes_or_no("Send this? [y/n]: ")).action == "accept"


async def _value(field: Field) -> Any:
    if field.help:
        _say(paint(f"  {field.help}", "dim", sys.stderr))
    for number, choice in enumerate(field.choices[:_SHOWN_CHOICES], 1):
        _say(f"  {number}) {choice.label}")
    if len(field.choices) > _SHOWN_CHOICES:
        _say(f"  … and {len(field.choices) - _SHOWN_CHOICES} more, by name")
    while True:
        try:
            return read_field(field, await _line(_prompt(field)))
        except Unfit as unfit:
            show_error(f"{field.label}: {unfit}")


def _prompt(field: Field) -> str:
    words = {
        "flag": "y/n",
        "choice": "one of them",
        "choices": "some, parted by commas",
        "json": "as JSON",
        "integer": "a whole number",
        "number": "a number",
    }
    notes = [words.get(field.kind, ""), "" if field.required else "optional"]
    said = ", ".join(note for note in notes if note)
    default = f" [{one_line(field.default_words, 60)}]" if field.default is not None else ""
    return f"{field.label}{f' ({said})' if said else ''}{default}: "


async def _yes_or_no(prompt: str) -> Replied:
    while True:
        answer = (await _line(prompt)).casefold()
        if answer in ("y", "yes"):
            return Replied("accept")
        if answer in ("n", "no"):
            return Replied("decline")


async def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        line = await line_while_running()
    except asyncio.CancelledError:
        sys.stderr.write("\n")
        raise
    if not line:
        sys.stderr.write("\n")
        raise InputEnded
    return line.strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
