"""A turn's conversation with its model: what it is sent, and what came back, as events.

Imports pydantic-ai, so this module is loaded with the first model that is used.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.tools import ToolDefinition

from toolyard.agents.chat.context_window import ContextWindow
from toolyard.agents.chat.event_writer import EventWriter
from toolyard.agents.chat.model_history import (
    InputModalities,
    build_messages,
    build_messages_by_turn,
    model_message_event,
    normalize_response,
    usage_event,
)
from toolyard.agents.chat.sanitize import parse_tool_arguments
from toolyard.agents.models.available_models import PickedModel
from toolyard.catalog.schemas.provider_schema import ProviderApi, build_provider_tool
from toolyard.catalog.token_estimate import estimate_definition_tokens, estimate_tokens
from toolyard.types.agent import Agent
from toolyard.types.chat import ChatEvent, Kind, NewChatEvent
from toolyard.types.tool import Definition

__all__ = ["ModelAnswer", "ModelConversation", "RequestedCall"]

_WINDOW_FILL_RATIO = 0.75
"""Of a model's window, what is filled: tokens are estimated, and the answer needs some of it."""
_OMISSION_NOTE_PREFIX = "this chat is longer than the model takes at once"
_MAX_CALLS_PER_ANSWER = 256
"""Calls of one answer that are looked at. More than that is no plan but a fault."""
_PROVIDER_APIS = {
    "anthropic": ProviderApi.ANTHROPIC,
    "google": ProviderApi.GEMINI,
    "openai-responses": ProviderApi.OPENAI_RESPONSES,
}


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that the model asks for. The arguments are a text where they are no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A whole answer: its events, and the calls that follow."""

    events: tuple[NewChatEvent, ...]
    calls: tuple[RequestedCall, ...]


class ModelConversation:
    """Asks one model, again and again, with the same tools and the same beginning."""

    def __init__(
        self,
        picked_model: PickedModel,
        tools: Mapping[str, Definition],
        agent: Agent | None,
        earlier_events: Iterable[ChatEvent],
        kept_data_by_seq: Mapping[int, bytes],
        repeated_turn: int | None,
        window_tokens: int,
    ) -> None:
        """``earlier`` are the events of the turns before this one, ``again`` is the turn that it repeats.
        ``window`` is how many tokens the model takes at once."""
        self._picked_model = picked_model
        self._agent = agent
        self._modalities = InputModalities(picked_model.choice.sees, picked_model.choice.hears)
        self._provider_api = _PROVIDER_APIS.get(picked_model.choice.provider, ProviderApi.OPENAI)
        self._tools = {
            name: _build_tool_definition(name, tool, self._provider_api) for name, tool in tools.items()
        }
        taken = sum(map(estimate_definition_tokens, tools.values()))
        taken += 0 if agent is None else estimate_tokens(agent.prompt)
        room = max(int(window_tokens * _WINDOW_FILL_RATIO) - taken, window_tokens // 4)
        self._window = ContextWindow(
            build_messages_by_turn(
                earlier_events, kept_data_by_seq, self._modalities, repeated_turn=repeated_turn
            ),
            room,
        )
        self._window_tokens = window_tokens

    def add_tool(self, tool: Definition) -> None:
        """Show one more tool from now on. All others stay where they are: prompts are cached."""
        if tool.name not in self._tools:
            shown = {**self._tools, tool.name: _build_tool_definition(tool.name, tool, self._provider_api)}
            self._tools = {name: shown[name] for name in sorted(shown)}

    def next_messages(
        self, turn_events: Sequence[ChatEvent], kept_data_by_seq: Mapping[int, bytes]
    ) -> list[ModelMessage]:
        """What the model is sent after these events of the turn."""
        return self._window.fit_messages(build_messages(turn_events, kept_data_by_seq, self._modalities))

    def build_omission_notes(self, turn_events: Iterable[ChatEvent]) -> list[NewChatEvent]:
        """A note that not all is sent, where it is not, and no note in the turn says so."""
        noted = any(
            event.kind is Kind.NOTE and str(event.body.get("text")).startswith(_OMISSION_NOTE_PREFIX)
            for event in turn_events
        )
        what: list[str] = []
        if turns := self._window.omitted_turns:
            what.append(
                "its first turn is not sent" if turns == 1 else f"its first {turns:,} turns are not sent"
            )
        if self._window.shortened_results:
            what.append("long results of tools are shortened")
        if noted or not what:
            return []
        text = f"{_OMISSION_NOTE_PREFIX} ({self._window_tokens:,} tokens): {' and '.join(what)}"
        hint = "begin another chat for something else; if the model takes more, say so with context"
        return [NewChatEvent(Kind.NOTE, {"text": text, "hint": hint})]

    async def ask(
        self,
        messages: Sequence[ModelMessage],
        used_call_ids: Container[str],
        part: str,
        event_writer: EventWriter,
    ) -> ModelAnswer:
        """The next answer in a turn. Its pieces are written down as they come. Raises a ModelError."""
        agent = self._agent
        asking = self._picked_model.stream(
            messages,
            list(self._tools.values()),
            instructions=(agent.prompt or None) if agent is not None else None,
            temperature=None if agent is None else agent.temperature,
        )
        async with asking as stream:
            async for piece in stream:
                kind = Kind.TEXT if piece.kind == "text" else Kind.REASONING
                event_writer.add_piece(kind, part, piece.delta)
            response, cost = stream.response(), stream.cost
        whole = normalize_response(response, used_call_ids, _MAX_CALLS_PER_ANSWER)
        events = [model_message_event(whole, part), usage_event(whole, cost), *_build_finish_notes(response)]
        return ModelAnswer(tuple(events), tuple(_parse_requested_calls(whole)))


def _build_tool_definition(name: str, tool: Definition, provider_api: ProviderApi) -> ToolDefinition:
    """A tool for the model. Its schema is made fit here, so that no library has to guess."""
    made = build_provider_tool(tool, name, provider_api).tool
    body: Mapping[str, Any] = made.get("function", made)
    schema: Any = body["input_schema"] if "input_schema" in body else body["parameters"]
    return ToolDefinition(
        name=name, parameters_json_schema=schema, description=body["description"], strict=False
    )


def _parse_requested_calls(response: ModelResponse) -> Iterable[RequestedCall]:
    for part in response.tool_calls:
        found = parse_tool_arguments(part.args)
        raw = part.args if isinstance(part.args, str) else str(part.args)
        yield RequestedCall(part.tool_call_id, part.tool_name, raw if found is None else found)


def _build_finish_notes(response: ModelResponse) -> Iterable[NewChatEvent]:
    """What a person should know about how the answer ended."""
    if len(response.tool_calls) > _MAX_CALLS_PER_ANSWER:
        text = (
            f"the model asked for {len(response.tool_calls):,} calls; the first "
            f"{_MAX_CALLS_PER_ANSWER} were taken"
        )
        yield NewChatEvent(Kind.NOTE, {"text": text, "hint": None})
    if response.finish_reason == "length":
        hint = "ask it to go on; or raise what the model may write"
        yield NewChatEvent(
            Kind.NOTE, {"text": "the answer ends where the model may write no more", "hint": hint}
        )
    elif response.finish_reason == "content_filter":
        text = "the provider's content filter ended the answer"
        yield NewChatEvent(Kind.NOTE, {"text": text, "hint": "say it in other words"})
