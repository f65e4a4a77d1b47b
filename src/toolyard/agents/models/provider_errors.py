"""Translate errors of the provider libraries to ours: what happened, where, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from pydantic_ai import exceptions as library_errors

from toolyard.agents.models.endpoint_http import ResponseRefused
from toolyard.agents.models.errors import (
    KeyRefused,
    ModelError,
    ModelFailed,
    ModelSilent,
    NoSuchModel,
    RateLimited,
)
from toolyard.agents.models.model_ref import ModelRef
from toolyard.net import AddressRefused

__all__ = [
    "empty_answer_error",
    "endless_answer_error",
    "model_silent_error",
    "retry_delay",
    "translate_error",
    "unfinished_answer_error",
]

_MAX_RETRY_DELAY_SECONDS = 5.0
"""Maximum delay before a second attempt; longer ones are reported as an error instead."""
_DEFAULT_RETRY_DELAY_SECONDS = 0.5
_CONTEXT_EXCEEDED_HINT = (
    "set the model's context to its limit in tokens, so that earlier turns are omitted in time; "
    "or start a new chat, or choose a model with a larger context"
)
_CONTEXT_EXCEEDED_PATTERN = re.compile(
    r"context (length|size|window)|exceed_context_size|prompt is too long|input is too long|too many tokens"
    r"|input token count",
    re.IGNORECASE,
)
"""Messages of servers that have no error code for an exceeded context, such as llama.cpp."""


def retry_delay(error: Exception) -> float | None:
    """Return the seconds to wait before retrying a request that produced nothing; None if it should not
    be retried.
    """
    if isinstance(error, library_errors.ModelTimeoutError) or not isinstance(
        error, library_errors.ModelAPIError
    ):
        return None
    transient_errors = (
        library_errors.ModelRateLimitError,
        library_errors.ModelUnavailableError,
        library_errors.ModelServerError,
        library_errors.ModelConnectionError,
    )
    if not isinstance(error, transient_errors):
        return None
    delay = _DEFAULT_RETRY_DELAY_SECONDS if error.retry_after is None else error.retry_after
    return delay if delay <= _MAX_RETRY_DELAY_SECONDS else None


def translate_error(error: Exception, model_ref: ModelRef, *, answer_started: bool) -> ModelError:
    """Return the error to raise. ``answer_started`` means that a part of the answer had arrived."""
    if isinstance(error, ModelError):
        return error
    refused = next((each for each in _exception_chain(error) if isinstance(each, ResponseRefused)), None)
    if refused is not None:
        return _unexpected_response_error(model_ref, str(refused))
    if isinstance(error, library_errors.ModelTimeoutError):
        return ModelSilent(f"{model_ref.access.provider_label} did not answer in time", hint="try again")
    if isinstance(error, library_errors.ModelConnectionError):
        return (
            _connection_lost_error(error, model_ref)
            if answer_started
            else _unreachable_error(error, model_ref)
        )
    if isinstance(error, library_errors.ModelAPIError):
        return _translate_api_error(error, model_ref)
    if isinstance(error, library_errors.UnexpectedModelBehavior):
        return _unexpected_response_error(model_ref, error.message)
    return ModelFailed(
        model_ref.sanitize_message(f"the request to {model_ref.name} failed: {_error_text(error)}")
    )


def model_silent_error(model_ref: ModelRef, seconds: float) -> ModelSilent:
    """Return the error for a model that sent nothing for too long."""
    return ModelSilent(
        f"{model_ref.name} at {model_ref.access.provider_label} sent nothing for {seconds:g} s",
        hint="try again; if the model needs longer, raise the setting model_silence",
    )


def endless_answer_error(model_ref: ModelRef, characters: int) -> ModelFailed:
    """Return the error for an answer that exceeds the maximum length."""
    return ModelFailed(
        f"the answer from {model_ref.name} at {model_ref.access.provider_label} was stopped after "
        f"{characters:,} characters",
        hint="the model may be repeating itself: retry, rephrase your message, or choose another model",
    )


def unfinished_answer_error(model_ref: ModelRef) -> ModelFailed:
    """Return the error for a stream that ended without a finish reason."""
    return ModelFailed(
        f"the answer from {model_ref.name} was interrupted: "
        f"{model_ref.access.provider_label} ended it without a finish reason",
        hint="retry",
    )


def empty_answer_error(model_ref: ModelRef, finish_reason: str | None) -> ModelFailed:
    """Return the error for an answer without text and calls."""
    hints = {
        "content_filter": "the provider's content filter withheld the answer: rephrase your message",
        "length": "the token limit was reached before any text: try a shorter request",
    }
    hint = hints.get(finish_reason or "", "retry, or choose another model")
    return ModelFailed(
        f"{model_ref.name} at {model_ref.access.provider_label} sent an empty answer", hint=hint
    )


# Kinds of failure.


def _translate_api_error(error: library_errors.ModelAPIError, model_ref: ModelRef) -> ModelError:
    where, provider_message = (
        _provider_with_status(error, model_ref),
        _provider_message_suffix(error, model_ref),
    )
    if isinstance(error, library_errors.ModelNotFoundError):
        return NoSuchModel(
            f"{where} has no model '{model_ref.name}'{provider_message}",
            hint="check the model's name and its address",
        )
    if isinstance(error, library_errors.ModelAuthenticationError):
        return KeyRefused(
            f"{where} refused the key for {model_ref.name}{provider_message}", hint=_key_hint(model_ref)
        )
    if isinstance(error, library_errors.ModelQuotaExceededError):
        return ModelFailed(
            f"the quota of the account at {where} is used up{provider_message}",
            hint="check the account's billing page",
        )
    if isinstance(error, library_errors.ModelRateLimitError):
        when = "" if error.retry_after is None else f"; try again in {error.retry_after:g} s"
        return RateLimited(
            f"{where} limits the rate of requests{when}{provider_message}",
            retry_after=error.retry_after,
            hint="wait, then retry",
        )
    if isinstance(error, library_errors.ModelContextWindowExceededError) or _is_context_exceeded(error):
        return ModelFailed(
            f"this chat is too long for {model_ref.name}{provider_message}", hint=_CONTEXT_EXCEEDED_HINT
        )
    if isinstance(error, (library_errors.ModelUnavailableError, library_errors.ModelServerError)):
        return ModelFailed(f"{where} failed{provider_message}", hint="the provider failed; try again later")
    if isinstance(error, library_errors.ModelHTTPError):
        return ModelFailed(f"{where} refused the request{provider_message}")
    if any(300 <= (getattr(each, "status_code", None) or 0) < 400 for each in _exception_chain(error)):
        # Not followed: the key would be sent to an address for which it was not entered.
        hint = "use the address of the API itself; it usually ends with /v1"
        return ModelFailed(f"{where} redirects to another address", hint=hint)
    return _unexpected_response_error(model_ref, error.message)


def _is_context_exceeded(error: library_errors.ModelAPIError) -> bool:
    is_refused = isinstance(error, library_errors.ModelHTTPError) and error.status_code in (400, 413, 422)
    return is_refused and _CONTEXT_EXCEEDED_PATTERN.search(str(error.body)) is not None


def _unreachable_error(error: library_errors.ModelConnectionError, model_ref: ModelRef) -> ModelFailed:
    hint = (
        "check that the server is running and its address is correct"
        if model_ref.access.base_url
        else "check your network connection"
    )
    if any(isinstance(each, AddressRefused) for each in _exception_chain(error)):
        hint = "if this is your own server, allow private network addresses for this model"
    return ModelFailed(
        model_ref.sanitize_message(
            f"cannot reach {model_ref.access.provider_label}: {_root_cause_text(error)}"
        ),
        hint=hint,
    )


def _connection_lost_error(error: library_errors.ModelConnectionError, model_ref: ModelRef) -> ModelFailed:
    cause = model_ref.sanitize_message(
        f"the answer from {model_ref.name} was interrupted: {_root_cause_text(error)}"
    )
    return ModelFailed(cause, hint="retry")


def _unexpected_response_error(model_ref: ModelRef, message: str) -> ModelFailed:
    """Return the error for a response that does not follow the provider's protocol."""
    cause = model_ref.sanitize_message(
        f"{model_ref.access.provider_label} sent an unexpected response: {message}"
    )
    if model_ref.access.base_url is None:
        return ModelFailed(cause, hint="retry")
    return ModelFailed(cause, hint="the address must be the URL of the API; it usually ends with /v1")


