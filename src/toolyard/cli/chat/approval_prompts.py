"""Questions to the person during a turn: approvals of calls, and elicitation of servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from toolyard.agents.chat.approval_grants import GrantScope
from toolyard.catalog.schemas.form_fields import (
    InvalidInput,
    SchemaField,
    check_limits,
    parse_choice_name,
    parse_text,
    read_schema_fields,
)
from toolyard.cli.input.prompts import format_arguments_for_approval, read_line_async
from toolyard.cli.output.console import make_printable, one_line, print_to_stderr, show_error, style_text
from toolyard.types.chat import CallRequest, Question
from toolyard.types.visible_text import visible

__all__ = [
    "ApprovalReply",
    "InputEnded",
    "QuestionReply",
    "ask_approval",
    "ask_question",
    "format_field_prompt",
    "parse_field_input",
]

_REMEMBER_SECONDS = 3_600.0
_MAX_SHOWN_CHOICES = 50


class InputEnded(Exception):
    """Raised at the end of input. The question stays unanswered."""


@dataclass(frozen=True, slots=True)
class ApprovalReply:
    """The person's answer to an approval question, or a refusal because nobody can be asked."""

    approved: bool
    remember: GrantScope | None = None
    unattended: bool = False


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """The person's answer to a server. ``action`` is accept, decline or cancel."""

    action: str
    content: Mapping[str, Any] | None = None


async def ask_approval(call: CallRequest, reason: str) -> ApprovalReply:
    """Ask for approval of a call. Raises InputEnded."""
    name, server = one_line(call.name, 80), one_line(call.server, 60)
    print_to_stderr(
        f"{style_text(name, 'bold', sys.stderr)} of {server} needs your approval: {one_line(reason, 300)}"
    )
    shown = format_arguments_for_approval(call.arguments, indent=2)
    if shown is None:
        print_to_stderr(
            "The arguments are too long to show here, so the call cannot be approved in a terminal."
        )
        while (await _read_line("Type n to decline: ")).casefold() not in ("n", "no"):
            pass
        return ApprovalReply(False)
    print_to_stderr(shown)
    while True:
        answer = (
            await _read_line(
                "Allow this call? [y] once, [a] these arguments in this chat for 1 hour, [n] no: "
            )
        ).casefold()
        if answer in ("y", "yes"):
            return ApprovalReply(True)
        if answer in ("a", "always"):
            return ApprovalReply(True, GrantScope(_REMEMBER_SECONDS, "these", True))
        if answer in ("n", "no"):
            return ApprovalReply(False)


async def ask_question(question: Question) -> QuestionReply:
    """Ask a server's question. Raises InputEnded."""
    server = style_text(one_line(question.server, 60), "bold", sys.stderr)
    print_to_stderr(f"{server} asks: {make_printable(question.message)}")
    if question.kind == "url":
        print_to_stderr(f"\n{visible(question.url or '', spaces=True)}\n")
        return await _ask_yes_or_no("Open this address, then confirm here. Done? [y/n]: ")
    if question.kind == "sampling":
        print_to_stderr(visible(question.request or "", spaces=True))
        return await _ask_yes_or_no("Send this request to your model? [y/n]: ")
    return await _ask_form(read_schema_fields(question.schema))


async def _ask_form(fields: Sequence[SchemaField]) -> QuestionReply:
    if fields:
        print_to_stderr("Your answer goes to the server. Do not enter passwords or keys.")
    if fields and (await _ask_yes_or_no("Answer it? [y/n]: ")).action != "accept":
        return QuestionReply("decline")
    content: dict[str, Any] = {}
    for field in fields:
        value = await _ask_field_value(field)
        if value is not None:
            content[field.name] = value
    if not fields:
        return await _ask_yes_or_no("Agree? [y/n]: ")
    print_to_stderr(visible(json.dumps(content, ensure_ascii=False, indent=2, default=str), spaces=True))
    reply = await _ask_yes_or_no("Send this? [y/n]: ")
    return replace(reply, content=content) if reply.action == "accept" else reply


async def _ask_field_value(field: SchemaField) -> Any:
    if field.kind == "fixed":
        return parse_text(field, "")
    if field.help:
        print_to_stderr(style_text(f"  {one_line(field.help, 300)}", "dim", sys.stderr))
    for number, option in enumerate(field.options[:_MAX_SHOWN_CHOICES], 1):
        print_to_stderr(f"  {number}) {one_line(option.label, 80)}")
    if len(field.options) > _MAX_SHOWN_CHOICES:
        print_to_stderr(f"  … and {len(field.options) - _MAX_SHOWN_CHOICES} more, by name")
    while True:
        try:
            return parse_field_input(field, await _read_line(format_field_prompt(field)))
        except InvalidInput as expected:
            show_error(f"{_format_label(field)}: must be {expected}")


def parse_field_input(field: SchemaField, text: str) -> Any:
    """Return the value of a typed text; None for an empty optional field. Raises InvalidInput."""
    text = text.strip()
    if not text:
        if field.required and field.default is None:
            raise InvalidInput("filled in")
        return field.default
    if field.kind == "choice":
        value = parse_choice_name(field, text)
    elif field.kind == "several":
        value = [parse_choice_name(field, name.strip()) for name in text.split(",")]
        value = [each for at, each in enumerate(value) if each not in value[:at]]
    else:
        value = parse_text(field, text)
    check_limits(field, value)
    return value


def format_field_prompt(field: SchemaField) -> str:
    """Return the prompt of a field, with its default as a person would type it."""
    words = {
        "text": "",
        "long": "",
        "flag": "y/n",
        "choice": "choose one",
        "several": "some, comma-separated",
        "integer": "a whole number",
        "number": "a number",
    }
    notes = [words.get(field.kind, "as JSON"), "" if field.required else "optional"]
    said = ", ".join(note for note in notes if note)
    default = f" [{one_line(_format_default(field), 60)}]" if field.default is not None else ""
    return f"{_format_label(field)}{f' ({said})' if said else ''}{default}: "


def _format_default(field: SchemaField) -> str:
    value = field.default
    if isinstance(value, bool):
        return "y" if value else "n"
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    labels = {str(option.value): option.label for option in field.options}
    return ", ".join(labels.get(str(each), str(each)) for each in values)


def _format_label(field: SchemaField) -> str:
    return one_line(field.title or field.name, 80)


async def _ask_yes_or_no(prompt: str) -> QuestionReply:
    while True:
        answer = (await _read_line(prompt)).casefold()
        if answer in ("y", "yes"):
            return QuestionReply("accept")
        if answer in ("n", "no"):
            return QuestionReply("decline")


async def _read_line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        line = await read_line_async()
    except asyncio.CancelledError:
        sys.stderr.write("\n")
        raise
    if not line:
        sys.stderr.write("\n")
        raise InputEnded
    return line.strip()
