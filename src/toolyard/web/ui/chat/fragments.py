"""HTML fragments of a chat's turns. Each part that changes on its own has an id.

Pages and the stream both render with this module, so that they always show the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from markupsafe import Markup

from toolyard.agents.chat import turn_snapshot as snapshot
from toolyard.agents.chat.argument_review import key_summary, short_values_first
from toolyard.config.value_checks import url_fault
from toolyard.types.audit import server_of_tool
from toolyard.types.chat import Attachment, CallProgress, CallResult, ModelUsage, TurnTree
from toolyard.web.middleware.request_body import UPLOAD_PATH
from toolyard.web.rendering.highlighting import highlight_code
from toolyard.web.rendering.markdown import render_markdown
from toolyard.web.rendering.markdown_blocks import split_blocks
from toolyard.web.rendering.result_view import render_result, summarize_result
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.formatting import extract_host, one_line, pretty_json, visible
from toolyard.web.ui.tools.results import INLINE_IMAGE_TYPES, build_result_query
from toolyard.web.ui.tools.schema_form import ToolForm

__all__ = [
    "CONTEXT_ELEMENT_ID",
    "FragmentContext",
    "ItemFragments",
    "find_context_usage",
    "question_form",
    "render_block",
    "render_context_bar",
    "render_item",
    "render_item_fragments",
    "render_question",
    "render_turn",
    "render_turn_footer",
]

_MAX_OPEN_PREVIEW_CHARACTERS = 1_000
_PAGE_QUESTION_PATTERN = re.compile(r"/ui/approvals#q-[0-9a-f]+$")
"""Ends the progress of a call that waits for a question on that page. A server that sends it as well gets no
more than a link to the page."""
_TEMPLATE_NAME = "chat_parts.html"
_LATER_HTML = Markup('<div class="result-view code" id="{}" data-lazy-load="{}">{}{}</div>')
_BLOCK_HTML = Markup('<div class="block" id="{}-b{}">{}</div>')

ItemFragments: TypeAlias = Mapping[str, Markup]
"""Changeable parts of an item, by id."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Place of a turn among those that follow the same one."""

    parent: int
    position: int
    count: int
    previous: int | None
    following: int | None


