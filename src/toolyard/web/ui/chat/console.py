"""The tool console: find a tool by words, fill in its form, run it. It needs no model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, cast

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.agents.chat.chats import ToolView
from toolyard.catalog.search import SearchIndex
from toolyard.registry.errors import NotFound
from toolyard.types.chat import Chat
from toolyard.types.tool import Definition, JsonObject
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.services import Site
from toolyard.web.ui.chat.turn_view import Card
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.render import render
from toolyard.web.ui.tools.form import ToolForm

__all__ = ["Console", "Group", "grouped", "router", "tools_for"]

router = APIRouter()

Me = Annotated[Visitor, Depends(visitor)]
_SHOWN = 60
"""Tools in the list. The others are found by words."""


@dataclass(frozen=True, slots=True)
class Group:
    """The tools of one server."""

    label: str
    native: bool
    tools: tuple[ToolView, ...]


@dataclass(frozen=True, slots=True)
class Console:
    """What the console shows: a list of tools, or one tool with its form; nothing where it comes later."""

    chat: str | None
    wanted: str = ""
    """The name of a tool."""
    words: str = ""
    groups: tuple[Group, ...] = ()
    more: int = 0
    """Tools that are not in the list."""
    tool: ToolView | None = None
    form: ToolForm | None = None
    is_later: bool = False

    @classmethod
    def later(cls, chat: str | None, tool: str) -> Console:
        """One that is fetched once the page is there: servers may have to be asked."""
        return cls(chat, tool, is_later=True)

    @property
    def href(self) -> str:
        """Its own page."""
        return "/ui/chat/console" if self.chat is None else f"/ui/chat/{self.chat}/console"

    @property
    def action(self) -> str:
        """Where its form goes."""
        return "/ui/chat" if self.chat is None else f"/ui/chat/{self.chat}"


@router.get("/ui/chat/console")
async def show_new_console(request: Request, me: Me, find: str = "", tool: str = "") -> Response:
    """The tools that a new chat would have."""
    return render(request, "chat_console_page.html", page=await _console(request, me, None, find, tool))


@router.get("/ui/chat/{chat_id}/console")
async def show_console(request: Request, me: Me, chat_id: str, find: str = "", tool: str = "") -> Response:
    """The tools of a chat."""
    site: Site = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    return render(request, "chat_console_page.html", page=await _console(request, me, chat, find, tool))


async def _console(request: Request, me: Visitor, chat: Chat | None, find: str, tool: str) -> Console:
    site: Site = request.app.state.site
    tools = [each for each in await tools_for(site, me, chat) if each.shown]
    console = Console(None if chat is None else chat.id, words=find[:200])
    if tool:
        chosen = one_tool(tools, tool)
        before = None if chat is None else await _last_arguments(site, chat, tool)
        return replace(console, wanted=tool, tool=chosen, form=ToolForm.of(chosen.input_schema, before))
    found = _found(tools, find) if find.strip() else tools
    return replace(console, groups=grouped(found[:_SHOWN]), more=max(len(found) - _SHOWN, 0))


async def tools_for(site: Site, me: Visitor, chat: Chat | None) -> Sequence[ToolView]:
    """Every tool of a chat, or of one that is yet to begin."""
    if chat is None:
        return await site.chats.offered(me.user.id)
    return await site.chats.tools(me.user.id, chat.id)


def one_tool(tools: Iterable[ToolView], name: str) -> ToolView:
    """The tool of that name. Raises NotFound."""
    for each in tools:
        if each.name == name:
            return each
    raise NotFound("there is no such tool here", hint="it may have gone with its server; look for it again")


async def _last_arguments(site: Site, chat: Chat, tool: str) -> JsonObject | None:
    """What the tool was called with last, to be changed and tried again."""
    events = await site.chats.latest(chat.owner, chat.id, limit=100)
    for turn in reversed(ChatView.of(events).turns):
        for item in reversed(turn.items):
            given: object = item.arguments if isinstance(item, Card) and item.name == tool else None
            if isinstance(given, Mapping):
                return cast("JsonObject", given)
    return None


def _found(tools: Sequence[ToolView], words: str) -> list[ToolView]:
    """The best for some words, the best first."""
    index, by_name = SearchIndex(), {each.name: each for each in tools}
    servers: dict[str, dict[str, Definition]] = {}
    for each in tools:
        name = each.id.removeprefix(f"{each.server}/")
        made = Definition(each.server, name, each.title, each.description, each.input_schema)
        servers.setdefault(each.server, {})[each.name] = made
    for server, mine in servers.items():
        index.put(server, mine)
    return [by_name[hit.name] for hit in index.search(words, 2 * _SHOWN)]


def grouped(tools: Iterable[ToolView]) -> tuple[Group, ...]:
    """By server, in the order in which they come."""
    groups: dict[tuple[bool, str], list[ToolView]] = {}
    for each in tools:
        groups.setdefault((not each.native, each.server), []).append(each)
    return tuple(Group(mine[0].server_label, mine[0].native, tuple(mine)) for mine in groups.values())
