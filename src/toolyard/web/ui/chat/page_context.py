"""Content of a chat's page: turns, list of chats, settings and the message form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from fastapi import Request, Response
from markupsafe import Markup

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.turn_snapshot import ChatSnapshot, TurnSnapshot
from toolyard.agents.models.model_ref import ModelChoice
from toolyard.core.agents import AgentRoster
from toolyard.core.callers import CallerCache
from toolyard.store.repositories.attachments import AttachmentLimits
from toolyard.store.repositories.chats import SqlChatStore
from toolyard.types.account import Principal, RequestUser
from toolyard.types.agent import Agent
from toolyard.types.chat import Chat, ChatEvent, TurnTree, UserMessage
from toolyard.web.access.services import get_service
from toolyard.web.rendering.renderer import DeferredMarkdown, MarkdownRenderer
from toolyard.web.servers.status import ServerRecords
from toolyard.web.ui.chat.actions import ChatFormState
from toolyard.web.ui.chat.console import ToolConsole
from toolyard.web.ui.chat.context_bar import find_context_usage, render_context_bar
from toolyard.web.ui.chat.fragments import FragmentContext, render_turn
from toolyard.web.ui.chat.reconnect_banner import ReconnectBanner
from toolyard.web.ui.components.render import render_page

__all__ = [
    "ChatList",
    "ChatPageContext",
    "ChatSettings",
    "build_chat_settings",
    "build_fragment_context",
    "icon_finder",
    "load_chat_list",
    "load_chat_view",
    "render_chat_page",
    "render_turns",
]

_MAX_TURNS = 40
"""Number of turns on a page. Earlier ones are loaded as the reader scrolls, or by a link."""
_MAX_EVENTS, _MAX_EVENTS_AT_END = 200, 24
"""Number of events after which no further turn is added. The end of a chat has fewer, so that it opens
quickly: about three turns with tool calls."""
_MAX_LISTED_CHATS = 40


@dataclass(frozen=True, slots=True)
class ChatList:
    """One page of a person's chats."""

    chats: Sequence[Chat]
    words: str
    older: str | None
    """Query string of the page with older chats; None on the last page."""
    here: str | None
    """Id of the chat that is open."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Agent and model of a chat, and the ones available."""

    chat: Chat | None
    agents: Sequence[Agent]
    models: Sequence[ModelChoice]
    agent: str
    model: str
    default_model: str
    """Label of the model that is used if none is chosen."""
    default_sees: bool
    """True if that model accepts pictures."""

    @property
    def chosen_agent(self) -> Agent | None:
        """The agent of the chat; None if it has none, or its agent no longer exists."""
        return next((each for each in self.agents if each.id == self.agent), None)

    @property
    def is_agent_gone(self) -> bool:
        """True if the agent of the chat no longer exists for its user."""
        return bool(self.agent) and self.chosen_agent is None


@dataclass(frozen=True, slots=True)
class ChatPageContext:
    """Content of the page of a chat, or of a new one."""

    chat: Chat | None
    turns: Markup
    last: int
    state: str
    earlier: int | None
    """Number of the first turn that is shown; None if that is the first turn."""
    newest: bool
    """True if the end of the chat is shown."""
    list: ChatList
    settings: ChatSettings
    filled: ChatFormState
    console: ToolConsole | None
    """Tool console, shown in place of the message form."""
    quota_notice: str | None
    """Warning if the user's chats are close to a limit."""
    reconnect: Markup
    """Banner about servers that need a new sign-in."""
    attachment_limits: AttachmentLimits
    context: Markup
    """Bar that shows how full the model's context window is."""

    @property
    def action(self) -> str:
        """URL that receives its forms."""
        return "/ui/chat" if self.chat is None else f"/ui/chat/{self.chat.id}"

    @property
    def talks(self) -> bool:
        """True if a chat model is configured."""
        return bool(self.settings.models)


async def render_chat_page(
    request: Request,
    roster: AgentRoster,
    chat_store: SqlChatStore,
    chats: ChatService,
    markdown: MarkdownRenderer,
    me: RequestUser,
    chat: Chat | None,
    *,
    form_state: ChatFormState | None = None,
    status: int = 200,
) -> Response:
    """Render the page of a chat.

    The query selects earlier turns, the list of chats, the console and the agent.
    """
    query, form_state = request.query_params, form_state or ChatFormState()
    view, earlier, before = ChatSnapshot(), None, _parse_event_number(query.get("before"))
    if not form_state.attachments and "attachment" in query:
        unsent = await chats.attachments.list_unsent(me.user.id, query.getlist("attachment")[:100])
        form_state = replace(form_state, attachments=unsent)
    tree, edited_turn = TurnTree(), _parse_event_number(query.get("edit"))
    if chat is not None:
        view, earlier, tree = await load_chat_view(chats, chat, before)
    if chat is not None and edited_turn is not None:
        start = await chats.get_turn_start(me.user.id, chat.id, edited_turn)
        if isinstance(start, UserMessage):
            form_state = replace(form_state, text=start.text, edited_turn=edited_turn)
    frame = build_fragment_context(request, me, chat, tree, form_state)
    page = ChatPageContext(
        chat,
        await render_turns(markdown, view.turns, frame),
        max(view.last, chat.last if chat is not None and before is None else 0),
        view.state if before is None else "idle",
        earlier,
        before is None,
        await load_chat_list(chats, me, query, chat),
        build_chat_settings(
            await roster.list_agents(me.user.id),
            chats,
            me.user.principal,
            chat,
            form_state.agent or query.get("agent", ""),
            form_state.model,
        ),
        form_state,
        form_state.console or _choose_console(chats, me.user.principal, chat, query),
        await chat_store.quota_notice(me.user.id),
        await get_service(request, ReconnectBanner).render(me, chat),
        chats.attachments.limits,
        render_context_bar(find_context_usage(view.turns)),
    )
    return render_page(request, "chat.html", status=status, page=page)


