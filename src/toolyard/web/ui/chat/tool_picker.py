"""``/ui/chat/{id}/tools``: the tools of a chat, and the reasons why others are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from toolyard.agents.chat.chats import ToolView
from toolyard.types.agent import Agent
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import RequestUser, require_user
from toolyard.web.services import Services
from toolyard.web.ui.chat.console import ChatToolGroup, group_chat_tools
from toolyard.web.ui.chat.page_context import build_chat_settings
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import is_fragment_request, render_macro, render_page

__all__ = ["router"]

router = APIRouter()

CurrentUser = Annotated[RequestUser, Depends(require_user)]


@dataclass(frozen=True, slots=True)
class ToolPickerPage:
    """Content of the page. ``chosen`` is None if all available tools are used."""

    chat: Chat
    agent: Agent | None
    groups: Sequence[ChatToolGroup]
    chosen: frozenset[str] | None
    shown: int

    def ticked(self, tool: ToolView) -> bool:
        """Return True if the model can use the tool."""
        return tool.shown and (self.chosen is None or tool.id in self.chosen)


@router.get("/ui/chat/{chat_id}/tools")
async def show_tool_picker(request: Request, me: CurrentUser, chat_id: str) -> Response:
    """Show all tools, with a checkbox for each available one."""
    site: Services = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    tools = await site.chats.tools(me.user.id, chat_id)
    page = ToolPickerPage(
        chat,
        site.agents.get(chat.agent or ""),
        group_chat_tools(sorted(tools, key=lambda each: (not each.shown, each.name))),
        None if chat.choice is None else frozenset(chat.choice),
        sum(each.shown for each in tools),
    )
    return render_page(request, "chat_tools.html", page=page)


@router.post("/ui/chat/{chat_id}/tools")
async def choose_tools(request: Request, me: CurrentUser, chat_id: str) -> Response:
    """Save the selection.

    “All tools” is stored as no selection, so that it includes tools that are added later.
    """
    site: Services = request.app.state.site
    form = await read_submitted_form(request)
    choice = None if form.text("which", "some") == "all" else form.all_values("tool")
    chat = await site.chats.change(me.user.id, chat_id, choice=choice)
    if is_fragment_request(request):
        return HTMLResponse(render_macro("chat_settings.html", "settings", build_chat_settings(site, chat)))
    return redirect_with_message(
        f"/ui/chat/{chat.id}#end", "Tools saved. The change applies from your next message."
    )
