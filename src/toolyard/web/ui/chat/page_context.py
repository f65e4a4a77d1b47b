"""What the page of a chat has: its turns, the list of chats, what it uses, and a place to write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from toolyard.agents.models.model_choice import ModelChoice
from toolyard.types.agent import Agent
from toolyard.types.chat import Chat, Event, Kind
from toolyard.web.access.dependencies import Visitor
from toolyard.web.rendering.renderer import DeferredMarkdown
from toolyard.web.services import Site
from toolyard.web.ui.chat.actions import Filled
from toolyard.web.ui.chat.console import Console
from toolyard.web.ui.chat.fragments import Frame, turn_part
from toolyard.web.ui.chat.turn_view import Turn
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.render import render

__all__ = [
    "ChatList",
    "ChatPage",
    "Settings",
    "chat_list",
    "chat_view",
    "frame_of",
    "settings_of",
    "show_chat",
    "turns_html",
]

_TURNS = 40
"""Turns that a page begins with. Earlier ones are there when somebody asks for them."""
_EVENTS = 400
_CHATS = 40


@dataclass(frozen=True, slots=True)
class ChatList:
    """Some of a person's chats."""

    chats: Sequence[Chat]
    words: str
    older: str | None
    """The query of those that changed before; None where that was all."""
    here: str | None
    """The id of the one that is shown."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a chat uses, and what it could use."""

    chat: Chat | None
    agents: Sequence[Agent]
    models: Sequence[ModelChoice]
    agent: str
    model: str
    default_model: str
    """What it is called that is used where none is chosen."""


@dataclass(frozen=True, slots=True)
class ChatPage:
    """One chat, or a new one."""

    chat: Chat | None
    turns: Markup
    last: int
    state: str
    earlier: int | None
    """The first turn that is shown, where there are earlier ones."""
    newest: bool
    """Whether the end of the chat is shown."""
    list: ChatList
    settings: Settings
    filled: Filled
    console: Console | None
    """Where a tool is run by hand, in place of a message."""

    @property
    def action(self) -> str:
        """Where its forms go."""
        return "/ui/chat" if self.chat is None else f"/ui/chat/{self.chat.id}"

    @property
    def talks(self) -> bool:
        """Whether there is a model to talk to."""
        return bool(self.settings.models)


async def show_chat(
    request: Request,
    me: Visitor,
    chat: Chat | None,
    *,
    filled: Filled | None = None,
    status: int = 200,
) -> Response:
    """The page. What is asked for in its address is shown."""
    site: Site = request.app.state.site
    query, filled = request.query_params, filled or Filled()
    view, earlier, before = ChatView(), None, _number(query.get("before"))
    if chat is not None:
        view, earlier = await chat_view(site, chat, before)
    frame = frame_of(me, chat, filled)
    page = ChatPage(
        chat,
        await turns_html(site, view.turns, frame),
        max(view.last, chat.last if chat is not None and before is None else 0),
        view.state if before is None else "idle",
        earlier,
        before is None,
        await chat_list(site, me, query, chat),
        settings_of(site, chat, filled.agent or query.get("agent", ""), filled.model),
        filled,
        filled.console or _console(site, chat, query),
    )
    return render(request, "chat.html", status=status, page=page)


async def turns_html(site: Site, turns: Sequence[Turn], frame: Frame) -> Markup:
    """Return the HTML of turns. Others get a turn of the event loop between any two."""
    deferred = DeferredMarkdown(site.markdown)
    parts: list[str] = []
    for turn in turns:
        parts.append(turn_part(turn, replace(frame, to_html=deferred)))
        await asyncio.sleep(0)
    return Markup("\n".join(await deferred.fill(parts)))


def frame_of(me: Visitor, chat: Chat | None, filled: Filled | None = None) -> Frame:
    """What the parts of the page have in common."""
    forms = {}
    if filled is not None and filled.question is not None and filled.form is not None:
        forms = {filled.question.key: filled.form}
    return Frame("" if chat is None else chat.id, me.csrf, forms)


async def chat_view(site: Site, chat: Chat, before: int | None) -> tuple[ChatView, int | None]:
    """The last turns before a number, and the first of them where there are others before it."""
    events = await site.chats.latest(chat.owner, chat.id, before=before, limit=_EVENTS)
    shown = _last_turns(events)
    first = shown[0].seq if shown else None
    more = first is not None and bool(await site.chats.latest(chat.owner, chat.id, before=first, limit=1))
    return ChatView.of(shown), first if more else None


def _last_turns(events: Sequence[Event]) -> Sequence[Event]:
    begun = [at for at, each in enumerate(events) if each.kind in (Kind.USER, Kind.RUN)]
    return events[begun[-_TURNS] :] if len(begun) > _TURNS else events


async def chat_list(site: Site, me: Visitor, query: Mapping[str, str], here: Chat | None) -> ChatList:
    """The chats that the address asks for."""
    words = query.get("q", "").strip()[:200].replace("\0", "")
    after = _place(query.get("older", ""))
    found = await site.chats.list(me.user.id, words=words or None, before=after, limit=_CHATS + 1)
    shown, older = found[:_CHATS], None
    if len(found) > _CHATS:
        last = shown[-1]
        place = {"q": words, "older": f"{last.updated_at!r}~{last.id}"}
        older = urlencode({key: value for key, value in place.items() if value})
    return ChatList(shown, words, older, None if here is None else here.id)


def settings_of(site: Site, chat: Chat | None, wanted_agent: str = "", wanted_model: str = "") -> Settings:
    """The agents and models that there are, and which are chosen."""
    models = site.chats.models
    agent = (chat.agent or "") if chat is not None else wanted_agent if wanted_agent in site.agents else ""
    own = site.agents[agent].model if agent in site.agents else None
    labels = {each.id: each.label for each in models.choices}
    usual = own or models.default or ""
    return Settings(
        chat,
        sorted(site.agents.values(), key=lambda each: each.name.casefold()),
        models.choices,
        agent,
        (chat.model or "") if chat is not None else wanted_model if wanted_model in labels else "",
        labels.get(usual, usual),
    )


def _console(site: Site, chat: Chat | None, query: Mapping[str, str]) -> Console | None:
    if "run" not in query and site.chats.models.choices:
        return None
    return Console.later(None if chat is None else chat.id, query.get("tool", ""))


def _place(text: str) -> tuple[float, str] | None:
    updated, _, chat_id = text.partition("~")
    try:
        return (float(updated), chat_id) if chat_id.isalnum() and len(chat_id) < 100 else None
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    fits = text is not None and text.isascii() and text.isdigit() and len(text) < 18
    return int(text) if fits and text is not None else None
