"""Chats, their append-only log of events, and the tree of their turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cache, cached_property
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from toolyard.types.tool import JsonObject

__all__ = [
    "ATTACHMENT_ID_PREFIX",
    "TRANSIENT_KINDS",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Attachment",
    "BranchSwitch",
    "CallProgress",
    "CallRequest",
    "CallResult",
    "Chat",
    "ChatEvent",
    "EventData",
    "Fork",
    "Kind",
    "ManualCall",
    "ModelMessage",
    "ModelUsage",
    "NewChatEvent",
    "Note",
    "NoteTopic",
    "Question",
    "QuestionAnswer",
    "ReasoningDelta",
    "ResultMedia",
    "TextDelta",
    "TurnEnd",
    "TurnOutcome",
    "TurnState",
    "TurnTree",
    "UnknownEvent",
    "UserMessage",
]


_T = TypeVar("_T")

ATTACHMENT_ID_PREFIX = "f"
"""First letter of the ids of attachments, in which they differ from the handles of results."""
_OMITTED_DEFAULT: Mapping[str, Any] = {"is_default_omitted": True}
"""Metadata of a field that was added later: its default is not stored, as in events of earlier versions."""


class TurnState(StrEnum):
    """State of a chat's last turn."""

    IDLE = "idle"
    """Finished: the user may send a message."""
    RUNNING = "running"
    """One process runs the turn, the holder of the claim."""
    WAITING = "waiting"
    """Suspended until the user answers an approval. No process runs it, so it survives restarts."""


class Kind(StrEnum):
    """Kind of an event. Values are stored and published, so they stay as they are.

    A kind that another version of Toolyard stored is a member without a name.
    """

    USER = "user"
    RUN = "run"
    TEXT = "text"
    REASONING = "reasoning"
    MODEL_MESSAGE = "said"
    CALL = "call"
    PROGRESS = "progress"
    APPROVAL_REQUEST = "ask"
    APPROVAL_ANSWER = "answer"
    QUESTION = "question"
    QUESTION_ANSWER = "answered"
    RESULT = "result"
    USAGE = "usage"
    NOTE = "note"
    END = "end"
    TITLE = "title"
    SWITCH = "switch"

    @classmethod
    def _missing_(cls, value: object) -> Kind | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member


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


# Bodies of events. The names of the fields are stored and published as the keys of ``body``.


@dataclass(frozen=True, slots=True)
class Attachment:
    """Picture or text file of a user's message. Its content is stored apart."""

    id: str = ""
    name: str = ""
    mime: str = ""
    size: int = 0
    origin: str = ""
    """``prompt`` or ``resource`` of a server; empty for a file of the user."""
    server: str = ""
    """Display name of that server."""

    @property
    def is_picture(self) -> bool:
        """Whether it is a picture; otherwise it is a text file."""
        return self.mime.startswith("image/")


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A turn begins with a message. ``model`` and ``agent`` are the ids in use."""

    event_kind: ClassVar[Kind] = Kind.USER
    text: str = ""
    model: str | None = None
    agent: str | None = None
    again: int | None = None
    """Number of the turn that this one is an alternative to: a retry, or an edited message."""
    attachments: tuple[Attachment, ...] = field(default=(), metadata=_OMITTED_DEFAULT)


@dataclass(frozen=True, slots=True)
class ManualCall:
    """A turn begins in which the user calls a tool directly, without a model."""

    event_kind: ClassVar[Kind] = Kind.RUN
    name: str = ""
    arguments: JsonObject = field(default_factory=dict[str, Any])
    again: int | None = None
    """Number of the turn that this one is an alternative to."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Fragment of the model's text. Part: the step, as ``step-3``."""

    event_kind: ClassVar[Kind] = Kind.TEXT
    delta: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Fragment of the model's reasoning. Part: the step."""

    event_kind: ClassVar[Kind] = Kind.REASONING
    delta: str = ""


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """Complete message of the model; replaces its fragments.

    Payload: the message in the provider's format, to be sent back in the next request.
    """

    event_kind: ClassVar[Kind] = Kind.MODEL_MESSAGE
    text: str = ""
    reasoning: str = ""
    model: str | None = None
    """Name reported by the provider."""
    calls: int = 0
    """Number of tool calls that follow."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A tool is called."""

    event_kind: ClassVar[Kind] = Kind.CALL
    id: str = ""
    name: str = ""
    """Exposed name."""
    tool: str | None = None
    """Canonical id; None for an unknown tool."""
    server: str = ""
    """Display name of the server."""
    native: bool = False
    """Whether it is a built-in tool."""
    title: str | None = None
    arguments: JsonObject | str = field(default_factory=dict[str, Any])
    """A string if the model did not send a JSON object."""


