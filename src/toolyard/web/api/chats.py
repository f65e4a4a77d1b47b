"""``/chats``: what somebody talks about with models, and the tools that they run themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from toolyard.agents.chat.chats import UNCHANGED
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import Visitor
from toolyard.web.api.chat_dependencies import Chatting, Looking
from toolyard.web.api.chat_models import (
    ChatChanges,
    ChatGiven,
    ChatPage,
    ChatShown,
    ChatTools,
    MessageGiven,
    ReplyGiven,
    RunGiven,
    TurnBegun,
    chat_shown,
    tool_shown,
)
from toolyard.web.api.dependencies import JSON, Id, Served, problems, produces
from toolyard.web.services import Site

__all__ = ["router"]

router = APIRouter(prefix="/chats", tags=["chats"], dependencies=[Depends(produces(JSON))])

Question = Annotated[
    str, Path(min_length=1, max_length=128, description="The question's id, as its event tells it.")
]
_PLACE = r"^[0-9]{1,12}(\.[0-9]{1,12})?~[A-Za-z0-9_-]{1,128}$"


# Chats.


@router.get("", responses=problems(), summary="Your chats")
async def list_chats(
    site: Served,
    visitor: Looking,
    q: Annotated[
        str | None,
        Query(max_length=200, pattern=r"^[^\x00]*$", description="Words in titles and in what was said."),
    ] = None,
    before: Annotated[
        str | None, Query(max_length=160, pattern=_PLACE, description="`next_before` of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ChatPage:
    """The one that changed last first."""
    place = None if before is None else _place(before)
    found = await site.chats.list(visitor.user.id, words=q or None, before=place, limit=limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    stored = site.database.chats
    return ChatPage(
        items=[chat_shown(each) for each in shown],
        next_before=_after(shown[-1]) if more else None,
        notice=stored.quota.notice(await stored.usage(visitor.user.id)),
    )


@router.post("", status_code=201, responses=problems(404, 409, 413, 415), summary="Begin a chat")
async def create_chat(site: Served, visitor: Chatting, given: ChatGiven, response: Response) -> ChatShown:
    """A chat in which nothing was said yet."""
    agent = _agent(site, visitor, given.agent)
    chat = await site.chats.create(
        visitor.user.id, agent=agent, model=given.model, choice=given.choice, title=given.title or ""
    )
    await site.changed(visitor, "chat.create", chat.id, agent=chat.agent, model=chat.model)
    response.headers["Location"] = f"/api/v1/chats/{chat.id}"
    return chat_shown(chat)


@router.get("/{id}", responses=problems(404), summary="One of your chats")
async def get_chat(site: Served, visitor: Looking, id: Id) -> ChatShown:
    """What it is called, what it uses, and what it is doing."""
    return chat_shown(await site.chats.get(visitor.user.id, id))


@router.patch("/{id}", responses=problems(404, 413, 415), summary="Change a chat")
async def edit_chat(site: Served, visitor: Chatting, id: Id, given: ChatChanges) -> ChatShown:
    """Rename it, or choose another agent, model or other tools, from the next turn on."""
    await site.chats.get(visitor.user.id, id)
    agent, named = _agent(site, visitor, given.agent), given.model_fields_set
    chat = await site.chats.change(
        visitor.user.id,
        id,
        title=UNCHANGED if given.title is None else given.title,
        agent=agent if "agent" in named else UNCHANGED,
        model=given.model if "model" in named else UNCHANGED,
        choice=given.choice if "choice" in named else UNCHANGED,
    )
    return chat_shown(chat)


@router.delete("/{id}", status_code=204, responses=problems(404), summary="Delete a chat")
async def delete_chat(site: Served, visitor: Chatting, id: Id) -> None:
    """With all that was said in it. A turn that runs is stopped."""
    await site.chats.delete(visitor.user.id, id)
    await site.changed(visitor, "chat.delete", id)


@router.get("/{id}/tools", responses=problems(404, 409), summary="The tools of a chat")
async def list_chat_tools(site: Served, visitor: Looking, id: Id) -> ChatTools:
    """All tools that you have, which of them its model sees, and why not the others."""
    return ChatTools(items=[tool_shown(each) for each in await site.chats.tools(visitor.user.id, id)])


# Turns.


@router.post(
    "/{id}/messages", status_code=202, responses=problems(404, 409, 413, 415), summary="Say something"
)
async def send_message(
    site: Served, visitor: Chatting, id: Id, given: MessageGiven, response: Response
) -> TurnBegun:
    """Begin a turn: a model answers, and calls tools. Answers at once; what comes of it is streamed."""
    return _begun(id, await site.chats.send(visitor.user.id, id, given.text), response)


@router.post("/{id}/runs", status_code=202, responses=problems(404, 409, 413, 415), summary="Run a tool")
async def run_chat_tool(
    site: Served, visitor: Chatting, id: Id, given: RunGiven, response: Response
) -> TurnBegun:
    """Begin a turn in which you call a tool yourself, without a model."""
    return _begun(id, await site.chats.run(visitor.user.id, id, given.name, given.arguments), response)


@router.post("/{id}/retry", status_code=202, responses=problems(404, 409), summary="Try the last turn again")
async def retry_turn(site: Served, visitor: Chatting, id: Id, response: Response) -> TurnBegun:
    """Begin a turn with what began the last one."""
    return _begun(id, await site.chats.retry(visitor.user.id, id), response)


@router.post("/{id}/stop", status_code=202, responses=problems(404), summary="Stop a turn")
async def stop_turn(site: Served, visitor: Chatting, id: Id, response: Response) -> TurnBegun:
    """End the model's answer and the calls of the turn that runs; its last event tells when that is done.
    Where none runs, nothing happens."""
    chat = await site.chats.get(visitor.user.id, id)
    await site.chats.stop(visitor.user.id, id)
    return _begun(id, chat.turn, response)


@router.post(
    "/{id}/questions/{question}",
    status_code=204,
    responses=problems(404, 409, 413, 415),
    summary="Reply to a server's question",
)
async def answer_question(
    site: Served, visitor: Chatting, id: Id, question: Question, given: ReplyGiven
) -> None:
    """What a server asked in the middle of a call. The content goes to the server, and is not kept."""
    await site.chats.respond(visitor.user.id, id, question, given.action, given.content)


# How it is put together.


def _agent(site: Site, visitor: Visitor, name: str | None) -> str | None:
    """An agent's id, by that or by its name. Raises AgentsError where there is none."""
    agent = None if name is None else site.caller(visitor, agent=name).agent
    return None if agent is None else agent.id


def _begun(chat_id: str, turn: int, response: Response) -> TurnBegun:
    stream = f"/api/v1/chats/{chat_id}/stream?after={max(turn - 1, 0)}"
    response.headers["Location"] = stream
    return TurnBegun(turn=turn, stream=stream)


def _after(chat: Chat) -> str:
    """The place of a chat in the list."""
    return f"{chat.updated_at:.9f}~{chat.id}"


def _place(text: str) -> tuple[float, str]:
    updated, _, chat_id = text.partition("~")
    return float(updated), chat_id
