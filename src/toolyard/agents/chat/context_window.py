"""Fit a chat into a model's context window by omitting the oldest content first.

Stored events are not affected. The current turn and the one before it are shortened last. Content omitted
once stays omitted until the end of the turn, because providers cache the beginning of a prompt. Results that
are too long on their own are truncated to the available space.
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
from toolyard.catalog.token_costs import estimate_tokens

__all__ = ["ContextWindow", "estimate_message_tokens", "estimate_result_tokens"]

_OMITTED_TURNS_NOTICE = "[Earlier turns of this chat are omitted here: they do not fit.]"
_SHORTENED_RESULT_CHARACTERS = 800
"""Characters that remain of a shortened result."""
_TRIM_TARGET_RATIO = 0.75
"""Share of the window filled after trimming, so that the next step does not have to trim again."""
_TOKENS_PER_PART, _TOKENS_PER_MEDIA = 8, 1_600
"""Estimated tokens of each message part, and of an image or audio clip."""


class ContextWindow:
    """Selects the messages to send at each step of one turn."""

    def __init__(self, earlier_turns: Iterable[Sequence[ModelMessage]], max_tokens: int) -> None:
        """``earlier_turns`` are the messages of each turn before the current one."""
        self._turns = [list(turn) for turn in earlier_turns]
        self._turn_tokens = [estimate_message_tokens(turn) for turn in self._turns]
        self._max_tokens = max_tokens
        self._shortened_messages = 0
        """Number of messages of the current turn whose results are shortened."""
        self.omitted_turns = 0
        """Number of turns that are not sent at all."""
        self.shortened_results = 0
        """Number of sent results that are not complete."""

    def fit_messages(self, turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the messages to send, ending with those of the current turn."""
        previous_count, current_tokens = (
            self._shortened_messages,
            estimate_message_tokens(self._shorten_current_turn(turn)),
        )
        if sum(self._turn_tokens) + current_tokens > self._max_tokens:
            for _ in self._trim_step_by_step(turn):
                if previous_count != self._shortened_messages:
                    previous_count, current_tokens = (
                        self._shortened_messages,
                        estimate_message_tokens(self._shorten_current_turn(turn)),
                    )
                if sum(self._turn_tokens) + current_tokens <= self._max_tokens * _TRIM_TARGET_RATIO:
                    break
        notice = [ModelRequest([UserPromptPart(_OMITTED_TURNS_NOTICE)])] if self.omitted_turns else []
        return merge_messages(
            notice,
            *self._turns,
            self._cut_last_message(self._shorten_current_turn(turn), sum(self._turn_tokens) + current_tokens),
        )

    def _shorten_current_turn(self, turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        return [
            *(_shorten_results(message) for message in turn[: self._shortened_messages]),
            *turn[self._shortened_messages :],
        ]

    def _cut_last_message(self, turn: list[ModelMessage], tokens: int) -> list[ModelMessage]:
        """Truncate the results in the last message if everything together is still too long."""
        if tokens <= self._max_tokens or not (long_results := _count_long_results(turn[-1])):
            return turn
        self.shortened_results += long_results
        message_tokens = estimate_message_tokens(turn[-1:])
        share = max(message_tokens - (tokens - self._max_tokens), 0) / message_tokens
        return [*turn[:-1], _shorten_results(turn[-1], share)]

    def _trim_step_by_step(self, turn: Sequence[ModelMessage]) -> Iterator[None]:
        """Omit a little more at each step.

        The order is: results of earlier turns, the earlier turns, results of the current turn, the previous
        turn.
        """
        for number, earlier in enumerate(self._turns[:-1]):
            if long_results := sum(map(_count_long_results, earlier)):
                self._turns[number] = [_shorten_results(message) for message in earlier]
                self._turn_tokens[number] = estimate_message_tokens(self._turns[number])
                self.shortened_results += long_results
                yield
        while len(self._turns) > 1:
            yield self._omit_oldest_turn()
        # The last message contains the results that the model has not seen yet.
        for message in turn[self._shortened_messages : -1]:
            self._shortened_messages += 1
            if long_results := _count_long_results(message):
                self.shortened_results += long_results
                yield
        while self._turns:
            yield self._omit_oldest_turn()

    def _omit_oldest_turn(self) -> None:
        del self._turns[0], self._turn_tokens[0]
        self.omitted_turns += 1


def estimate_message_tokens(messages: Iterable[ModelMessage]) -> int:
    """Return the approximate number of tokens of these messages."""
    return sum(
        _TOKENS_PER_PART + _estimate_part_tokens(part) for message in messages for part in message.parts
    )


def estimate_result_tokens(messages: Iterable[ModelMessage]) -> int:
    """Return the approximate number of tokens of the tool results in these messages."""
    parts = (part for message in messages for part in message.parts if isinstance(part, ToolReturnPart))
    return sum(_TOKENS_PER_PART + _estimate_part_tokens(part) for part in parts)


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
    """Return the number of results that shortening would change."""
    return sum(isinstance(part, ToolReturnPart) and _is_long_content(part.content) for part in message.parts)


def _shorten_results(message: ModelMessage, share: float = 0.0) -> ModelMessage:
    """Return the message with long results reduced to their beginning, or to ``share`` if that is more."""
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
    lines = [text[:length]]
    if len(text) > length:
        # Repeating a call whose result was too long on its own would not return more of it.
        advice = (
            "call again to see them" if length == _SHORTENED_RESULT_CHARACTERS else "request less at a time"
        )
        lines.append(f"[{len(text) - length:,} more characters do not fit here; {advice}]")
    if len(_as_content_list(content)) > 1:
        lines.append("[an image or audio clip does not fit here]")
    return "\n".join(lines)


def _is_long_content(content: Any) -> bool:
    media = any(isinstance(each, BinaryContent) for each in _as_content_list(content))
    return media or len(_join_content_text(content)) > 2 * _SHORTENED_RESULT_CHARACTERS


def _join_content_text(content: Any) -> str:
    """Return the text of a result without images and audio."""
    texts = [each for each in _as_content_list(content) if not isinstance(each, BinaryContent)]
    return "\n".join(each if isinstance(each, str) else json.dumps(each, default=str) for each in texts)


def _as_content_list(content: Any) -> list[Any]:
    return cast("list[Any]", content) if isinstance(content, list) else [content]
