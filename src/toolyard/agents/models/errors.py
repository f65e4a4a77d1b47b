"""Errors of models.

ModelError           what happened, without the key; ``hint`` says what to do next
├── NoSuchModel      no model of that name is configured, or the provider has none
├── KeyRefused       the key is missing, wrong, or does not cover the model
├── RateLimited      too many requests; retry later (``retry_after``)
├── ModelSilent      nothing arrived in time
└── ModelFailed      all other failures: unreachable, refused, interrupted, empty answer
"""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["KeyRefused", "ModelError", "ModelFailed", "ModelSilent", "NoSuchModel", "RateLimited"]


class ModelError(ToolyardError):
    """Base class: a request to a model failed."""


class NoSuchModel(ModelError):
    """Raised for an unknown model, or one without an API key."""


class KeyRefused(ModelError):
    """Raised when the provider requires a key, or another one."""


class RateLimited(ModelError):
    """Raised when the provider limits requests.

    ``retry_after`` is the delay in seconds that it requested, if any.
    """

    def __init__(self, cause: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class ModelSilent(ModelError):
    """Raised when the model sent nothing for too long."""


class ModelFailed(ModelError):
    """Raised when the model is unreachable, refuses the request, stops in the middle, or sends an empty
    answer.
    """
