"""``/chats``: chats with models, and tool runs by the user."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from toolyard.agents.chat.chats import UNCHANGED
from toolyard.core.caller_cache import CallerCache
from toolyard.types.chat import Chat
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.api import base as api
from toolyard.web.api.chat_models import (
    ChatPage,
    ChatResponse,
    ChatTool,
    ChatTools,
    ChatTurn,
    ChatTurns,
    CreateChatRequest,
    MessageRequest,
    ReplyRequest,
    RunToolRequest,
    TurnResponse,
    UpdateChatRequest,
)

__all__ = ["router"]

router = api.ApiRoutes(prefix="/chats", tags=["chats"])

QuestionId = Annotated[
    str, Path(min_length=1, max_length=128, description="Id of the question, from its event.")
]
TurnNumber = Annotated[int, Path(ge=1, le=2**62, description="Number of the event that began the turn.")]
NewestTurn = Annotated[
    int | None,
    Query(
        ge=1,
        le=2**62,
        description="The newest turn to delete, as you know it. Left out: delete newer ones, too.",
    ),
]
_LIST_POSITION_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})?~[A-Za-z0-9_-]{1,128}$"


# Chats.


@router.get("", summary="List your chats")
async def list_chats(
    chat_store: deps.ChatStoreDep,
    chats: deps.ChatsDep,
    request_user: api.ChatReader,
    q: Annotated[
        str | None,
        Query(max_length=200, pattern=r"^[^\x00]*$", description="Words to find in titles and messages."),
    ] = None,
    before: Annotated[
        str | None,
        Query(
            max_length=160, pattern=_LIST_POSITION_PATTERN, description="`next_before` of the previous page."
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ChatPage:
    """Return your chats, last changed first."""
    position = None if before is None else _parse_list_position(before)
    # One chat more than the limit is read, to know whether there is a next page.
    found = await chats.list(request_user.user.id, search_text=q or None, before=position, limit=limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    return ChatPage(
        items=[ChatResponse.of(each) for each in shown],
        next_before=_format_list_position(shown[-1]) if more else None,
        notice=await chat_store.quota_notice(request_user.user.id),
    )


@router.post("", status_code=201, errors=[404, 409, 413, 415], summary="Create a chat")
async def create_chat(
    audit: deps.AuditDep,
    callers: deps.CallersDep,
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    given: CreateChatRequest,
    response: Response,
) -> ChatResponse:
    """Create an empty chat."""
    agent = await _resolve_agent_id(callers, request_user, given.agent)
    chat = await chats.create(
        request_user.user.id, agent=agent, model=given.model, choice=given.choice, title=given.title or ""
    )
    await audit.record_change(request_user, "chat.create", chat.id, agent=chat.agent, model=chat.model)
    response.headers["Location"] = f"/api/v1/chats/{chat.id}"
    return ChatResponse.of(chat)


@router.get("/{id}", errors=[404], summary="Get a chat")
async def get_chat(chats: deps.ChatsDep, request_user: api.ChatReader, id: api.PathId) -> ChatResponse:
    """Return the title, agent, model, tools and state of a chat."""
    return ChatResponse.of(await chats.get(request_user.user.id, id))


@router.patch("/{id}", errors=[404, 413, 415], summary="Change a chat")
async def edit_chat(
    callers: deps.CallersDep,
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    id: api.PathId,
    given: UpdateChatRequest,
) -> ChatResponse:
    """Rename a chat, or change its agent, model or tools from the next turn on."""
    await chats.get(request_user.user.id, id)
    # null is a value of these fields, so omitted ones are recognised by the fields set.
    agent, fields_set = await _resolve_agent_id(callers, request_user, given.agent), given.model_fields_set
    chat = await chats.change(
        request_user.user.id,
        id,
        title=UNCHANGED if given.title is None else given.title,
        agent=agent if "agent" in fields_set else UNCHANGED,
        model=given.model if "model" in fields_set else UNCHANGED,
        choice=given.choice if "choice" in fields_set else UNCHANGED,
    )
    return ChatResponse.of(chat)


@router.delete("/{id}", status_code=204, errors=[404], summary="Delete a chat")
async def delete_chat(
    audit: deps.AuditDep, chats: deps.ChatsDep, request_user: api.ChatWriter, id: api.PathId
) -> None:
    """Delete a chat with all its events. A running turn is stopped."""
    await chats.delete(request_user.user.id, id)
    await audit.record_change(request_user, "chat.delete", id)


@router.get(
    "/{id}/tools",
    response_model=ChatTools,
    errors=[404, 409],
    summary="List the tools of a chat",
)
async def list_chat_tools(chats: deps.ChatsDep, request_user: api.ChatReader, id: api.PathId) -> Response:
    """Return all your tools, whether the model of the chat can use them, and the reason for hidden ones."""
    tools = await chats.list_tools(request_user.user.id, id)
    return await api.respond_with_items(map(ChatTool.values_of, tools))


# Turns.


@router.post(
    "/{id}/messages",
    status_code=202,
    errors=[404, 409, 413, 415],
    summary="Send a message",
)
async def send_message(
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    id: api.PathId,
    given: MessageRequest,
    response: Response,
) -> TurnResponse:
    """Send a message and begin a turn, in which the model answers and calls tools. Returns at once; the
    events of the turn are streamed."""
    turn = await chats.send(request_user.user.id, id, given.text, given.attachments)
    return _build_turn_begun(id, turn, response)


@router.post("/{id}/runs", status_code=202, errors=[404, 409, 413, 415], summary="Run a tool")
async def run_chat_tool(
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    id: api.PathId,
    given: RunToolRequest,
    response: Response,
) -> TurnResponse:
    """Begin a turn in which you call a tool yourself, without a model."""
    return _build_turn_begun(
        id, await chats.run_tool(request_user.user.id, id, given.name, given.arguments), response
    )


@router.post("/{id}/retry", status_code=202, errors=[404, 409], summary="Retry the last turn")
async def retry_turn(
    chats: deps.ChatsDep, request_user: api.ChatWriter, id: api.PathId, response: Response
) -> TurnResponse:
    """Begin a new turn with the message or tool run of the last one, as an alternative to it."""
    return _build_turn_begun(id, await chats.retry(request_user.user.id, id), response)


@router.get("/{id}/turns", errors=[404], summary="List the turns of a chat")
async def list_turns(chats: deps.ChatsDep, request_user: api.ChatReader, id: api.PathId) -> ChatTurns:
    """Return the turns of the chosen branch in order, and the alternatives to each of them."""
    chat = await chats.get(request_user.user.id, id)
    tree = await chats.get_turn_tree(request_user.user.id, id)
    return ChatTurns(
        items=[
            ChatTurn(turn=each, parent=tree.parents[each], alternatives=tree.alternatives(each))
            for each in tree.branch(chat.turn)
        ]
    )


@router.post(
    "/{id}/turns/{turn}/edit",
    status_code=202,
    errors=[404, 409, 413, 415],
    summary="Edit a message",
)
async def edit_message(
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    id: api.PathId,
    turn: TurnNumber,
    given: MessageRequest,
    response: Response,
) -> TurnResponse:
    """Begin a new turn with another text for the message of a turn. Both are kept as alternatives; the new
    one is chosen. If the chat shows another version of the message by now, `current` of the problem has its
    `turn` and `text`."""
    number = await chats.edit(request_user.user.id, id, turn, given.text, given.attachments)
    return _build_turn_begun(id, number, response)


@router.post("/{id}/turns/{turn}/retry", status_code=202, errors=[404, 409], summary="Retry a turn")
async def retry_chat_turn(
    chats: deps.ChatsDep, request_user: api.ChatWriter, id: api.PathId, turn: TurnNumber, response: Response
) -> TurnResponse:
    """Begin a new turn with the message or tool run of another one. Both are kept as alternatives; the new
    one is chosen."""
    return _build_turn_begun(id, await chats.retry(request_user.user.id, id, turn), response)


@router.post("/{id}/turns/{turn}/choose", errors=[404, 409], summary="Choose an alternative")
async def choose_turn(
    chats: deps.ChatsDep, request_user: api.ChatWriter, id: api.PathId, turn: TurnNumber
) -> ChatResponse:
    """Show the branch of an alternative, to the newest turn that follows it, and continue the chat from
    there. Not possible while a turn is running."""
    return ChatResponse.of(await chats.choose(request_user.user.id, id, turn))


@router.delete("/{id}/turns/{turn}", errors=[404, 409], summary="Delete an alternative")
async def delete_turn(
    chats: deps.ChatsDep,
    audit: deps.AuditDep,
    request_user: api.ChatWriter,
    id: api.PathId,
    turn: TurnNumber,
    newest: NewestTurn = None,
) -> ChatResponse:
    """Delete a turn that has alternatives, with all turns that follow it. If it is in the chosen branch,
    another alternative is chosen. Attachments are deleted with the chat. Not possible while a turn is
    running. If turns newer than `newest` follow it by now, nothing is deleted, and `current` of the problem
    has the `turn` of the newest one."""
    chat = await chats.delete_alternative(request_user.user.id, id, turn, newest=newest)
    await audit.record_change(request_user, "chat.delete_turn", id)
    return ChatResponse.of(chat)


@router.post("/{id}/stop", status_code=202, errors=[404], summary="Stop a turn")
async def stop_turn(
    chats: deps.ChatsDep, request_user: api.ChatWriter, id: api.PathId, response: Response
) -> TurnResponse:
    """Stop the running turn, including its model response and calls. Its last event shows when it has ended.
    Does nothing if no turn is running."""
    chat = await chats.get(request_user.user.id, id)
    await chats.stop_turn(request_user.user.id, id)
    return _build_turn_begun(id, chat.turn, response)


@router.post(
    "/{id}/questions/{question}",
    status_code=204,
    errors=[404, 409, 413, 415],
    summary="Reply to a server's question",
)
async def answer_question(
    chats: deps.ChatsDep,
    request_user: api.ChatWriter,
    id: api.PathId,
    question: QuestionId,
    given: ReplyRequest,
) -> None:
    """Reply to a question that a server asked during a call. The content is sent to the server, but not
    stored."""
    await chats.answer_question(request_user.user.id, id, question, given.action, given.content)


# Helpers.


async def _resolve_agent_id(callers: CallerCache, request_user: RequestUser, name: str | None) -> str | None:
    """Return the id of an agent by id or name. Raises AgentsError if there is none."""
    agent = None if name is None else (await callers.find(request_user, name)).agent
    return None if agent is None else agent.id


def _build_turn_begun(chat_id: str, turn: int, response: Response) -> TurnResponse:
    # One before the first event of the turn, because ``after`` excludes its value.
    stream = f"/api/v1/chats/{chat_id}/stream?after={max(turn - 1, 0)}"
    response.headers["Location"] = stream
    return TurnResponse(turn=turn, stream=stream)


def _format_list_position(chat: Chat) -> str:
    """Return the position of a chat in the list, as the value of ``before`` for the next page."""
    return f"{chat.updated_at:.9f}~{chat.id}"


def _parse_list_position(text: str) -> tuple[float, str]:
    updated, _, chat_id = text.partition("~")
    return float(updated), chat_id
