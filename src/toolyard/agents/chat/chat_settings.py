"""The settings of chats."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.config.settings.table import Settings

__all__ = ["ChatLimits"]


@dataclass(frozen=True, slots=True)
class ChatLimits:
    """What bounds a turn."""

    max_steps: int = 30
    """Model requests in one turn, where the agent sets no number."""
    token_budget: int = 1_000_000
    """Tokens, read and written, after which a turn asks the model no more."""
    max_parallel_calls: int = 16
    """Calls of one turn that run at the same time."""
    max_calls_per_answer: int = 64
    """Calls of one answer that are made; the rest are answered with an error."""
    question_timeout_seconds: float = 600.0
    """How long a server that asks the person something waits for them."""
    max_questions_per_call: int = 20
    """Questions, model requests included, that a server may ask during one call."""
    max_open_questions: int = 4
    """Questions of one call that may wait for an answer at the same time."""

    @classmethod
    def from_settings(cls, settings: Settings) -> ChatLimits:
        """The rules that the settings name."""
        return cls(max_steps=settings.max_steps, token_budget=settings.turn_token_budget)
