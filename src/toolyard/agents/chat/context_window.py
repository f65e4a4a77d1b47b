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

from toolyard.agents.chat.model_history import merge_messages
from toolyard.catalog.token_estimate import estimate_tokens

__all__ = ["ContextWindow", "estimate_message_tokens"]

_OMITTED_TURNS_NOTICE = "[Earlier turns of this chat are left out here: they do not fit.]"
_SHORTENED_RESULT_CHARACTERS = 800
"""Characters of a result that stay where it is shortened."""
_TRIM_TARGET_RATIO = 0.75
"""Of the room, what is filled again once something is left out: the next step shall not leave out more."""
_TOKENS_PER_PART, _TOKENS_PER_MEDIA = 8, 1_600
"""Tokens that are counted for each part, and for a picture or a sound."""


class ContextWindow:
    """What is sent of a chat, at each step of one turn."""

    def __init__(self, earlier_turns: Iterable[Sequence[ModelMessage]], max_tokens: int) -> None:
        """``earlier`` are the messages of each turn before this one. ``room`` is how many tokens fit."""
        self._turns = [list(turn) for turn in earlier_turns]
        self._turn_tokens = [estimate_message_tokens(turn) for turn in self._turns]
        self._max_tokens = max_tokens
        self._shortened_messages = 0
        """Messages of the turn that is under way whose results are shortened."""
        self.omitted_turns = 0
        """Turns that are not sent at all."""
        self.shortened_results = 0
        """Results that are not sent whole, of those that are sent."""

    def fit_messages(self, turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages to send, with those of the turn that is under way."""
        begun, current = self._shortened_messages, estimate_message_tokens(self._shorten_current_turn(turn))
        if sum(self._turn_tokens) + current > self._max_tokens:
            for _ in self._trim_step_by_step(turn):
                if begun != self._shortened_messages:
                    begun, current = (
                        self._shortened_messages,
                        estimate_message_tokens(self._shorten_current_turn(turn)),
                    )
                if sum(self._turn_tokens) + current <= self._max_tokens * _TRIM_TARGET_RATIO:
                    break
        gap = [ModelRequest([UserPromptPart(_OMITTED_TURNS_NOTICE)])] if self.omitted_turns else []
        return merge_messages(
            gap,
            *self._turns,
            self._cut_last_message(self._shorten_current_turn(turn), sum(self._turn_tokens) + current),
        )

    def _shorten_current_turn(self, turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        return [
            *(_shorten_results(message) for message in turn[: self._shortened_messages]),
            *turn[self._shortened_messages :],
        ]

    def _cut_last_message(self, turn: list[ModelMessage], tokens: int) -> list[ModelMessage]:
        """The turn, with what the model has not seen yet cut where all of it together is still too much."""
        if tokens <= self._max_tokens or not (long := _count_long_results(turn[-1])):
            return turn
        self.shortened_results += long
        whole = estimate_message_tokens(turn[-1:])
        share = max(whole - (tokens - self._max_tokens), 0) / whole
        return [*turn[:-1], _shorten_results(turn[-1], share)]

    def _trim_step_by_step(self, turn: Sequence[ModelMessage]) -> Iterator[None]:
        """Leaves out a little more with each step: results of earlier turns, those turns, results of this
        one, and at last the turn before it."""
        for number, earlier in enumerate(self._turns[:-1]):
            if long := sum(map(_count_long_results, earlier)):
                self._turns[number] = [_shorten_results(message) for message in earlier]
                self._turn_tokens[number] = estimate_message_tokens(self._turns[number])
                self.shortened_results += long
                yield
        while len(self._turns) > 1:
            yield self._omit_oldest_turn()
        # The last message holds what the model has not seen yet.
        for message in turn[self._shortened_messages : -1]:
            self._shortened_messages += 1
            if long := _count_long_results(message):
                self.shortened_results += long
                yield
        while self._turns:
            yield self._omit_oldest_turn()

    def _omit_oldest_turn(self) -> None:
        del self._turns[0], self._turn_tokens[0]
        self.omitted_turns += 1


def estimate_message_tokens(messages: Iterable[ModelMessage]) -> int:
    """About how many tokens these take."""
    return sum(
        _TOKENS_PER_PART + _estimate_part_tokens(part) for message in messages for part in message.parts
    )


def _estimate_part_tokens(part: object) -> int:
    match part:
        case TextPart() | ThinkingPart():
            return estimate_tokens(part.content)
        case ToolCallPart():
            return estimate_tokens(part.tool_name + part.args_as_json_str())
        case ToolReturnPart() | UserPromptPart():
            return _estimate_content_tokens(part.content)
        case _:
            return 0


def _estimate_content_tokens(content: Any) -> int:
    media = sum(isinstance(each, BinaryContent) for each in _as_content_list(content))
    return estimate_tokens(_join_content_text(content)) + media * _TOKENS_PER_MEDIA


# Results.


def _count_long_results(message: ModelMessage) -> int:
    """How many of its results would be shortened."""
    return sum(isinstance(part, ToolReturnPart) and _is_long_content(part.content) for part in message.parts)


def _shorten_results(message: ModelMessage, share: float = 0.0) -> ModelMessage:
    """With the beginning of each long result, or this share of it where that is more."""
    if not _count_long_results(message) or not isinstance(message, ModelRequest):
        return message
    parts: list[ModelRequestPart] = [
        replace(part, content=_shorten_content(part.content, share))
        if isinstance(part, ToolReturnPart) and _is_long_content(part.content)
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


def _shorten_content(content: Any, share: float) -> str:
    text = _join_content_text(content)
    length = max(_SHORTENED_RESULT_CHARACTERS, int(len(text) * share))
    told = [text[:length]]
    if len(text) > length:
        # Of what did not fit by itself, the same call would bring no more.
        then = (
            "call again to see them" if length == _SHORTENED_RESULT_CHARACTERS else "ask for less at a time"
        )
        told.append(f"[{len(text) - length:,} more characters do not fit here; {then}]")
    if len(_as_content_list(content)) > 1:
        told.append("[a picture or a sound does not fit here]")
    return "\n".join(told)


def _is_long_content(content: Any) -> bool:
    media = any(isinstance(each, BinaryContent) for each in _as_content_list(content))
    return media or len(_join_content_text(content)) > 2 * _SHORTENED_RESULT_CHARACTERS


def _join_content_text(content: Any) -> str:
    """What a result says, without pictures and sounds."""
    texts = [each for each in _as_content_list(content) if not isinstance(each, BinaryContent)]
    return "\n".join(each if isinstance(each, str) else json.dumps(each, default=str) for each in texts)


def _as_content_list(content: Any) -> list[Any]:
    return cast("list[Any]", content) if isinstance(content, list) else [content]