@dataclass(frozen=True, slots=True)
class FragmentContext:
    """Context for rendering the fragments of one chat, and helpers for its templates."""

    chat: str
    csrf: str
    forms: Mapping[str, ToolForm] = field(default_factory=dict[str, ToolForm])
    """Submitted forms of questions that are shown again, by the key of the question."""
    to_html: Callable[[str], Markup] = render_markdown
    """Converts the Markdown of an answer to HTML."""
    question_url: str = ""
    """URL that answers to questions are sent to, for questions outside of a chat."""
    tree: TurnTree = field(default_factory=TurnTree)
    """All turns of the chat, for their alternatives."""
    fixed_media_url: str = ""
    """URL of all media of an example chat; empty to use the URLs of results."""
    find_icon_path: Callable[[str], str] = lambda _: ""
    """Returns the path of a server's icon, or an empty string. Called from threads."""

    def media(self, seq: int, number: int) -> str:
        """Return the URL of an image, audio or file of a result."""
        return self.fixed_media_url or f"/api/v1/chats/{self.chat}/results/{seq}/media/{number}"

    def icon(self, card: snapshot.CallSnapshot) -> str:
        """Return the path of the icon of the server that a call goes to, or an empty string."""
        request = card.request
        return (
            ""
            if request.tool is None or request.native
            else self.find_icon_path(server_of_tool(request.tool))
        )

    @staticmethod
    def attachment(attachment: Attachment) -> str:
        """Return the URL of an attachment."""
        return f"{UPLOAD_PATH}/{attachment.id}"

    def alternatives(self, turn: snapshot.TurnSnapshot) -> Alternatives | None:
        """Return the place of a turn among its alternatives; None if it has none."""
        turns = self.tree.alternatives(turn.seq)
        if len(turns) < 2:
            return None
        at = turns.index(turn.seq)
        previous, following = turns[at - 1] if at else None, turns[at + 1] if at + 1 < len(turns) else None
        return Alternatives(self.tree.parents[turn.seq], at + 1, len(turns), previous, following)

    def form(self, question: snapshot.QuestionSnapshot) -> ToolForm:
        """Return the form of a question."""
        submitted = self.forms.get(question.key)
        return question_form(question) if submitted is None else submitted

    @staticmethod
    def coloured(value: object) -> Markup:
        """Return a JSON value with syntax highlighting; a string as plain text."""
        if isinstance(value, str):
            return Markup.escape(visible(value, spaces=True))
        return Markup(highlight_code(pretty_json(value), "json"))

    @staticmethod
    def to_approve(arguments: object) -> Markup:
        """Return all arguments of a call that needs approval, keys and short values first."""
        summary, shown = key_summary(arguments), FragmentContext.coloured(short_values_first(arguments))
        return Markup("{}\n{}").format(visible(summary, spaces=True), shown) if summary else shown

    @staticmethod
    def percent(progress: CallProgress) -> int | None:
        """Return the percentage of a call that is done, if the server reports a total."""
        if not progress.total or progress.total <= 0:
            return None
        return round(100 * min(max(progress.progress / progress.total, 0.0), 1.0))

    @staticmethod
    def page_question(card: snapshot.CallSnapshot) -> str | None:
        """Return the URL of the question on the Approvals page that a running call waits for."""
        message = card.progress.message if card.progress is not None and card.state == "runs" else None
        found = _PAGE_QUESTION_PATTERN.search(message or "")
        return None if found is None else found[0]

    @staticmethod
    def is_waiting(turn: snapshot.TurnSnapshot) -> bool:
        """Return True if a turn waits for the person."""
        return bool(turn.open_requests) or any(map(FragmentContext.page_question, turn.open_calls))

    def result(self, card: snapshot.CallSnapshot, outcome: CallResult, *, is_open: bool) -> Markup:
        """Return the view of a result if it is open and short, else a placeholder that is loaded when it
        comes into view."""
        query = build_result_query(self.chat, card.result_seq, outcome, card.request.arguments)
        is_whole = outcome.length <= len(outcome.text) and not card.has_payload
        if is_open and is_whole:
            return render_result(query)
        peek = Markup('<pre tabindex="0" aria-label="The result"><code>{}</code></pre>').format(
            visible(outcome.text[:_MAX_OPEN_PREVIEW_CHARACTERS])
        )
        href = Markup(query.link())
        link = Markup('<p><a href="{}">Show result</a></p>').format(href)
        return _LATER_HTML.format(query.id, href, peek if is_open else "", link)

    @staticmethod
    def preview(outcome: CallResult) -> str:
        """Return a result in one line."""
        is_whole = outcome.length <= len(outcome.text)
        return one_line((summarize_result(outcome.text) if is_whole else "") or outcome.text, 100)

    @staticmethod
    def summarize_arguments(arguments: object) -> str:
        """Return arguments in one line."""
        if not isinstance(arguments, Mapping):
            return one_line(arguments, 100)
        pairs = cast("Mapping[str, object]", arguments)
        parts = (
            f"{name}: {value if isinstance(value, str) else pretty_json(value)}"
            for name, value in pairs.items()
        )
        return one_line(", ".join(one_line(each, 60) for each in parts), 100)

    @staticmethod
    def is_picture(mime: str) -> bool:
        """Return True if pages display this MIME type as an image."""
        return mime.partition(";")[0].strip().lower() in INLINE_IMAGE_TYPES

    @staticmethod
    def is_web(url: str) -> bool:
        """Return True if a URL is a valid http or https address."""
        return url_fault(url) is None and bool(FragmentContext.host(url))

    @staticmethod
    def host(url: str) -> str:
        """Return the host of a URL."""
        return extract_host(url)


def question_form(asked: snapshot.QuestionSnapshot) -> ToolForm:
    """Return the empty form of a question."""
    return ToolForm.from_question(asked.question.schema or {}, asked.key)


def render_turn(
    turn: snapshot.TurnSnapshot, frame: FragmentContext, fragments: Mapping[str, ItemFragments] | None = None
) -> Markup:
    """Render a turn. ``fragments`` are those of its items, by key, if they are rendered already."""
    rendered = fragments or {}
    items = Markup("").join(render_item(each, frame, rendered.get(each.key)) for each in turn.items)
    return responses.get_macros(_TEMPLATE_NAME).turn(turn, frame, items, render_turn_footer(turn, frame))


def render_turn_footer(turn: snapshot.TurnSnapshot, frame: FragmentContext) -> Markup:
    """Render the footer of a turn: state, cost and buttons."""
    return responses.get_macros(_TEMPLATE_NAME).turn_footer(turn, frame)


