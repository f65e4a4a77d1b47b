"""What can go wrong with a model.

ModelError           what happened, without the key; ``hint`` says what to do next
├── NoSuchModel      there is none of that name, here or at its provider
├── KeyRefused       the key is missing, wrong, or does not cover the model
├── RateLimited      too many requests: come back later (``retry_after``)
├── ModelSilent      nothing came in time
└── ModelFailed      everything else: not reachable, refused, broken off, no answer
"""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["KeyRefused", "ModelError", "ModelFailed", "ModelSilent", "NoSuchModel", "RateLimited"]


class ModelError(ToolyardError):
    """A model could not be asked, or did not answer."""


class NoSuchModel(ModelError):
    """There is no model of that name."""


class KeyRefused(ModelError):
    """The provider wants a key, or another one."""


class RateLimited(ModelError):
    """The provider wants fewer requests. ``retry_after``: in so many seconds, where it said so."""

    def __init__(self, cause: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class ModelSilent(ModelError):
    """The model sent nothing for too long."""


class ModelFailed(ModelError):
    """The model could not be reached, refused the request, broke off, or answered nothing."""
