"""Tool console: search for a tool, fill in its form and run it, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.agents.chat.chats import ChatService, ToolView
from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.policy.rules import STATE_RULE_TITLE
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.call import summarize_hiding_rules
from toolyard.types.chat import Chat
from toolyard.types.tool import JsonObject
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.tool_search import ToolSearch
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.rule_texts import describe_obstacle, summarize_rule
from toolyard.web.ui.tools.schema_form import ToolForm

__all__ = ["ChatToolGroup", "IconFinderDep", "ToolConsole", "group_chat_tools", "require_shown", "router"]

router = Routes()

_MAX_LISTED_TOOLS = 60
"""Maximum number of tools in the list. Others are found by searching."""


@dataclass(frozen=True, slots=True)
class ChatToolGroup:
    """Tools of one server."""

    server: str
    label: str
    native: bool
    tools: tuple[ToolView, ...]


@dataclass(frozen=True, slots=True)
class ToolConsole:
    """Content of the console: a list of tools, or one tool with its form.

    With ``is_later``, a placeholder.
    """

    chat: str | None
    wanted: str = ""
    """Name of the requested tool."""
    words: str = ""
    groups: tuple[ChatToolGroup, ...] = ()
    more: int = 0
    """Number of tools beyond the list."""
    hidden: tuple[ToolView, ...] = ()
    """Tools of connected servers that a rule hides, as many as are listed at most."""
    hidden_count: int = 0
    hidden_rules: str = ""
    """Rules that hide the hidden tools, with counts."""
    tool: ToolView | None = None
    form: ToolForm | None = None
    is_later: bool = False
    """Load the console after the page, because listing the tools may have to contact servers."""
    find_icon_path: Callable[[str], str] = lambda _: ""
    """Returns the path of a server's icon, or an empty string."""

    @property
    def href(self) -> str:
        """URL of the console's own page."""
        return "/ui/chat/console" if self.chat is None else f"/ui/chat/{self.chat}/console"

    @property
    def action(self) -> str:
        """URL that receives its form."""
        return "/ui/chat" if self.chat is None else f"/ui/chat/{self.chat}"


async def build_icon_finder(me: deps.CurrentUser, records: deps.ServerRecordsDep) -> Callable[[str], str]:
    """Return a function that finds the path of the icon of one of the person's servers."""
    return partial(records.find_icon_path, me.principal)


IconFinderDep = Annotated[Callable[[str], str], Depends(build_icon_finder)]


@router.get("/ui/chat/console")
async def show_new_console(
    request: Request,
    me: deps.CurrentUser,
    chats: deps.ChatsDep,
    tool_search: deps.ToolSearchDep,
    find_icon_path: IconFinderDep,
    find: str = "",
    tool: str = "",
) -> Response:
    """Show the tools of a new chat."""
    console = await _build_console(chats, tool_search, me, None, find, tool)
    return await _render_console(request, console, find_icon_path)


@router.get("/ui/chat/{chat_id}/console")
async def show_console(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    chats: deps.ChatsDep,
    tool_search: deps.ToolSearchDep,
    find_icon_path: IconFinderDep,
    find: str = "",
    tool: str = "",
) -> Response:
    """Show the tools of a chat."""
    chat = await chats.get(me.user.id, chat_id)
    console = await _build_console(chats, tool_search, me, chat, find, tool)
    return await _render_console(request, console, find_icon_path)


async def _render_console(
    request: Request, console: ToolConsole, find_icon_path: Callable[[str], str]
) -> Response:
    page = replace(console, find_icon_path=find_icon_path)
    return await responses.render_large_page(request, "chat_console_page.html", page=page)


async def _build_console(
    chats: ChatService, tool_search: ToolSearch, me: RequestUser, chat: Chat | None, find: str, tool: str
) -> ToolConsole:
    console = ToolConsole(None if chat is None else chat.id, words=find[:200])
    if tool:
        opened = None if chat is None else await chats.open_chat(chat, me.user)
        chosen = require_shown(await chats.find_tool(me.user.id, opened, tool), tool)
        previous = None if chat is None else await _find_last_arguments(chats, chat, tool)
        return replace(
            console, wanted=tool, tool=chosen, form=ToolForm.from_schema(chosen.input_schema, previous)
        )
    listed = await chats.list_tools(me.user.id, console.chat, for_person=True)
    tools = [each for each in listed if each.shown]
    hidden = [each for each in listed if not (each.shown or each.native or each.rule == STATE_RULE_TITLE)]
    if find.strip():
        tools = await tool_search.search(me.user.id, tools, find, 2 * _MAX_LISTED_TOOLS)
        hidden = await tool_search.search(me.user.id, hidden, find, 2 * _MAX_LISTED_TOOLS)
    return replace(
        console,
        groups=group_chat_tools(tools[:_MAX_LISTED_TOOLS]),
        more=max(len(tools) - _MAX_LISTED_TOOLS, 0),
        hidden=tuple(hidden[:_MAX_LISTED_TOOLS]),
        hidden_count=len(hidden),
        hidden_rules=summarize_hiding_rules(summarize_rule(each.rule) for each in hidden),
    )


def require_shown(tool: ToolView | None, name: str) -> ToolView:
    """Return the tool with a name. Raises NotFound, with the reason if the tool is hidden."""
    if tool is None:
        raise NotFound("tool not found", hint="it may have been removed with its server; search again")
    if not tool.shown:
        raise NotFound(
            f"“{name}” is hidden: {describe_obstacle(tool.rule, tool.why)}",
            hint="choose another tool, or ask an admin",
        )
    return tool


async def _find_last_arguments(chats: ChatService, chat: Chat, tool: str) -> JsonObject | None:
    """Return the arguments of the last call of a tool in this chat, as initial values of the form."""
    events = await chats.list_latest_events(chat.owner, chat.id, limit=100)
    for turn in reversed(ChatSnapshot.from_events(events).turns):
        for call in reversed(turn.calls):
            if call.request.name == tool and not isinstance(call.request.arguments, str):
                return call.request.arguments
    return None


def group_chat_tools(tools: Iterable[ToolView]) -> tuple[ChatToolGroup, ...]:
    """Group tools by server, in order of their first tool."""
    groups: dict[tuple[bool, str], list[ToolView]] = {}
    for each in tools:
        groups.setdefault((not each.native, each.server), []).append(each)
    return tuple(
        ChatToolGroup(group[0].server, group[0].server_label, group[0].native, tuple(group))
        for group in groups.values()
    )
