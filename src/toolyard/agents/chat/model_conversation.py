"""A turn's conversation with its model: what it is sent, and what came back, as events.

Imports pydantic-ai, so this module is loaded with the first model that is used.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.tools import ToolDefinition

from toolyard.agents.chat.context_window import Window
from toolyard.agents.chat.event_writer import Scribe
from toolyard.agents.chat.model_history import (
    Senses,
    messages_of,
    said_event,
    sendable,
    turns_of,
    usage_event,
)
from toolyard.agents.chat.sanitize import as_object
from toolyard.agents.models.available_models import PickedModel
from toolyard.catalog.schemas.provider_schema import Provider, view
from toolyard.catalog.token_estimate import estimate_definition, estimate_tokens
from toolyard.types.agent import Agent
from toolyard.types.chat import Event, Kind, NewEvent
from toolyard.types.tool import Definition

__all__ = ["Asked", "Spoken", "Talk"]

_FILLED = 0.75
"""Of a model's window, what is filled: tokens are estimated, and the answer needs some of it."""
_LEFT_OUT = "this chat is longer than the model takes at once"
_MOST_CALLS = 256
"""Calls of one answer that are looked at. More than that is no plan but a fault."""
_VIEWS = {
    "anthropic": Provider.ANTHROPIC,
    "google": Provider.GEMINI,
    "openai-responses": Provider.OPENAI_RESPONSES,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that the model asks for. The arguments are a text where they are no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Spoken:
    """A whole answer: its events, and the calls that follow."""

    events: tuple[NewEvent, ...]
    calls: tuple[Asked, ...]


class Talk:
    """Asks one model, again and again, with the same tools and the same beginning."""

    def __init__(
        self,
        picked: PickedModel,
        tools: Mapping[str, Definition],
        agent: Agent | None,
        earlier: Iterable[Event],
        kept: Mapping[int, bytes],
        again: int | None,
        window: int,
    ) -> None:
        """``earlier`` are the events of the turns before this one, ``again`` is the turn that it repeats.
        ``window`` is how many tokens the model takes at once."""
        self._picked = picked
        self._agent = agent
        self._senses = Senses(picked.choice.sees, picked.choice.hears)
        self._form = _VIEWS.get(picked.choice.provider, Provider.OPENAI)
        self._tools = {name: _defined(name, tool, self._form) for name, tool in tools.items()}
        taken = sum(map(estimate_definition, tools.values()))
        taken += 0 if agent is None else estimate_tokens(agent.prompt)
        room = max(int(window * _FILLED) - taken, window // 4)
        self._window = Window(turns_of(earlier, kept, self._senses, again=again), room)
        self._tokens = window

    def also(self, tool: Definition) -> None:
        """Show one more tool from now on. All others stay where they are: prompts are cached."""
        if tool.name not in self._tools:
            shown = {**self._tools, tool.name: _defined(tool.name, tool, self._form)}
            self._tools = {name: shown[name] for name in sorted(shown)}

    def messages(self, turn: Sequence[Event], kept: Mapping[int, bytes]) -> list[ModelMessage]:
        """What the model is sent after these events of the turn."""
        return self._window.of(messages_of(turn, kept, self._senses))

    def left_out(self, turn: Iterable[Event]) -> list[NewEvent]:
        """A note that not all is sent, where it is not, and no note in the turn says so."""
        noted = any(
            event.kind is Kind.NOTE and str(event.body.get("text")).startswith(_LEFT_OUT) for event in turn
        )
        what: list[str] = []
        if turns := self._window.left_out:
            what.append(
                "its first turn is not sent" if turns == 1 else f"its first {turns:,} turns are not sent"
            )
        if self._window.shortened:
            what.append("long results of tools are shortened")
        if noted or not what:
            return []
        text = f"{_LEFT_OUT} ({self._tokens:,} tokens): {' and '.join(what)}"
        hint = "begin another chat for something else; if the model takes more, say so with context"
        return [NewEvent(Kind.NOTE, {"text": text, "hint": hint})]

    async def ask(
        self, messages: Sequence[ModelMessage], used: Container[str], part: str, scribe: Scribe
    ) -> Spoken:
        """The next answer in a turn. Its pieces are written down as they come. Raises a ModelError."""
        agent = self._agent
        asking = self._picked.stream(
            messages,
            list(self._tools.values()),
            instructions=(agent.prompt or None) if agent is not None else None,
            temperature=None if agent is None else agent.temperature,
        )
        async with asking as stream:
            async for piece in stream:
                kind = Kind.TEXT if piece.kind == "text" else Kind.REASONING
                scribe.piece(kind, part, piece.delta)
            response, cost = stream.response(), stream.cost
        whole = sendable(response, used, _MOST_CALLS)
        events = [said_event(whole, part), usage_event(whole, cost), *_notes(response)]
        return Spoken(tuple(events), tuple(_asked(whole)))


def _defined(name: str, tool: Definition, form: Provider) -> ToolDefinition:
    """A tool for the model. Its schema is made fit here, so that no library has to guess."""
    made = view(tool, name, form).tool
    body: Mapping[str, Any] = made.get("function", made)
    schema: Any = body["input_schema"] if "input_schema" in body else body["parameters"]
    return ToolDefinition(
        name=name, parameters_json_schema=schema, description=body["description"], strict=False
    )


def _asked(response: ModelResponse) -> Iterable[Asked]:
    for part in response.tool_calls:
        found = as_object(part.args)
        raw = part.args if isinstance(part.args, str) else str(part.args)
        yield Asked(part.tool_call_id, part.tool_name, raw if found is None else found)


def _notes(response: ModelResponse) -> Iterable[NewEvent]:
    """What a person should know about how the answer ended."""
    if len(response.tool_calls) > _MOST_CALLS:
        text = f"the model asked for {len(response.tool_calls):,} calls; the first {_MOST_CALLS} were taken"
        yield NewEvent(Kind.NOTE, {"text": text, "hint": None})
    if response.finish_reason == "length":
        hint = "ask it to go on; or raise what the model may write"
        yield NewEvent(Kind.NOTE, {"text": "the answer ends where the model may write no more", "hint": hint})
    elif response.finish_reason == "content_filter":
        text = "the provider's content filter ended the answer"
        yield NewEvent(Kind.NOTE, {"text": text, "hint": "say it in other words"})
