"""Chats, their events and their tools, as the API takes and shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolyard.agents.chat.sanitize import is_storable_json
from toolyard.agents.chat.tool_picker import ToolView
from toolyard.types.chat import Chat, ChatEvent, Kind
from toolyard.web.api.dependencies import PLAIN_TEXT_PATTERN, Given, to_datetime

__all__ = [
    "ChatChanges",
    "ChatGiven",
    "ChatPage",
    "ChatShown",
    "ChatTool",
    "ChatTools",
    "EventPage",
    "EventShown",
    "MessageGiven",
    "ReplyGiven",
    "RunGiven",
    "TurnBegun",
    "build_chat_model",
    "build_chat_tool_model",
    "build_event_model",
]

_NO_NUL_PATTERN = r"^[^\x00]*$"
"""A database cannot keep one."""

ChatTitle = Annotated[
    str, Field(min_length=1, max_length=200, pattern=PLAIN_TEXT_PATTERN, examples=["Retries in the client"])
]
AgentId = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_NUL_PATTERN, examples=["planner"])]
ModelId = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_NUL_PATTERN, examples=["fast"])]
ToolChoice = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=500, pattern=_NO_NUL_PATTERN)]],
    Field(max_length=5_000, description="Ids of the tools to use, as `…/tools` shows them."),
]


def _require_valid_json(given: dict[str, Any]) -> dict[str, Any]:
    if not is_storable_json(given):
        raise ValueError("holds something that cannot be sent as JSON: half a character, or a huge number")
    return given


JsonFields = Annotated[dict[str, Any], AfterValidator(_require_valid_json)]


# What comes in.


class ChatGiven(Given):
    """A chat to begin."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"agent": "planner", "model": "fast"}]})

    title: ChatTitle | None = Field(
        default=None, description="Made from the first message where there is none."
    )
    agent: AgentId | None = Field(default=None, description="null: no agent, all tools.")
    model: ModelId | None = Field(default=None, description="null: the agent's, else the default.")
    choice: ToolChoice | None = Field(default=None, description="null: all tools.")


class ChatChanges(Given):
    """What to change about a chat; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"title": "Retries", "choice": None}]})

    title: ChatTitle | None = Field(default=None, description="null: stays as it is.")
    agent: AgentId | None = Field(default=None, description="null: no agent, all tools.")
    model: ModelId | None = Field(default=None, description="null: the agent's, else the default.")
    choice: ToolChoice | None = Field(default=None, description="null: all tools.")


class MessageGiven(Given):
    """What a person says to the model."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Which issues are about retries?"}]})

    text: str = Field(min_length=1, max_length=200_000, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")


class RunGiven(Given):
    """A tool that a person calls themself."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "demo_weekday", "arguments": {"date": "2026-07-28"}}]}
    )

    name: str = Field(
        min_length=1, max_length=64, pattern=_NO_NUL_PATTERN, description="As `…/tools` shows it."
    )
    arguments: JsonFields = Field(default_factory=dict[str, Any])


class ReplyGiven(Given):
    """What a person replies to a server's question."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"action": "accept", "content": {"city": "Oslo"}}]}
    )

    action: Literal["accept", "decline", "cancel"]
    content: JsonFields | None = Field(default=None, description="The form's fields, if accepted.")


# What goes out.


class ChatShown(BaseModel):
    """A chat."""

    id: str
    title: str
    agent: str | None
    model: str | None
    choice: list[str] | None
    state: Literal["idle", "running", "waiting"] = Field(
        description="`waiting`: for an answer of yours, if need be for days."
    )
    turn: int = Field(description="The event that began the last turn; 0: there was none.")
    last: int = Field(description="The last event.")
    created_at: datetime
    updated_at: datetime


class ChatPage(BaseModel):
    """Chats, the one that changed last first."""

    items: list[ChatShown]
    next_before: str | None = Field(description="Give it as `before` for older ones; null: that was all.")
    notice: str | None = Field(
        default=None, description="A warning, once the space for chats is almost used up."
    )


class TurnBegun(BaseModel):
    """A turn that goes on by itself."""

    turn: int = Field(description="The event that began it.")
    stream: str = Field(description="Where its events are streamed, from its first one.")


class EventShown(BaseModel):
    """Something that was said or done."""

    seq: int = Field(description="Counts up, with gaps.")
    turn: int = Field(description="The event that began the turn.")
    kind: Kind
    at: datetime
    part: str = Field(
        description="What a piece (`text`, `reasoning`, `progress`) is of. Another event of the same turn "
        "and part stands in place of its pieces, which are gone."
    )
    body: dict[str, Any] = Field(description="What docs/api.md says of each kind.")


class EventPage(BaseModel):
    """Events, in order."""

    items: list[EventShown]
    next_after: int | None = Field(description="Give it as `after` for what follows; null: that was all.")


class ChatTool(BaseModel):
    """A tool, and whether the model of this chat sees it."""

    name: str
    id: str
    server: str
    server_label: str
    native: bool = Field(description="One of Toolyard's own.")
    title: str | None
    description: str
    input_schema: dict[str, Any]
    shown: bool
    why: str = Field(description="Why it is hidden; empty where it is not.")
    asks: bool = Field(description="Whether each call needs a yes.")


class ChatTools(BaseModel):
    """The tools of a chat, by name."""

    items: list[ChatTool]


def build_chat_model(chat: Chat) -> ChatShown:
    """A chat as the API shows it."""
    return ChatShown(
        id=chat.id,
        title=chat.title,
        agent=chat.agent,
        model=chat.model,
        choice=None if chat.choice is None else list(chat.choice),
        state=chat.state.value,
        turn=chat.turn,
        last=chat.last,
        created_at=to_datetime(chat.created_at),
        updated_at=to_datetime(chat.updated_at),
    )


def build_event_model(event: ChatEvent) -> EventShown:
    """An event as the API shows it."""
    return EventShown.model_construct(
        seq=event.seq,
        turn=event.turn,
        kind=event.kind,
        at=to_datetime(event.at),
        part=event.part,
        body=dict(event.body),
    )


def build_chat_tool_model(tool: ToolView) -> ChatTool:
    """A tool of a chat as the API shows it."""
    return ChatTool.model_construct(
        name=tool.name,
        id=tool.id,
        server=tool.server,
        server_label=tool.server_label,
        native=tool.native,
        title=tool.title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        shown=tool.shown,
        why=tool.why,
        asks=tool.asks,
    )
