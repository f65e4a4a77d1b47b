"""What the forms of a chat's page do. Each leads to a chat, or back to the form with what was filled in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlencode

from toolyard.agents.chat.chats import UNCHANGED, ToolView
from toolyard.agents.chat.errors import ChatRefused
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import Visitor
from toolyard.web.services import Site
from toolyard.web.ui.chat.console import Console, one_tool, tools_for
from toolyard.web.ui.chat.turn_view import Card, Question
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.flash import Flash
from toolyard.web.ui.components.forms import Posted
from toolyard.web.ui.tools.form import ToolForm
from toolyard.web.ui.tools.schema_form import BadArguments

__all__ = ["DEEDS", "Filled", "Went", "filled_in"]


@dataclass(frozen=True, slots=True)
class Went:
    """It is done; the page to go to."""

    chat: Chat
    query: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def href(self) -> str:
        """Its end, where what was done is to be seen."""
        asked = f"?{urlencode(self.query)}" if self.query else ""
        return f"/ui/chat/{self.chat.id}{asked}#end"


@dataclass(frozen=True, slots=True)
class Filled:
    """What somebody sent that did not lead anywhere, to be shown again."""

    text: str = ""
    agent: str = ""
    model: str = ""
    console: Console | None = None
    question: Question | None = None
    form: ToolForm | None = None
    """Of the question."""
    told: Flash | None = None


Deed: TypeAlias = Callable[[Site, Visitor, Chat | None, Posted], Awaitable[Went | Filled]]


async def _send(site: Site, me: Visitor, chat: Chat | None, form: Posted) -> Went | Filled:
    async def send(chat: Chat) -> int:
        return await site.chats.send(me.user.id, chat.id, form.text("text").replace("\r\n", "\n"))

    return Went(await _in_chat(site, me, chat, form, send))


async def _run(site: Site, me: Visitor, chat: Chat | None, form: Posted) -> Went | Filled:
    tool, filled, console = await _tool_sent(site, me, chat, form)
    if filled.only_changed:
        return Filled(console=console)
    try:
        arguments = filled.arguments()
    except BadArguments as error:
        return Filled(console=replace(console, form=filled.wrong(error)))

    async def run(chat: Chat) -> int:
        return await site.chats.run(me.user.id, chat.id, tool.name, arguments)

    return Went(await _in_chat(site, me, chat, form, run), {"run": "", "tool": tool.name})


async def _tool_sent(
    site: Site, me: Visitor, chat: Chat | None, form: Posted
) -> tuple[ToolView, ToolForm, Console]:
    tool = one_tool(await tools_for(site, me, chat), form.text("tool"))
    filled = ToolForm.of(tool.input_schema).sent(form)
    return tool, filled, Console(None if chat is None else chat.id, tool.name, tool=tool, form=filled)


async def filled_in(site: Site, me: Visitor, chat: Chat | None, form: Posted, told: Flash) -> Filled:
    """All that was written and chosen in a form that led nowhere, with what is said about it."""
    console = None
    if form.text("do") == "run":
        with suppress(NotFound):
            console = (await _tool_sent(site, me, chat, form))[2]
    return Filled(form.text("text"), form.text("agent"), form.text("model"), console, told=told)


async def _in_chat(
    site: Site, me: Visitor, chat: Chat | None, form: Posted, begin: Callable[[Chat], Awaitable[int]]
) -> Chat:
    """Begin a turn, in a new chat where there is none. One in which nothing could begin does not stay."""
    site.visiting(me)
    if chat is not None:
        await begin(chat)
        return chat
    agent, model = form.text("agent") or None, form.text("model") or None
    chat = await site.chats.create(me.user.id, agent=agent, model=model)
    try:
        await begin(chat)
    except ToolyardError:
        await site.chats.delete(me.user.id, chat.id)
        raise
    await site.changed(me, "chat.create", chat.id, agent=chat.agent, model=chat.model)
    return chat


async def _stop(site: Site, me: Visitor, chat: Chat | None, form: Posted) -> Went | Filled:
    found = _there(chat)
    await site.chats.stop(me.user.id, found.id)
    return Went(found)


async def _retry(site: Site, me: Visitor, chat: Chat | None, form: Posted) -> Went | Filled:
    found = _there(chat)
    site.visiting(me)
    await site.chats.retry(me.user.id, found.id)
    return Went(found)


async def _settings(site: Site, me: Visitor, chat: Chat | None, form: Posted) -> Went | Filled:
    found = _there(chat)
    agent = form.text("agent") or None if form.flag("agent") else UNCHANGED
    model = form.text("model") or None if form.flag("model") else UNCHANGED
    return Went(await site.chats.change(me.user.id, found.id, agent=agent, model=model))


async def _reply(site: Site, me: Visitor, chat: Chat | None, form: Posted) -> Went | Filled:
    found, action = _there(chat), form.text("reply")
    question = await _question(site, found, form.text("question"))
    content = None
    if question.kind == "form" and action not in ("decline", "cancel"):
        filled = ToolForm.question(question.schema, question.key).sent(form)
        if filled.only_changed:
            return Filled(question=question, form=filled)
        try:
            content = filled.arguments()
        except BadArguments as error:
            return Filled(question=question, form=filled.wrong(error))
    site.visiting(me)
    await site.chats.respond(me.user.id, found.id, question.id, action or "cancel", content)
    return Went(found)


async def _question(site: Site, chat: Chat, question_id: str) -> Question:
    """What a server asks, while it waits. Raises ChatRefused."""
    view = ChatView.of(await site.chats.latest(chat.owner, chat.id, limit=1))
    for item in view.turns[-1].items if view.turns else ():
        asked = item.questions if isinstance(item, Card) else (item,) if isinstance(item, Question) else ()
        for each in asked:
            if each.id == question_id and each.action is None:
                return each
    raise ChatRefused("nobody waits for this answer any more", hint="the call that asked for it is over")


def _there(chat: Chat | None) -> Chat:
    if chat is None:
        raise ChatRefused("there is no chat yet", hint="write something first")
    return chat


DEEDS: Mapping[str, Deed] = {
    "send": _send,
    "run": _run,
    "stop": _stop,
    "retry": _retry,
    "settings": _settings,
    "reply": _reply,
}
"""By the value of the field ``do``."""
