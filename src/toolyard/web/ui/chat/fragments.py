"""The HTML of a chat's turns. Every part that changes by itself has an id, and is made here and nowhere else:
the page and the stream show the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import cast

from markupsafe import Markup

from toolyard.agents.chat.argument_review import key_summary, short_values_first
from toolyard.config.value_checks import url_fault
from toolyard.web.rendering.highlighting import highlighted
from toolyard.web.rendering.markdown import markdown
from toolyard.web.rendering.markdown_blocks import blocks_of
from toolyard.web.ui.chat.turn_view import Answer, Card, Item, Note, Outcome, Question, Turn
from toolyard.web.ui.components.formatting import host_of, one_line, pretty_json, visible
from toolyard.web.ui.components.render import part
from toolyard.web.ui.tools.form import ToolForm

__all__ = [
    "PICTURES",
    "Frame",
    "block_part",
    "foot_part",
    "item_part",
    "item_parts",
    "question_part",
    "turn_part",
]

PICTURES = frozenset(
    ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml")
)
"""What pages show as pictures."""
_TEMPLATE = "chat_parts.html"
_BLOCK = Markup('<div class="block" id="{}-b{}">{}</div>')


@dataclass(frozen=True, slots=True)
class Frame:
    """What all parts of one chat's page have in common, and how they say things."""

    chat: str
    csrf: str
    forms: Mapping[str, ToolForm] = field(default_factory=dict[str, ToolForm])
    """Of questions whose form was sent and is shown again, by the question's key."""
    to_html: Callable[[str], Markup] = markdown
    """Renders the Markdown of an answer."""
    picture: str = ""
    """Where the pictures are of a chat that there is not; empty: where results are."""

    def media(self, seq: int, number: int) -> str:
        """Where a picture, sound or file of a result is."""
        return self.picture or f"/api/v1/chats/{self.chat}/results/{seq}/media/{number}"

    def form(self, question: Question) -> ToolForm:
        """The form of a question."""
        sent = self.forms.get(question.key)
        return ToolForm.question(question.schema, question.key) if sent is None else sent

    @staticmethod
    def coloured(value: object) -> Markup:
        """A JSON value in colours; a text as it is."""
        if isinstance(value, str):
            return Markup.escape(visible(value, spaces=True))
        return Markup(highlighted(pretty_json(value), "json"))

    @staticmethod
    def to_approve(arguments: object) -> Markup:
        """All arguments of a call that needs approval: keys and short values first."""
        summary, shown = key_summary(arguments), Frame.coloured(short_values_first(arguments))
        return Markup("{}\n{}").format(visible(summary, spaces=True), shown) if summary else shown

    @staticmethod
    def result(outcome: Outcome) -> Markup:
        """The beginning of a result: laid out where it is JSON, and there is no more of it."""
        if outcome.length == len(outcome.text) and outcome.text.lstrip()[:1] in ("{", "["):
            try:
                return Frame.coloured(json.loads(outcome.text))
            except (ValueError, RecursionError):
                pass
        return Markup.escape(visible(outcome.text))

    @staticmethod
    def brief(arguments: object) -> str:
        """Arguments in a line."""
        if not isinstance(arguments, Mapping):
            return one_line(arguments, 100)
        pairs = cast("Mapping[str, object]", arguments)
        said = (
            f"{name}: {value if isinstance(value, str) else pretty_json(value)}"
            for name, value in pairs.items()
        )
        return one_line(", ".join(one_line(each, 60) for each in said), 100)

    @staticmethod
    def money(cost: Decimal) -> str:
        """US dollars, as many digits as say something."""
        return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}" if cost >= Decimal("0.0001") else "< $0.0001"

    @staticmethod
    def is_picture(mime: str) -> bool:
        """Whether a page shows it."""
        return mime.partition(";")[0].strip().lower() in PICTURES

    @staticmethod
    def is_web(url: str) -> bool:
        """Whether an address leads to a page of the web."""
        return url_fault(url) is None and bool(Frame.host(url))

    @staticmethod
    def host(url: str) -> str:
        """Whose page it is."""
        return host_of(url)


def turn_part(turn: Turn, frame: Frame) -> Markup:
    """A whole turn."""
    items = Markup("").join(item_part(each, frame) for each in turn.items)
    return part(_TEMPLATE, "turn", turn, frame, items, foot_part(turn, frame))


def foot_part(turn: Turn, frame: Frame) -> Markup:
    """How a turn stands, what it cost, and what can be done about it."""
    return part(_TEMPLATE, "foot", turn, frame)


def item_part(item: Item, frame: Frame) -> Markup:
    """One thing that was said or done, whole."""
    inner = item_parts(item, frame)
    if isinstance(item, Answer):
        blocks = Markup("\n").join(
            block_part(item.key, number, text, frame) for number, text in enumerate(blocks_of(item.text))
        )
        return part(_TEMPLATE, "answer", item, inner[f"{item.key}-think"], blocks)
    if isinstance(item, Card):
        named = {name: inner[f"{item.key}-{name}"] for name in ("head", "progress", "ask", "result")}
        questions = Markup("").join(inner[each.key] for each in item.questions)
        return part(_TEMPLATE, "card", item, frame, questions=questions, **named)
    return inner[item.key]


def item_parts(item: Item, frame: Frame) -> dict[str, Markup]:
    """What may change in it, by id. The blocks of an answer are not among them: they are many, and grow."""
    match item:
        case Answer():
            return {f"{item.key}-think": part(_TEMPLATE, "think", item)}
        case Card():
            return {
                f"{item.key}-head": part(_TEMPLATE, "card_head", item),
                f"{item.key}-progress": part(_TEMPLATE, "card_progress", item),
                f"{item.key}-ask": part(_TEMPLATE, "card_ask", item, frame),
                **{each.key: question_part(each, frame) for each in item.questions},
                f"{item.key}-result": part(_TEMPLATE, "card_result", item, frame),
            }
        case Question():
            return {item.key: question_part(item, frame)}
        case Note():
            return {item.key: part(_TEMPLATE, "note", item)}


def question_part(question: Question, frame: Frame) -> Markup:
    """What a server asks, with a form to answer."""
    form = frame.form(question) if question.action is None else None
    return part(_TEMPLATE, "question", question, frame, form)


def block_part(key: str, number: int, text: str, frame: Frame) -> Markup:
    """One block of an answer. An answer may have thousands, so this is not a macro of a template."""
    return _BLOCK.format(key, number, frame.to_html(text))