@dataclass(frozen=True, slots=True)
class CallProgress:
    """Progress of a call. Part: the call's id."""

    event_kind: ClassVar[Kind] = Kind.PROGRESS
    id: str = ""
    """Id of the call."""
    progress: float = 0
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call needs an approval."""

    event_kind: ClassVar[Kind] = Kind.APPROVAL_REQUEST
    id: str = ""
    """Id of the call."""
    approval: str = ""
    """Id of the approval."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """An approval was given or denied."""

    event_kind: ClassVar[Kind] = Kind.APPROVAL_ANSWER
    id: str = ""
    """Id of the call."""
    approval: str = ""
    yes: bool = False
    remembered: str | None = None
    """Description of the standing approval."""
    unattended: bool = field(default=False, metadata=_OMITTED_DEFAULT)
    """The call was refused because nobody could be asked."""


@dataclass(frozen=True, slots=True)
class Question:
    """A server requests input from the user during a call."""

    event_kind: ClassVar[Kind] = Kind.QUESTION
    id: str = ""
    call: str | None = None
    """Id of the call; None if it is not known which one it is."""
    server: str = ""
    kind: str = ""
    """``form``, ``url`` or ``sampling``."""
    message: str = ""
    schema: JsonObject | None = None
    """Schema of a form."""
    url: str | None = None
    request: str | None = None
    """Text of a sampling request, for the approval."""


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A question was answered. Payload: the content, which is meant for the server and not for display."""

    event_kind: ClassVar[Kind] = Kind.QUESTION_ANSWER
    id: str = ""
    """Id of the question."""
    action: str = "cancel"
    """``accept``, ``decline`` or ``cancel``."""


@dataclass(frozen=True, slots=True)
class ResultMedia:
    """Image, audio or file of a result."""

    kind: str = ""
    mime: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a call; replaces its progress. Payload: the complete text and the media."""

    event_kind: ClassVar[Kind] = Kind.RESULT
    id: str = ""
    """Id of the call."""
    ok: bool = False
    text: str = ""
    """First 4,000 characters of the model's view."""
    length: int = 0
    """Characters in total."""
    cause: str | None = None
    seconds: float = 0.0
    media: tuple[ResultMedia, ...] = ()
    handle: str | None = None
    reconnect: str | None = None
    """Id of the instance that needs a new sign-in."""
    stopped: bool = field(default=False, metadata=_OMITTED_DEFAULT)
    """The user stopped the turn before the call had a result. Earlier versions did not store it; a
    TurnSnapshot adds it."""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Tokens of one model request, and its cost in US dollars if known."""

    event_kind: ClassVar[Kind] = Kind.USAGE
    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | str | None = None
    window: int = field(default=0, metadata=_OMITTED_DEFAULT)
    """Size of the model's context window; 0 if it was not recorded."""
    definitions: int = field(default=0, metadata=_OMITTED_DEFAULT)
    """Estimated tokens of the tool definitions and the agent's instructions."""
    results: int = field(default=0, metadata=_OMITTED_DEFAULT)
    """Estimated tokens of the tool results that were sent."""
    history: int = field(default=0, metadata=_OMITTED_DEFAULT)
    """Estimated tokens of the other messages that were sent."""


