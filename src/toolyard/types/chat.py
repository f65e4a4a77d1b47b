"""Chats and their append-only log of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.tool import JsonObject

__all__ = ["TRANSIENT_KINDS", "Chat", "ChatEvent", "Kind", "NewChatEvent", "TurnOutcome", "TurnState"]


class TurnState(StrEnum):
    """State of a chat's last turn."""

    IDLE = "idle"
    """Finished: the user may send a message."""
    RUNNING = "running"
    """One process runs the turn, the holder of the claim."""
    WAITING = "waiting"
    """Suspended until the user answers an approval. No process runs it, so it survives restarts."""


class Kind(StrEnum):
    """Kind of an event. Each lists the keys of ``body``, which pages receive unchanged.

    Values are stored and published, so they stay as they are.
    """

    USER = "user"
    """A turn begins with a message. ``text``; ``model`` and ``agent`` (ids or null) in use; ``again``: number
    of the turn that this one replaces (which is no longer sent to the model), or null."""
    RUN = "run"
    """A turn begins in which the user calls a tool directly, without a model. ``name``, ``arguments``,
    ``again`` (as above)."""
    TEXT = "text"
    """Fragment of the model's text. ``delta``. Part: the step, as ``step-3``."""
    REASONING = "reasoning"
    """Fragment of the model's reasoning. ``delta``. Part: the step."""
    MODEL_MESSAGE = "said"
    """Complete message of the model; replaces its fragments. ``text``, ``reasoning``, ``model`` (name
    reported by the provider), ``calls`` (number of tool calls that follow). Payload: the message in the
    provider's format, to be sent back in the next request."""
    CALL = "call"
    """A tool is called. ``id``, ``name`` (exposed), ``tool`` (canonical id; null for an unknown tool),
    ``server`` (display name), ``native`` (whether it is a built-in tool), ``title``, ``arguments`` (an
    object; a string if the model sent invalid JSON)."""
    PROGRESS = "progress"
    """Progress of a call. ``id`` of the call, ``progress``, ``total`` (or null), ``message`` (or null). Part:
    the call's id."""
    APPROVAL_REQUEST = "ask"
    """A call needs an approval. ``id`` of the call, ``approval`` (its id), ``reason``."""
    APPROVAL_ANSWER = "answer"
    """An approval was given or denied. ``id`` of the call, ``approval``, ``yes``, ``remembered`` (description
    of the standing approval, or null)."""
    QUESTION = "question"
    """A server requests input from the user during a call. ``id`` of the question, ``call`` (id of the call,
    or null), ``server``, ``kind`` (``form``, ``url`` or ``sampling``), ``message``, ``schema`` (of a form),
    ``url``, ``request`` (the text of a sampling request, for the approval)."""
    QUESTION_ANSWER = "answered"
    """A question was answered. ``id`` of the question, ``action``: ``accept``, ``decline``, ``cancel``; never
    the content."""
    RESULT = "result"
    """Result of a call; replaces its progress. ``id`` of the call, ``ok``, ``text`` (first 4,000 characters
    of the model's view), ``length`` (characters in total), ``cause`` (or null), ``seconds``, ``media`` (list
    of ``kind``, ``mime``, ``size``), ``handle`` (or null), ``reconnect`` (id of the instance that needs a new
    sign-in, or null). Payload: the complete text and the media."""
    USAGE = "usage"
    """Usage of one model request.

    ``input``, ``output``, ``cached`` tokens, ``cost`` in US dollars or null.
    """
    NOTE = "note"
    """Notice for the user. ``text``, ``hint`` (or null)."""
    END = "end"
    """The turn ended. ``why`` (a TurnOutcome), ``error`` and ``hint`` (or null), ``seconds``."""


class TurnOutcome(StrEnum):
    """Reason why a turn ended."""

    DONE = "done"
    """The model finished its answer, or the tool called by the user returned."""
    STOPPED = "stopped"
    """The user stopped it."""
    FAILED = "failed"
    """The model request failed; ``error`` is the reason."""
    LIMIT = "limit"
    """A limit was reached: number of steps, repetitions of the same call, token budget."""
    INTERRUPTED = "interrupted"
    """The process that ran the turn ended."""


TRANSIENT_KINDS = frozenset({Kind.TEXT, Kind.REASONING, Kind.PROGRESS})
"""Events that a later event replaces: fragments of a message, progress of a call."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation of one user."""

    id: str
    owner: str
    """Id of the user."""
    title: str
    created_at: float
    updated_at: float
    agent: str | None = None
    """Id of the agent; None: no agent, all tools."""
    model: str | None = None
    """None: the agent's model, else the default from the settings."""
    choice: tuple[str, ...] | None = None
    """Canonical ids of the tools selected by the user; None: no selection, all tools."""
    state: TurnState = TurnState.IDLE
    turn: int = 0
    """Number of the event that began the last turn; 0: no turn yet."""
    last: int = 0
    """Number of the last event."""


@dataclass(frozen=True, slots=True)
class NewChatEvent:
    """An event before it is stored and numbered."""

    kind: Kind
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    part: str = ""
    """Group to which a transient event belongs. Storing another kind of event with the same part deletes
    the transient ones in the same transaction."""
    kept: bytes = b""
    """Payload that pages rarely need; it is stored separately and fetched by event number."""


@dataclass(frozen=True, slots=True)
class ChatEvent:
    """A stored event. ``seq`` increases within the chat, with gaps where transient events were deleted."""

    chat_id: str
    seq: int
    turn: int
    """Number of the event that began the turn."""
    kind: Kind
    at: float
    body: JsonObject
    part: str = ""
    has_kept: bool = False
    """Whether a payload is stored."""
