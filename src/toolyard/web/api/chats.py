"""``/chats``: what somebody talks about with models, and the tools that they run themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from toolyard.agents.chat.chats import UNCHANGED
from toolyard.types.chat import Chat
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.chat_dependencies import ChatReader, ChatWriter
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
    build_chat_model,
    build_chat_tool_model,
)
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    PathId,
    problem_responses,
    require_media_types,
)
from toolyard.web.services import Services

__all__ = ["router"]

router = APIRouter(
    prefix="/chats", tags=["chats"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)

QuestionId = Annotated[
    str, Path(min_length=1, max_length=128, description="The question's id, as its event tells it.")
]
_LIST_POSITION_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})?~[A-Za-z0-9_-]{1,128}$"


# Chats.


@router.get("", responses=problem_responses(), summary="Your chats")
async def list_chats(
    site: AppServices,
    visitor: ChatReader,
    q: Annotated[
        str | None,
        Query(max_length=200, pattern=r"^[^\x00]*$", description="Words in titles and in what was said."),
    ] = None,
    before: Annotated[
        str | None,
        Query(
            max_length=160, pattern=_LIST_POSITION_PATTERN, description="`next_before` of the page before."
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ChatPage:
    """The one that changed last first."""
    place = None if before is None else _parse_list_position(before)
    found = await site.chats.list(visitor.user.id, search_text=q or None, before=place, limit=limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    stored = site.database.chats
    return ChatPage(
        items=[build_chat_model(each) for each in shown],
        next_before=_format_list_position(shown[-1]) if more else None,
        notice=stored.quota.notice(await stored.usage(visitor.user.id)),
    )


@router.post("", status_code=201, responses=problem_responses(404, 409, 413, 415), summary="Begin a chat")
async def create_chat(
    site: AppServices, visitor: ChatWriter, given: ChatGiven, response: Response
) -> ChatShown:
    """A chat in which nothing was said yet."""
    agent = _resolve_agent_id(site, visitor, given.agent)
    chat = await site.chats.create(
        visitor.user.id, agent=agent, model=given.model, choice=given.choice, title=given.title or ""
    )
    await site.changed(visitor, "chat.create", chat.id, agent=chat.agent, model=chat.model)
    response.headers["Location"] = f"/api/v1/chats/{chat.id}"
    return build_chat_model(chat)


@router.get("/{id}", responses=problem_responses(404), summary="One of your chats")
async def get_chat(site: AppServices, visitor: ChatReader, id: PathId) -> ChatShown:
    """What it is called, what it uses, and what it is doing."""
    return build_chat_model(await site.chats.get(visitor.user.id, id))


@router.patch("/{id}", responses=problem_responses(404, 413, 415), summary="Change a chat")
async def edit_chat(site: AppServices, visitor: ChatWriter, id: PathId, given: ChatChanges) -> ChatShown:
    """Rename it, or choose another agent, model or other tools, from the next turn on."""
    await site.chats.get(visitor.user.id, id)
    agent, named = _resolve_agent_id(site, visitor, given.agent), given.model_fields_set
    chat = await site.chats.change(
        visitor.user.id,
        id,
        title=UNCHANGED if given.title is None else given.title,
        agent=agent if "agent" in named else UNCHANGED,
        model=given.model if "model" in named else UNCHANGED,
        choice=given.choice if "choice" in named else UNCHANGED,
    )
    return build_chat_model(chat)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete a chat")
async def delete_chat(site: AppServices, visitor: ChatWriter, id: PathId) -> None:
    """With all that was said in it. A turn that runs is stopped."""
    await site.chats.delete(visitor.user.id, id)
    await site.changed(visitor, "chat.delete", id)


@router.get("/{id}/tools", responses=problem_responses(404, 409), summary="The tools of a chat")
async def list_chat_tools(site: AppServices, visitor: ChatReader, id: PathId) -> ChatTools:
    """All tools that you have, which of them its model sees, and why not the others."""
    return ChatTools(
        items=[build_chat_tool_model(each) for each in await site.chats.tools(visitor.user.id, id)]
    )


# Turns.


@router.post(
    "/{id}/messages",
    status_code=202,
    responses=problem_responses(404, 409, 413, 415),
    summary="Say something",
)
async def send_message(
    site: AppServices, visitor: ChatWriter, id: PathId, given: MessageGiven, response: Response
) -> TurnBegun:
    """Begin a turn: a model answers, and calls tools. Answers at once; what comes of it is streamed."""
    return _build_turn_begun(id, await site.chats.send(visitor.user.id, id, given.text), response)


@router.post(
    "/{id}/runs", status_code=202, responses=problem_responses(404, 409, 413, 415), summary="Run a tool"
)
async def run_chat_tool(
    site: AppServices, visitor: ChatWriter, id: PathId, given: RunGiven, response: Response
) -> TurnBegun:
    """Begin a turn in which you call a tool yourself, without a model."""
    return _build_turn_begun(
        id, await site.chats.run_tool(visitor.user.id, id, given.name, given.arguments), response
    )


@router.post(
    "/{id}/retry", status_code=202, responses=problem_responses(404, 409), summary="Try the last turn again"
)
async def retry_turn(site: AppServices, visitor: ChatWriter, id: PathId, response: Response) -> TurnBegun:
    """Begin a turn with what began the last one."""
    return _build_turn_begun(id, await site.chats.retry(visitor.user.id, id), response)


@router.post("/{id}/stop", status_code=202, responses=problem_responses(404), summary="Stop a turn")
async def stop_turn(site: AppServices, visitor: ChatWriter, id: PathId, response: Response) -> TurnBegun:
    """End the model's answer and the calls of the turn that runs; its last event tells when that is done.
    Where none runs, nothing happens."""
    chat = await site.chats.get(visitor.user.id, id)
    await site.chats.stop(visitor.user.id, id)
    return _build_turn_begun(id, chat.turn, response)


@router.post(
    "/{id}/questions/{question}",
    status_code=204,
    responses=problem_responses(404, 409, 413, 415),
    summary="Reply to a server's question",
)
async def answer_question(
    site: AppServices, visitor: ChatWriter, id: PathId, question: QuestionId, given: ReplyGiven
) -> None:
    """What a server asked in the middle of a call. The content goes to the server, and is not kept."""
    await site.chats.answer_question(visitor.user.id, id, question, given.action, given.content)


# How it is put together.


def _resolve_agent_id(site: Services, visitor: RequestUser, name: str | None) -> str | None:
    """An agent's id, by that or by its name. Raises AgentsError where there is none."""
    agent = None if name is None else site.get_caller(visitor, agent=name).agent
    return None if agent is None else agent.id


def _build_turn_begun(chat_id: str, turn: int, response: Response) -> TurnBegun:
    stream = f"/api/v1/chats/{chat_id}/stream?after={max(turn - 1, 0)}"
    response.headers["Location"] = stream
    return TurnBegun(turn=turn, stream=stream)


def _format_list_position(chat: Chat) -> str:
    """The place of a chat in the list."""
    return f"{chat.updated_at:.9f}~{chat.id}"


def _parse_list_position(text: str) -> tuple[float, str]:
    updated, _, chat_id = text.partition("~")
    return float(updated), chat_id