class NoteTopic(StrEnum):
    """Subject of a note that is shown once, although its text changes."""

    META_TOOLS = "meta_tools"
    """Why the model finds tools by search."""
    OMISSIONS = "omissions"
    """Parts of the chat that are not sent to the model."""


@dataclass(frozen=True, slots=True)
class Note:
    """Notice for the user."""

    event_kind: ClassVar[Kind] = Kind.NOTE
    text: str = ""
    hint: str | None = None
    topic: str = field(default="", metadata=_OMITTED_DEFAULT)
    """A ``NoteTopic``, or empty."""


@dataclass(frozen=True, slots=True)
class ChatTitle:
    """The model wrote the title of the chat: the title, and the tokens and cost of the request."""

    event_kind: ClassVar[Kind] = Kind.TITLE
    title: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | str | None = None


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn ended. ``error`` and ``hint`` are set where there is more to say."""

    event_kind: ClassVar[Kind] = Kind.END
    why: str = ""
    """A TurnOutcome, or one that only another version of Toolyard knows."""
    error: str | None = None
    hint: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BranchSwitch:
    """The user chose another alternative. The event's turn is the last one of the branch that the chat shows
    from now on."""

    event_kind: ClassVar[Kind] = Kind.SWITCH


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a kind that only another version of Toolyard knows."""


EventData: TypeAlias = (
    UserMessage
    | ManualCall
    | TextDelta
    | ReasoningDelta
    | ModelMessage
    | CallRequest
    | CallProgress
    | ApprovalRequest
    | ApprovalAnswer
    | Question
    | QuestionAnswer
    | CallResult
    | ModelUsage
    | Note
    | TurnEnd
    | ChatTitle
    | BranchSwitch
)
"""Body of an event, by its kind."""
_ITEM_CLASSES: Mapping[str, type[Any]] = {"media": ResultMedia, "attachments": Attachment}
"""Classes of the items of lists, by the name of the field."""
_DATA_CLASSES: Mapping[Kind, type[EventData]] = {each.event_kind: each for each in get_args(EventData)}


def _encode_item(item: ResultMedia | Attachment) -> dict[str, Any]:
    if isinstance(item, Attachment) and not item.origin:
        return {"id": item.id, "name": item.name, "mime": item.mime, "size": item.size}
    return asdict(item)


def _decode_object(data_class: type[_T], body: JsonObject) -> _T:
    """Return a stored object as its class.

    Unknown keys are left out. Missing keys, and those with a value of another type, have their default.
    """
    values = {
        name: body[name] for name, types in _field_types(data_class) if type(body.get(name, ...)) in types
    }
    for name in values.keys() & _ITEM_CLASSES.keys():
        values[name] = tuple(
            _decode_object(_ITEM_CLASSES[name], cast("JsonObject", each))
            for each in cast("list[object]", values[name])
            if isinstance(each, dict)
        )
    return data_class(**values)


@cache
def _field_types(data_class: type[Any]) -> tuple[tuple[str, frozenset[Any]], ...]:
    """Return the types that the values of each field have in JSON, from the annotations."""
    hints = get_type_hints(data_class)
    return tuple((each.name, frozenset(_json_types(hints[each.name]))) for each in fields(data_class))


def _json_types(hint: Any) -> Iterator[Any]:
    if isinstance(hint, UnionType):
        for each in get_args(hint):
            yield from _json_types(each)
    elif hint is float:
        yield from (int, float)
    else:
        yield {Mapping: dict, tuple: list}.get(get_origin(hint), hint)


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
    """Number of the event that began the last turn of the chosen branch; 0: no turn yet."""
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
    payload: bytes = b""
    """Payload that pages rarely need; it is stored separately and fetched by event number."""

    @classmethod
    def from_data(cls, data: EventData, part: str = "", payload: bytes = b"") -> NewChatEvent:
        """Return an event with this body, as it is stored."""
        body: dict[str, Any] = {
            each.name: value
            for each in fields(data)
            if (value := getattr(data, each.name)) != each.default or not each.metadata
        }
        for name, value in body.items():
            if isinstance(value, tuple):
                items = cast("tuple[ResultMedia | Attachment, ...]", value)
                body[name] = [_encode_item(each) for each in items]
            elif isinstance(value, StrEnum):
                body[name] = value.value
        return cls(data.event_kind, body, part, payload)


