"""Questions of servers that a person answers on a page, because no client can be asked."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.types.chat import Question

__all__ = ["MAX_ANSWER_CHARACTERS", "PageQuestion"]

MAX_ANSWER_CHARACTERS = 64_000
"""Maximum length of an answer, written as JSON."""


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """An open question. Only its owner can answer it, and only once."""

    id: str
    owner: str
    calls: tuple[str, ...]
    """Calls that the question may belong to, each with the name of its client."""
    question: Question
    asked_at: float
    expires_at: float
