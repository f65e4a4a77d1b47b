"""Renaming and deleting chats, deleting versions of messages, and selecting the tools of a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import Request, Response

from toolyard.agents.chat.chats import ToolView
from toolyard.agents.chat.errors import ChatChanged
from toolyard.registry.errors import NotFound
from toolyard.types.agent import Agent
from toolyard.types.chat import Chat, TurnTree
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.chat.page_context import ChatPagesDep
from toolyard.web.ui.chat.tool_console import ChatToolGroup, IconFinderDep, group_chat_tools
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count, one_line

__all__ = ["router"]


router = Routes()

_MAX_TITLE_CHARACTERS = 200


@router.get("/ui/chat/{chat_id}/rename")
async def show_rename_form(
    request: Request, me: deps.CurrentUser, chat_id: str, chats: deps.ChatsDep
) -> Response:
    """Show the form that renames a chat."""
    return responses.render_page(request, "chat_rename.html", chat=await chats.get(me.user.id, chat_id))


@router.post("/ui/chat/{chat_id}/rename")
async def rename_chat(request: Request, me: deps.CurrentUser, chat_id: str, chats: deps.ChatsDep) -> Response:
    """Rename a chat. An empty title is ignored."""
    title = (await forms.read_form(request)).text("title").strip()[:_MAX_TITLE_CHARACTERS]
    await chats.get(me.user.id, chat_id)
    if title:
        await chats.change(me.user.id, chat_id, title=title)
    return responses.redirect_to(f"/ui/chat/{chat_id}", "Chat renamed." if title else None)


@router.get("/ui/chat/{chat_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.CurrentUser, chat_id: str, chats: deps.ChatsDep
) -> Response:
    """Show the confirmation page."""
    chat = await chats.get(me.user.id, chat_id)
    return responses.render_confirmation(
        request,
        title=f"Delete “{one_line(chat.title or 'New chat', 80)}”?",
        text="This deletes all its messages and results, and stops a running turn.",
        action=f"/ui/chat/{chat.id}/delete",
        back=f"/ui/chat/{chat.id}",
    )


@router.post("/ui/chat/{chat_id}/delete")
async def delete_chat(
    me: deps.CurrentUser, chat_id: str, audit: deps.AuditDep, chats: deps.ChatsDep
) -> Response:
    """Delete a chat."""
    chat = await chats.get(me.user.id, chat_id)
    await chats.delete(me.user.id, chat_id)
    await audit.record_change(me, "chat.delete", chat_id)
    return responses.redirect_to("/ui/chat", f"“{one_line(chat.title or 'New chat', 80)}” was deleted.")


@router.get("/ui/chat/{chat_id}/turns/{turn}/delete")
async def show_turn_delete_confirmation(
    request: Request, me: deps.CurrentUser, chat_id: str, turn: int, chats: deps.ChatsDep
) -> Response:
    """Show the confirmation page."""
    tree = await chats.get_turn_tree(me.user.id, chat_id)
    return _render_turn_delete_confirmation(request, chat_id, turn, tree)


def _render_turn_delete_confirmation(
    request: Request, chat_id: str, turn: int, tree: TurnTree, *, continued: bool = False
) -> Response:
    if turn not in tree.parents:
        raise NotFound("this version of the message does not exist", hint="it may have been deleted")
    deleted = tree.subtree(turn)
    text = "This deletes this version of the message and its answer. The other versions stay."
    if continued:
        text = f"This version has been continued since you opened the chat. {text}"
    if following := len(deleted) - 1:
        text += f" {count(following, 'later turn')} in this version will be deleted, too."
    return responses.render_confirmation(
        request,
        title="Delete this version?",
        text=text,
        action=f"/ui/chat/{chat_id}/turns/{turn}/delete?newest={deleted[-1]}",
        back=f"/ui/chat/{chat_id}",
        status=409 if continued else 200,
    )


@router.post("/ui/chat/{chat_id}/turns/{turn}/delete")
async def delete_turn_version(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    turn: int,
    audit: deps.AuditDep,
    chats: deps.ChatsDep,
    newest: int | None = None,
) -> Response:
    """Delete a turn that has alternatives. ``newest`` is the newest of the turns that were confirmed."""
    try:
        await chats.delete_alternative(me.user.id, chat_id, turn, newest=newest)
    except ChatChanged:
        tree = await chats.get_turn_tree(me.user.id, chat_id)
        return _render_turn_delete_confirmation(request, chat_id, turn, tree, continued=True)
    await audit.record_change(me, "chat.delete_turn", chat_id)
    return responses.redirect_to(f"/ui/chat/{chat_id}#end", "The version was deleted.")


@dataclass(frozen=True, slots=True)
class ToolPickerPage:
    """Content of the page. ``chosen`` is None if all available tools are used."""

    chat: Chat
    agent: Agent | None
    groups: Sequence[ChatToolGroup]
    chosen: frozenset[str] | None
    shown: int
    find_icon_path: Callable[[str], str]

    def ticked(self, tool: ToolView) -> bool:
        """Return True if the model can use the tool."""
        return tool.shown and (self.chosen is None or tool.id in self.chosen)


@router.get("/ui/chat/{chat_id}/tools")
async def show_tool_picker(
    request: Request,
    me: deps.CurrentUser,
    chat_id: str,
    roster: deps.AgentRosterDep,
    chats: deps.ChatsDep,
    find_icon_path: IconFinderDep,
) -> Response:
    """Show all tools, with a checkbox for each available one."""
    chat = await chats.get(me.user.id, chat_id)
    tools = await chats.list_tools(me.user.id, chat_id)
    page = ToolPickerPage(
        chat,
        next((each for each in await roster.list_agents(me.user.id) if each.id == chat.agent), None),
        group_chat_tools(sorted(tools, key=lambda each: (not each.shown, each.name))),
        None if chat.choice is None else frozenset(chat.choice),
        sum(each.shown for each in tools),
        find_icon_path,
    )
    return await responses.render_large_page(request, "chat_tools.html", page=page)


@router.post("/ui/chat/{chat_id}/tools")
async def choose_tools(me: deps.CurrentUser, chat_id: str, pages: ChatPagesDep) -> Response:
    """Save the selection.

    “All tools” is stored as no selection, so that it includes tools that are added later.
    """
    form = await forms.read_form(pages.request)
    choice = None if form.text("which", "some") == "all" else form.all_values("tool")
    chat = await pages.chats.change(me.user.id, chat_id, choice=choice)
    if responses.is_fragment_request(pages.request):
        return await pages.render_settings(chat)
    return responses.redirect_to(
        f"/ui/chat/{chat.id}#end", "Tools saved. The change applies from your next message."
    )