def render_item(
    item: snapshot.TurnItem, frame: FragmentContext, fragments: ItemFragments | None = None
) -> Markup:
    """Render an item of a turn, with its ``fragments`` if they are rendered already."""
    inner = render_item_fragments(item, frame) if fragments is None else fragments
    if isinstance(item, snapshot.AnswerSnapshot):
        blocks = Markup("\n").join(
            render_block(item.key, number, text, frame) for number, text in enumerate(split_blocks(item.text))
        )
        return responses.get_macros(_TEMPLATE_NAME).answer(item, inner[f"{item.key}-think"], blocks)
    if isinstance(item, snapshot.CallSnapshot):
        named = {name: inner[f"{item.key}-{name}"] for name in ("state", "progress", "ask", "result")}
        questions = Markup("").join(inner[each.key] for each in item.questions)
        return responses.get_macros(_TEMPLATE_NAME).card(item, frame, questions=questions, **named)
    return inner[item.key]


def render_item_fragments(item: snapshot.TurnItem, frame: FragmentContext) -> ItemFragments:
    """Render the changeable parts of an item.

    Blocks of answers are not included, because they are many.
    """
    match item:
        case snapshot.AnswerSnapshot():
            return {f"{item.key}-think": responses.get_macros(_TEMPLATE_NAME).reasoning(item)}
        case snapshot.CallSnapshot():
            return {
                f"{item.key}-state": responses.get_macros(_TEMPLATE_NAME).card_state(item),
                f"{item.key}-progress": responses.get_macros(_TEMPLATE_NAME).card_progress(item, frame),
                f"{item.key}-ask": responses.get_macros(_TEMPLATE_NAME).card_approval(item, frame),
                **{each.key: render_question(each, frame) for each in item.questions},
                f"{item.key}-result": responses.get_macros(_TEMPLATE_NAME).card_result(item, frame),
            }
        case snapshot.QuestionSnapshot():
            return {item.key: render_question(item, frame)}
        case snapshot.NoteSnapshot():
            return {item.key: responses.get_macros(_TEMPLATE_NAME).note(item)}


def render_question(question: snapshot.QuestionSnapshot, frame: FragmentContext) -> Markup:
    """Render a question from a server, with its form while it is open."""
    form = frame.form(question) if question.action is None else None
    return responses.get_macros(_TEMPLATE_NAME).question(question, frame, form)


def render_block(key: str, number: int, text: str, frame: FragmentContext) -> Markup:
    """Render a block of an answer.

    Answers may have thousands, for which a template macro would be too slow.
    """
    # Markup.format escapes all arguments except safe HTML.
    return _BLOCK_HTML.format(key, number, frame.to_html(text))


# Context window.

CONTEXT_ELEMENT_ID = "context"

_LABEL_BY_KIND = {
    "definitions": "Tool definitions and instructions",
    "history": "Messages",
    "results": "Tool results",
}


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of the context."""

    kind: str
    label: str
    tokens: int
    start: float
    """Position on the bar, in percent of the window."""
    percent: float


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Content of the bar that shows how full a model's context window is, and of what."""

    window: int
    used: int
    parts: Sequence[ContextPart]

    @property
    def percent(self) -> int:
        return min(round(100 * self.used / self.window), 100)

    @classmethod
    def from_usage(cls, usage: ModelUsage) -> ContextUse:
        """Return the parts, scaled to the number of tokens that the provider counted, if it did."""
        estimates = {
            "definitions": usage.definitions,
            "history": usage.history,
            "results": usage.results,
        }
        estimated = sum(estimates.values())
        used = usage.input or estimated
        parts: list[ContextPart] = []
        start = 0.0
        for kind, estimate in estimates.items():
            tokens = round(estimate * used / max(estimated, 1))
            percent = min(100 * tokens / usage.window, 100 - start)
            parts.append(ContextPart(kind, _LABEL_BY_KIND[kind], tokens, round(start, 2), round(percent, 2)))
            start += percent
        return cls(usage.window, used, parts)


def find_context_usage(turns: Sequence[snapshot.TurnSnapshot]) -> ModelUsage | None:
    """Return the usage of the last request whose context was recorded."""
    return next((turn.usage.last for turn in reversed(turns) if turn.usage.last is not None), None)


def render_context_bar(usage: ModelUsage | None) -> Markup:
    """Render the bar; without a usage, an empty element to be replaced later."""
    return responses.get_macros("chat_context.html").context_bar(
        None if usage is None else ContextUse.from_usage(usage)
    )
