"""A turn's conversation with its model: what it is sent, and what came back, as events.

Imports pydantic-ai, so this module is loaded with the first model that is used.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.tools import ToolDefinition

from toolyard.agents.chat.cleaning import as_object
from toolyard.agents.chat.history import (
    Senses,
    joined,
    messages_of,
    said_event,
    sendable,
    usage_event,
)
from toolyard.agents.chat.scribe import Scribe
from toolyard.agents.models.models import PickedModel
from toolyard.catalog.views.view import Provider, view
from toolyard.model.agent import Agent
from toolyard.model.chat import Event, Kind, NewEvent
from toolyard.model.tool import Definition

__all__ = ["Asked", "Spoken", "Talk"]

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
    ) -> None:
        """``earlier`` are the events of the turns before this one, ``again`` is the turn that it repeats."""
        self._picked = picked
        self._agent = agent
        self._senses = Senses(picked.choice.sees, picked.choice.hears)
        self._form = _VIEWS.get(picked.choice.provider, Provider.OPENAI)
        self._tools = {name: _defined(name, tool, self._form) for name, tool in tools.items()}
        self._earlier = messages_of(earlier, kept, self._senses, again=again)

    def also(self, tool: Definition) -> None:
        """Show one more tool from now on. All others stay where they are: prompts are cached."""
        if tool.name not in self._tools:
            shown = {**self._tools, tool.name: _defined(tool.name, tool, self._form)}
            self._tools = {name: shown[name] for name in sorted(shown)}

    async def ask(
        self,
        turn: Sequence[Event],
        kept: Mapping[int, bytes],
        used: Container[str],
        part: str,
        scribe: Scribe,
    ) -> Spoken:
        """The next answer in a turn. Its pieces are written down as they come. Raises a ModelError."""
        agent = self._agent
        asking = self._picked.stream(
            joined(self._earlier, messages_of(turn, kept, self._senses)),
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
