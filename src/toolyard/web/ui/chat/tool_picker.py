"""``/ui/chat/{id}/tools``: which tools a chat's model gets to see, and why it does not see the others."""

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
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.services import Site
from toolyard.web.ui.chat.console import Group, grouped
from toolyard.web.ui.chat.page_context import settings_of
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.forms import posted
from toolyard.web.ui.components.render import part, render, wants_part

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(visitor)]


@dataclass(frozen=True, slots=True)
class ToolsPage:
    """All tools, by server. ``chosen`` None: all that are shown."""

    chat: Chat
    agent: Agent | None
    groups: Sequence[Group]
    chosen: frozenset[str] | None
    shown: int

    def ticked(self, tool: ToolView) -> bool:
        """Whether the model gets to see it."""
        return tool.shown and (self.chosen is None or tool.id in self.chosen)


@router.get("/ui/chat/{chat_id}/tools")
async def show_tools(request: Request, me: Me, chat_id: str) -> Response:
    """Every tool, with a box where it can be had."""
    site: Site = request.app.state.site
    chat = await site.chats.get(me.user.id, chat_id)
    tools = await site.chats.tools(me.user.id, chat_id)
    page = ToolsPage(
        chat,
        site.agents.get(chat.agent or ""),
        grouped(sorted(tools, key=lambda each: (not each.shown, each.name))),
        None if chat.choice is None else frozenset(chat.choice),
        sum(each.shown for each in tools),
    )
    return render(request, "chat_tools.html", page=page)


@router.post("/ui/chat/{chat_id}/tools")
async def choose_tools(request: Request, me: Me, chat_id: str) -> Response:
    """Remember the choice. All that can be had is no choice: what is added later is there too."""
    site: Site = request.app.state.site
    form = await posted(request)
    choice = None if form.text("which", "some") == "all" else form.all("tool")
    chat = await site.chats.change(me.user.id, chat_id, choice=choice)
    if wants_part(request):
        return HTMLResponse(part("chat_settings.html", "settings", settings_of(site, chat)))
    return go(f"/ui/chat/{chat.id}#end", "The choice of tools counts from the next message on.")
