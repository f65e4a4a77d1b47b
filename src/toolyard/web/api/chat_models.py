"""Request and response models of chats, their events and their tools."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolyard.agents.chat.storable_values import is_storable_json
from toolyard.types.chat import Kind
from toolyard.types.registry import PLAIN_TEXT_PATTERN
from toolyard.web.api import base as api

__all__ = [
    "ChatPage",
    "ChatResponse",
    "ChatTool",
    "ChatTools",
    "ChatTurn",
    "ChatTurns",
    "CreateChatRequest",
    "EventPage",
    "EventResponse",
    "MessageRequest",
    "ReplyRequest",
    "RunToolRequest",
    "TurnResponse",
    "UpdateChatRequest",
    "VisibleTool",
]

_NO_NUL_PATTERN = r"^[^\x00]*$"
"""PostgreSQL cannot store NUL characters."""

ChatTitle = Annotated[
    str, Field(min_length=1, max_length=200, pattern=PLAIN_TEXT_PATTERN, examples=["Retries in the client"])
]
AgentId = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_NUL_PATTERN, examples=["planner"])]
ModelId = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_NUL_PATTERN, examples=["fast"])]
ToolChoice = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=500, pattern=_NO_NUL_PATTERN)]],
    Field(max_length=5_000, description="Ids of the tools to use, as listed by `…/tools`."),
]


def _require_valid_json(fields: dict[str, Any]) -> dict[str, Any]:
    if not is_storable_json(fields):
        raise ValueError("contains a value that is not valid in JSON: an unpaired surrogate or a huge number")
    return fields


JsonFields = Annotated[dict[str, Any], AfterValidator(_require_valid_json)]


# Requests.


class CreateChatRequest(api.RequestModel, schema="ChatGiven"):
    """A chat to create."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"agent": "planner", "model": "fast"}]})

    title: ChatTitle | None = Field(
        default=None, description="Title; null to derive it from the first message."
    )
    agent: AgentId | None = Field(default=None, description="Agent id; null for no agent and all tools.")
    model: ModelId | None = Field(
        default=None, description="Model id; null for the model of the agent, or the default."
    )
    choice: ToolChoice | None = Field(
        default=None, description="Ids of the tools to use; null for all tools."
    )


class UpdateChatRequest(CreateChatRequest, schema="ChatChanges"):
    """Changes to a chat; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"title": "Retries", "choice": None}]})

    title: ChatTitle | None = Field(default=None, description="New title; null leaves it unchanged.")


class MessageRequest(api.RequestModel, schema="MessageGiven"):
    """A message to the model."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Which issues are about retries?"}]})

    text: str = Field(min_length=1, max_length=200_000, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")
    attachments: list[Annotated[str, Field(min_length=1, max_length=128, pattern=_NO_NUL_PATTERN)]] = Field(
        default_factory=list[str], max_length=100, description="Ids of uploaded attachments."
    )


class RunToolRequest(api.RequestModel, schema="RunGiven"):
    """A tool call by the user, without a model."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "demo_weekday", "arguments": {"date": "2026-07-28"}}]}
    )

    name: str = Field(
        min_length=1,
        max_length=64,
        pattern=_NO_NUL_PATTERN,
        description="Name of the tool, as listed by `…/tools`.",
    )
    arguments: JsonFields = Field(default_factory=dict[str, Any])


class ReplyRequest(api.RequestModel, schema="ReplyGiven"):
    """Reply to a question from a server."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"action": "accept", "content": {"city": "Oslo"}}]}
    )

    action: Literal["accept", "decline", "cancel"]
    content: JsonFields | None = Field(default=None, description="Fields of the form, if accepted.")


# Responses.


class ChatResponse(api.ApiModel, schema="ChatShown"):
    """A chat."""

    id: str
    title: str
    agent: str | None
    model: str | None
    choice: list[str] | None
    state: Literal["idle", "running", "waiting"] = Field(
        description="`waiting` means that the turn needs an answer from you."
    )
    turn: int = Field(
        description="Sequence number of the event that began the last turn of the chosen branch; 0 if there "
        "was none."
    )
    last: int = Field(description="Sequence number of the last event.")
    created_at: datetime
    updated_at: datetime


class ChatPage(api.ItemList[ChatResponse]):
    """Chats, last changed first."""

    next_before: str | None = Field(description="Value of `before` for the next page; null on the last page.")
    notice: str | None = Field(
        default=None, description="Warning when the storage quota for chats is almost used up."
    )


class TurnResponse(api.ApiModel, schema="TurnBegun"):
    """A turn that continues in the background."""

    turn: int = Field(description="Sequence number of the event that began the turn.")
    stream: str = Field(description="Path of the turn's event stream, from its first event.")


class ChatTurn(BaseModel):
    """A turn of the chosen branch of a chat."""

    turn: int = Field(description="Sequence number of the event that began the turn.")
    parent: int = Field(description="Number of the turn that it follows; 0 for a first one.")
    alternatives: list[int] = Field(
        description="Numbers of the turns that follow the same one, in order, including this one."
    )


class ChatTurns(api.ItemList[ChatTurn]):
    """The turns of the chosen branch, in order."""


class EventResponse(api.ApiModel, schema="EventShown"):
    """An event of a chat, such as a message or a call."""

    seq: int = Field(description="Sequence number. Increases, with gaps.")
    turn: int = Field(description="Sequence number of the event that began the turn.")
    kind: Kind
    at: datetime
    part: str = Field(
        description="Message or call that a streamed piece (`text`, `reasoning`, `progress`) belongs to. A "
        "later event with the same turn and part replaces the pieces, which are deleted."
    )
    parent: int | None = Field(
        default=None,
        description="Turn that this one follows, 0 for a first one. Only in the first event of a turn; null "
        "there, too, if an earlier version stored it, and it follows the turn before it.",
    )
    body: dict[str, Any] = Field(description="Content of the event. docs/api.md describes it for each kind.")


class EventPage(api.ItemList[EventResponse]):
    """Events in order."""

    next_after: int | None = Field(description="Value of `after` for the next page; null on the last page.")


class VisibleTool(api.ApiModel):
    """A tool and its visibility to a model. Base class of the tools of chats and agents."""

    name: str = Field(examples=["github_search"])
    id: str = Field(examples=["github/search"])
    server: str
    server_label: str
    native: bool = Field(description="Whether it is a built-in tool of Toolyard.")
    title: str | None
    description: str
    shown: bool = Field(description="Whether the model can use the tool.")
    asks: bool = Field(description="Whether each call needs approval.")
    why: str = Field(description="Reason why the tool is hidden or needs approval; empty if neither applies.")


class ChatTool(VisibleTool):
    """A tool and its visibility to the model of a chat."""

    input_schema: dict[str, Any]


class ChatTools(api.ItemList[ChatTool]):
    """The tools of a chat."""