async def render_turns(
    markdown: MarkdownRenderer, turns: Sequence[TurnSnapshot], frame: FragmentContext
) -> Markup:
    """Return the HTML of turns. They are rendered in a thread, because a long answer takes seconds."""
    # Markdown is rendered in one batch after all turns, which contain placeholders until then.
    deferred = DeferredMarkdown(markdown)
    deferred_frame = replace(frame, to_html=deferred)
    core = await asyncio.to_thread(lambda: [render_turn(turn, deferred_frame) for turn in turns])
    return Markup("\n".join(await deferred.fill(core)))


def build_fragment_context(
    request: Request,
    me: RequestUser,
    chat: Chat | None,
    tree: TurnTree = TurnTree(),  # noqa: B008 - frozen
    form_state: ChatFormState | None = None,
) -> FragmentContext:
    """Return the context for rendering the parts of the page."""
    forms = {}
    if form_state is not None and form_state.question is not None and form_state.form is not None:
        forms = {form_state.question.key: form_state.form}
    chat_id = "" if chat is None else chat.id
    return FragmentContext(chat_id, me.csrf, forms, tree=tree, find_icon_path=icon_finder(request, me))


def icon_finder(request: Request, me: RequestUser) -> Callable[[str], str]:
    """Return a function that finds the path of the icon of one of the person's servers."""
    caller = get_service(request, CallerCache).get(me)
    return partial(get_service(request, ServerRecords).find_icon_path, caller)


async def load_chat_view(
    chats: ChatService, chat: Chat, before: int | None
) -> tuple[ChatSnapshot, int | None, TurnTree]:
    """Return the last turns of the chosen branch before an event number, the number of the first of them if
    there are earlier ones, and all turns."""
    limit = _MAX_EVENTS_AT_END if before is None else _MAX_EVENTS
    events = await chats.list_latest_events(
        chat.owner, chat.id, last_turn=chat.turn, before=before, limit=limit
    )
    shown, tree = _limit_turns(events), await chats.get_turn_tree(chat.owner, chat.id)
    first = shown[0].seq if shown else 0
    return ChatSnapshot.from_events(shown), first if tree.parents.get(first) else None, tree


def _limit_turns(events: Sequence[ChatEvent]) -> Sequence[ChatEvent]:
    turn_starts = [at for at, each in enumerate(events) if each.seq == each.turn]
    return events[turn_starts[-_MAX_TURNS] :] if len(turn_starts) > _MAX_TURNS else events


async def load_chat_list(
    chats: ChatService, me: RequestUser, query: Mapping[str, str], current_chat: Chat | None
) -> ChatList:
    """Return the chats that the query selects."""
    # PostgreSQL rejects NUL characters in text.
    words = query.get("q", "").strip()[:200].replace("\0", "")
    after = _parse_list_position(query.get("older", ""))
    found = await chats.list(me.user.id, search_text=words or None, before=after, limit=_MAX_LISTED_CHATS + 1)
    shown, older = found[:_MAX_LISTED_CHATS], None
    if len(found) > _MAX_LISTED_CHATS:
        last = shown[-1]
        # Keyset pagination: time and id identify the last chat exactly, even if chats change meanwhile.
        place = {"q": words, "older": f"{last.updated_at!r}~{last.id}"}
        older = urlencode({key: value for key, value in place.items() if value})
    return ChatList(shown, words, older, None if current_chat is None else current_chat.id)


def build_chat_settings(
    agents: Sequence[Agent],
    chats: ChatService,
    person: Principal,
    chat: Chat | None,
    requested_agent: str = "",
    requested_model: str = "",
) -> ChatSettings:
    """Return the available agents and models, and the chosen ones."""
    choices, by_id = chats.models.choices_for(person), {each.id: each for each in agents}
    agent = (requested_agent if requested_agent in by_id else "") if chat is None else chat.agent or ""
    own = by_id[agent].model if agent in by_id else None
    labels = {each.id: each.label for each in choices}
    default = own or chats.models.default_for(person) or ""
    return ChatSettings(
        chat,
        sorted(agents, key=lambda each: each.name.casefold()),
        choices,
        agent,
        (chat.model or "") if chat is not None else requested_model if requested_model in labels else "",
        labels.get(default, default),
        any(each.sees for each in choices if each.id == default),
    )


def _choose_console(
    chats: ChatService, person: Principal, chat: Chat | None, query: Mapping[str, str]
) -> ToolConsole | None:
    if "run" not in query and chats.models.choices_for(person):
        return None
    return ToolConsole.create_deferred(None if chat is None else chat.id, query.get("tool", ""))


def _parse_list_position(text: str) -> tuple[float, str] | None:
    updated, _, chat_id = text.partition("~")
    try:
        return (float(updated), chat_id) if chat_id.isalnum() and len(chat_id) < 100 else None
    except ValueError:
        return None


def _parse_event_number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 18
    return int(text) if is_number and text is not None else None
