"""A chat: what was said and done in it, as events that are appended and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolyard.types.tool import JsonObject

__all__ = ["TRANSIENT_KINDS", "Chat", "ChatEvent", "Kind", "NewChatEvent", "TurnOutcome", "TurnState"]


class TurnState(StrEnum):
    """What a chat's last turn is doing."""

    IDLE = "idle"
    """Nothing: the person may write."""
    RUNNING = "running"
    """One process works on it, the one that holds the claim."""
    WAITING = "waiting"
    """Nobody works on it: it waits for a person's approval, if need be through restarts."""


class Kind(StrEnum):
    """What an event says. Its ``body`` has the keys named here; the page gets exactly that."""

    USER = "user"
    """A turn begins. ``text``; ``model`` and ``agent`` (ids or null) that were in force; ``again``: the
    number of the turn that it is in place of (a model is told nothing of that one any more), or null."""
    RUN = "run"
    """A turn begins in which the person calls a tool themself, without a model. ``name``, ``arguments``,
    ``again`` (as above)."""
    TEXT = "text"
    """A piece of what the model says. ``delta``. Part: the step, as ``step-3``."""
    REASONING = "reasoning"
    """A piece of what the model thinks. ``delta``. Part: the step."""
    MODEL_MESSAGE = "said"
    """A model's whole answer, in place of its pieces. ``text``, ``reasoning``, ``model`` (the name that the
    provider gives), ``calls`` (how many follow). Kept aside: the answer as the provider wants it back."""
    CALL = "call"
    """A tool is called. ``id``, ``name`` (exposed), ``tool`` (canonical id; null where there is none such),
    ``server`` (label for people), ``native`` (one of our own), ``title``, ``arguments`` (an object; a string
    where the model sent no JSON)."""
    PROGRESS = "progress"
    """``id`` of the call, ``progress``, ``total`` (or null), ``message`` (or null). Part: the call's id."""
    APPROVAL_REQUEST = "ask"
    """A call needs an approval. ``id`` of the call, ``approval`` (its id), ``reason``."""
    APPROVAL_ANSWER = "answer"
    """It was answered. ``id`` of the call, ``approval``, ``yes``, ``remembered`` (words, or null)."""
    QUESTION = "question"
    """A server asks the person something in the middle of a call. ``id`` of the question, ``call`` (id of the
    call, or null), ``server``, ``kind`` (``form``, ``url`` or ``sampling``), ``message``, ``schema`` (of a
    form), ``url``, ``request`` (the text of a sampling request, for the approval)."""
    QUESTION_ANSWER = "answered"
    """``id`` of the question, ``action``: ``accept``, ``decline``, ``cancel``; never the content."""
    RESULT = "result"
    """What a call came to, in place of its progress. ``id`` of the call, ``ok``, ``text`` (what a model gets,
    its first 4,000 characters), ``length`` (characters of the whole), ``cause`` (or null), ``seconds``,
    ``media`` (list of ``kind``, ``mime``, ``size``), ``handle`` (or null), ``reconnect`` (id of the instance
    that must be signed in to again, or null). Kept aside: the whole text and the media."""
    USAGE = "usage"
    """Of one model request. ``input``, ``output``, ``cached`` tokens, ``cost`` in US dollars or null."""
    NOTE = "note"
    """Something that the person should know. ``text``, ``hint`` (or null)."""
    END = "end"
    """The turn is over. ``why`` (an Ending), ``error`` and ``hint`` (or null), ``seconds``."""


class TurnOutcome(StrEnum):
    """Why a turn is over."""

    DONE = "done"
    """The model has answered, or the tool that the person called has."""
    STOPPED = "stopped"
    """The person stopped it."""
    FAILED = "failed"
    """The model could not be asked; ``error`` says why."""
    LIMIT = "limit"
    """A guard ended it: steps, the same call again and again, the token budget."""
    INTERRUPTED = "interrupted"
    """The process that worked on it is gone."""


TRANSIENT_KINDS = frozenset({Kind.TEXT, Kind.REASONING, Kind.PROGRESS})
"""Events that are worth something only until the event comes that stands in their place."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation of one person."""

    id: str
    owner: str
    """The id of the user."""
    title: str
    created_at: float
    updated_at: float
    agent: str | None = None
    """The agent's id; None: no agent, all tools."""
    model: str | None = None
    """None: the agent's, else the one that the settings name."""
    choice: tuple[str, ...] | None = None
    """Canonical ids of the tools that the person ticked; None: no choice was made, all stay."""
    state: TurnState = TurnState.IDLE
    turn: int = 0
    """The number of the event that began the last turn; 0: there was none."""
    last: int = 0
    """The number of the last event."""


@dataclass(frozen=True, slots=True)
class NewChatEvent:
    """An event that is not in the database yet."""

    kind: Kind
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    part: str = ""
    """What a piece is of. An event that is no piece and names a part takes the place of its pieces: they are
    deleted with the same write."""
    kept: bytes = b""
    """What pages do not need at once, fetched by number when somebody does."""


@dataclass(frozen=True, slots=True)
class ChatEvent:
    """One event of a chat. ``seq`` counts up within the chat, with gaps where pieces stood."""

    chat_id: str
    seq: int
    turn: int
    """The number of the event that began the turn."""
    kind: Kind
    at: float
    body: JsonObject
    part: str = ""
    has_kept: bool = False