@dataclass(frozen=True)
class ChatEvent:
    """A stored event. ``seq`` increases within the chat, with gaps where transient events were deleted."""

    chat_id: str
    seq: int
    turn: int
    """Number of the event that began the turn."""
    kind: Kind
    at: float
    body: JsonObject
    """As it is stored and published, with keys that only another version of Toolyard knows."""
    part: str = ""
    has_payload: bool = False
    """Whether a payload is stored."""
    parent: int | None = None
    """In the first event of a turn: the turn that it follows, 0 if it is a first one. None if an earlier
    version stored it: it then follows the turn before it."""

    @cached_property
    def data(self) -> EventData | UnknownEvent:
        """The body as this version of Toolyard reads it. Decoded once for all pages that show the event."""
        return _decode_object(_DATA_CLASSES.get(self.kind, UnknownEvent), self.body)


@dataclass(frozen=True, slots=True)
class Fork:
    """Place of a new turn that is an alternative to an existing one."""

    parent: int
    """Turn that the new one follows; 0: none."""
    last: int
    """Last turn of the branch from which the user forked. If the chat shows another one by now, the request
    is refused."""


@dataclass(frozen=True, slots=True)
class TurnTree:
    """The turns of a chat by their numbers, in the order in which they began."""

    parents: Mapping[int, int] = field(default_factory=lambda: MappingProxyType(dict[int, int]()))
    """The turn that each one follows; 0: it is a first one."""

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, int | None]]) -> TurnTree:
        """Build the tree from numbers and parents, in order.

        A turn without a parent is one of an earlier version, and follows the turn before it.
        """
        parents: dict[int, int] = {}
        previous = 0
        for turn, parent in rows:
            parents[turn] = previous if parent is None else parent
            previous = turn
        return cls(parents)

    def branch(self, last: int) -> list[int]:
        """Return the turns from the first one to this one."""
        turns: list[int] = []
        # A parent is always older, also in a damaged database, in which this would otherwise never end.
        while last in self.parents and (not turns or last < turns[-1]):
            turns.append(last)
            last = self.parents[last]
        return turns[::-1]

    def alternatives(self, turn: int) -> list[int]:
        """Return the turns that follow the same one, including this one."""
        parent = self.parents.get(turn)
        return [each for each, other in self.parents.items() if other == parent]

    def newest_end(self, turn: int) -> int:
        """Return the newest turn that follows this one directly or indirectly; itself if there is none."""
        return self.subtree(turn)[-1]

    def subtree(self, turn: int) -> list[int]:
        """Return a turn and all that follow it directly or indirectly, in order."""
        found = {turn: None}
        for each, parent in self.parents.items():
            if parent in found:
                found[each] = None
        return list(found)

    def successor(self, parent: int, last: int) -> int | None:
        """Return the turn of the branch to ``last`` that follows another one, or is shown in place of that
        one or of a turn that it follows; None if there is none."""
        following = (turn for turn in self.branch(last) if self.parents[turn] == parent)
        return next(following, None) or self.replacement(parent, last)

    def replacement(self, turn: int, last: int) -> int | None:
        """Return the turn of the branch to ``last`` that is shown in place of another one, or of a turn that
        the other one follows; None if the branch ends before it."""
        shown = self.branch(last)
        for each in reversed(self.branch(turn)):
            if (found := next((t for t in self.alternatives(each) if t in shown), None)) is not None:
                return found
        return None