def _key_hint(model_ref: ModelRef) -> str:
    if model_ref.access.stored:
        return "admins can correct this model's key on the Models page"
    if model_ref.access.api_key is None:
        return "no key is set for this address: set api_key"
    variable = model_ref.access.key_variable
    return f"check the key in {variable} or api_key" if variable else "check the key in api_key"


# Message texts.


def _provider_with_status(error: library_errors.ModelAPIError, model_ref: ModelRef) -> str:
    status = error.status_code if isinstance(error, library_errors.ModelHTTPError) else None
    return (
        model_ref.access.provider_label if status is None else f"{model_ref.access.provider_label} ({status})"
    )


def _provider_message_suffix(error: library_errors.ModelAPIError, model_ref: ModelRef) -> str:
    """Return the provider's own message, to append to a sentence."""
    message = _extract_message(error.body)
    if message is None or message.lstrip().startswith("<"):
        return ""
    message = model_ref.sanitize_message(message)
    return f": {message}" if message else ""


def _extract_message(body: object) -> str | None:
    """Return the message inside an error body, however the provider nested it."""
    for _ in range(4):
        if isinstance(body, list) and body:
            body = cast("list[object]", body)[0]
        elif isinstance(body, dict):
            fields = cast("dict[str, object]", body)
            body = fields.get("error") or fields.get("message") or fields.get("detail")
    return body if isinstance(body, str) else None


def _exception_chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _root_cause_text(error: BaseException) -> str:
    """Return the operating system's message if there is one, else that of the innermost exception with a
    text.
    """
    chain = list(_exception_chain(error))
    for each in reversed(chain):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    return next((_error_text(each) for each in reversed(chain) if str(each)), type(error).__name__)


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
