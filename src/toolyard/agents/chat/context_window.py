"""As much of a chat as a model takes at once: what is oldest is left out first.

What is stored stays whole. The turn that is under way and the one before it are the last to lose anything,
and what was left out once stays out until the turn is over: providers cache the beginning of a prompt.
Results that do not fit even alone are cut to the room that there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from toolyard.agents.chat.model_history import joined
from toolyard.catalog.token_estimate import estimate_tokens

__all__ = ["Window", "tokens_of"]

_GAP = "[Earlier turns of this chat are left out here: they do not fit.]"
_SHORT = 800
"""Characters of a result that stay where it is shortened."""
_CUT = 0.75
"""Of the room, what is filled again once something is left out: the next step shall not leave out more."""
_PART, _MEDIA = 8, 1_600
"""Tokens that are counted for each part, and for a picture or a sound."""


class Window:
    """What is sent of a chat, at each step of one turn."""

    def __init__(self, earlier: Iterable[Sequence[ModelMessage]], room: int) -> None:
        """``earlier`` are the messages of each turn before this one. ``room`` is how many tokens fit."""
        self._turns = [list(turn) for turn in earlier]
        self._costs = [tokens_of(turn) for turn in self._turns]
        self._room = room
        self._begun = 0
        """Messages of the turn that is under way whose results are shortened."""
        self.left_out = 0
        """Turns that are not sent at all."""
        self.shortened = 0
        """Results that are not sent whole, of those that are sent."""

    def of(self, turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages to send, with those of the turn that is under way."""
        begun, current = self._begun, tokens_of(self._current(turn))
        if sum(self._costs) + current > self._room:
            for _ in self._trimmed(turn):
                if begun != self._begun:
                    begun, current = self._begun, tokens_of(self._current(turn))
                if sum(self._costs) + current <= self._room * _CUT:
                    break
        gap = [ModelRequest([UserPromptPart(_GAP)])] if self.left_out else []
        return joined(gap, *self._turns, self._fitting(self._current(turn), sum(self._costs) + current))

    def _current(self, turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        return [*(_in_short(message) for message in turn[: self._begun]), *turn[self._begun :]]

    def _fitting(self, turn: list[ModelMessage], tokens: int) -> list[ModelMessage]:
        """The turn, with what the model has not seen yet cut where all of it together is still too much."""
        if tokens <= self._room or not (long := _long_results(turn[-1])):
            return turn
        self.shortened += long
        whole = tokens_of(turn[-1:])
        share = max(whole - (tokens - self._room), 0) / whole
        return [*turn[:-1], _in_short(turn[-1], share)]

    def _trimmed(self, turn: Sequence[ModelMessage]) -> Iterator[None]:
        """Leaves out a little more with each step: results of earlier turns, those turns, results of this
        one, and at last the turn before it."""
        for number, earlier in enumerate(self._turns[:-1]):
            if long := sum(map(_long_results, earlier)):
                self._turns[number] = [_in_short(message) for message in earlier]
                self._costs[number] = tokens_of(self._turns[number])
                self.shortened += long
                yield
        while len(self._turns) > 1:
            yield self._leave_out()
        # The last message holds what the model has not seen yet.
        for message in turn[self._begun : -1]:
            self._begun += 1
            if long := _long_results(message):
                self.shortened += long
                yield
        while self._turns:
            yield self._leave_out()

    def _leave_out(self) -> None:
        del self._turns[0], self._costs[0]
        self.left_out += 1


def tokens_of(messages: Iterable[ModelMessage]) -> int:
    """About how many tokens these take."""
    return sum(_PART + _tokens(part) for message in messages for part in message.parts)


def _tokens(part: object) -> int:
    match part:
        case TextPart() | ThinkingPart():
            return estimate_tokens(part.content)
        case ToolCallPart():
            return estimate_tokens(part.tool_name + part.args_as_json_str())
        case ToolReturnPart() | UserPromptPart():
            return _content_tokens(part.content)
        case _:
            return 0


def _content_tokens(content: Any) -> int:
    media = sum(isinstance(each, BinaryContent) for each in _listed(content))
    return estimate_tokens(_text(content)) + media * _MEDIA


# Results.


def _long_results(message: ModelMessage) -> int:
    """How many of its results would be shortened."""
    return sum(isinstance(part, ToolReturnPart) and _is_long(part.content) for part in message.parts)


def _in_short(message: ModelMessage, share: float = 0.0) -> ModelMessage:
    """With the beginning of each long result, or this share of it where that is more."""
    if not _long_results(message) or not isinstance(message, ModelRequest):
        return message
    parts: list[ModelRequestPart] = [
        replace(part, content=_beginning(part.content, share))
        if isinstance(part, ToolReturnPart) and _is_long(part.content)
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


def _beginning(content: Any, share: float) -> str:
    text = _text(content)
    length = max(_SHORT, int(len(text) * share))
    told = [text[:length]]
    if len(text) > length:
        # Of what did not fit by itself, the same call would bring no more.
        then = "call again to see them" if length == _SHORT else "ask for less at a time"
        told.append(f"[{len(text) - length:,} more characters do not fit here; {then}]")
    if len(_listed(content)) > 1:
        told.append("[a picture or a sound does not fit here]")
    return "\n".join(told)


def _is_long(content: Any) -> bool:
    media = any(isinstance(each, BinaryContent) for each in _listed(content))
    return media or len(_text(content)) > 2 * _SHORT


def _text(content: Any) -> str:
    """What a result says, without pictures and sounds."""
    texts = [each for each in _listed(content) if not isinstance(each, BinaryContent)]
    return "\n".join(each if isinstance(each, str) else json.dumps(each, default=str) for each in texts)


def _listed(content: Any) -> list[Any]:
    return cast("list[Any]", content) if isinstance(content, list) else [content]
