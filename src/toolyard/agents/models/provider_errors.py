"""What the libraries of providers raise, as errors of ours: what happened, where, what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from pydantic_ai import exceptions as theirs

from toolyard.agents.models.errors import (
    KeyRefused,
    ModelError,
    ModelFailed,
    ModelSilent,
    NoSuchModel,
    RateLimited,
)
from toolyard.agents.models.model_ref import API_KEY_VARIABLES, ModelRef

__all__ = [
    "empty_answer_error",
    "endless_answer_error",
    "retry_delay",
    "silence_error",
    "translate_error",
    "unfinished_answer_error",
]

_MAX_RETRY_DELAY_SECONDS = 5.0
"""The longest pause, in seconds, that is worth making before a second try."""
_DEFAULT_RETRY_DELAY_SECONDS = 0.5
_CONTEXT_EXCEEDED_HINT = (
    "set context of the model to the tokens that it takes, so that earlier turns are left out in time; "
    "or begin another chat, or pick a model that takes more"
)
_CONTEXT_EXCEEDED_PATTERN = re.compile(
    r"context (length|size|window)|exceed_context_size|prompt is too long|input is too long|too many tokens"
    r"|input token count",
    re.IGNORECASE,
)
"""How servers say it that have no code for it, such as llama.cpp."""


def retry_delay(error: Exception) -> float | None:
    """Seconds to wait before a second try, of a request that brought nothing; None: it is no use."""
    if isinstance(error, theirs.ModelTimeoutError) or not isinstance(error, theirs.ModelAPIError):
        return None
    passing = (
        theirs.ModelRateLimitError,
        theirs.ModelUnavailableError,
        theirs.ModelServerError,
        theirs.ModelConnectionError,
    )
    if not isinstance(error, passing):
        return None
    wait = _DEFAULT_RETRY_DELAY_SECONDS if error.retry_after is None else error.retry_after
    return wait if wait <= _MAX_RETRY_DELAY_SECONDS else None


def translate_error(error: Exception, model_ref: ModelRef, *, answer_started: bool) -> ModelError:
    """The error of ours. ``begun``: part of an answer had arrived."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, theirs.ModelTimeoutError):
        return ModelSilent(f"{model_ref.access.place} did not answer in time", hint="try again")
    if isinstance(error, theirs.ModelConnectionError):
        return (
            _connection_lost_error(error, model_ref)
            if answer_started
            else _unreachable_error(error, model_ref)
        )
    if isinstance(error, theirs.ModelAPIError):
        return _translate_api_error(error, model_ref)
    if isinstance(error, theirs.UnexpectedModelBehavior):
        return _unexpected_response_error(model_ref, error.message)
    return ModelFailed(model_ref.words(f"{model_ref.name} could not be asked: {_error_text(error)}"))


def silence_error(model_ref: ModelRef, seconds: float) -> ModelSilent:
    """Nothing came."""
    return ModelSilent(
        f"{model_ref.name} at {model_ref.access.place} sent nothing for {seconds:g} s",
        hint="try again; if it needs longer, raise the setting model_silence",
    )


def endless_answer_error(model_ref: ModelRef, characters: int) -> ModelFailed:
    """It does not stop."""
    return ModelFailed(
        f"the answer of {model_ref.name} at {model_ref.access.place} was ended after "
        f"{characters:,} characters",
        hint="it may go round in circles: retry, say it in other words, or pick another model",
    )


def unfinished_answer_error(model_ref: ModelRef) -> ModelFailed:
    """The stream ended as if it were whole, without saying so."""
    return ModelFailed(
        f"the answer of {model_ref.name} broke off: {model_ref.access.place} ended it without a finish",
        hint="retry",
    )


def empty_answer_error(model_ref: ModelRef, finish_reason: str | None) -> ModelFailed:
    """There is no word and no call in the answer. ``reason``: why it finished."""
    hints = {
        "content_filter": "the provider's filter withheld the answer: say it in other words",
        "length": "its limit of tokens was used up before it said anything: try a shorter request",
    }
    hint = hints.get(finish_reason or "", "retry, or pick another model")
    return ModelFailed(f"{model_ref.name} at {model_ref.access.place} answered nothing", hint=hint)


# The sorts of failure.


def _translate_api_error(error: theirs.ModelAPIError, model_ref: ModelRef) -> ModelError:
    where, said = _provider_with_status(error, model_ref), _provider_message_suffix(error, model_ref)
    if isinstance(error, theirs.ModelNotFoundError):
        return NoSuchModel(
            f"{where} has no model '{model_ref.name}'{said}",
            hint="check the model's name, and base_url if it has one",
        )
    if isinstance(error, theirs.ModelAuthenticationError):
        return KeyRefused(f"{where} refused the key for {model_ref.name}{said}", hint=_key_hint(model_ref))
    if isinstance(error, theirs.ModelQuotaExceededError):
        return ModelFailed(f"the account at {where} has nothing left{said}", hint="see its billing page")
    if isinstance(error, theirs.ModelRateLimitError):
        when = "" if error.retry_after is None else f"; try again in {error.retry_after:g} s"
        return RateLimited(
            f"{where} wants fewer requests{when}{said}",
            retry_after=error.retry_after,
            hint="wait a little, then retry",
        )
    if isinstance(error, theirs.ModelContextWindowExceededError) or _is_context_exceeded(error):
        return ModelFailed(f"this chat is too long for {model_ref.name}{said}", hint=_CONTEXT_EXCEEDED_HINT)
    if isinstance(error, (theirs.ModelUnavailableError, theirs.ModelServerError)):
        return ModelFailed(f"{where} failed{said}", hint="nothing is wrong with the chat: retry")
    if isinstance(error, theirs.ModelHTTPError):
        return ModelFailed(f"{where} refused the request{said}")
    return _unexpected_response_error(model_ref, error.message)


def _is_context_exceeded(error: theirs.ModelAPIError) -> bool:
    refused = isinstance(error, theirs.ModelHTTPError) and error.status_code in (400, 413, 422)
    return refused and _CONTEXT_EXCEEDED_PATTERN.search(str(error.body)) is not None


def _unreachable_error(error: theirs.ModelConnectionError, model_ref: ModelRef) -> ModelFailed:
    hint = (
        "is the server running, and base_url right?" if model_ref.access.base_url else "is there a network?"
    )
    return ModelFailed(
        model_ref.words(f"cannot reach {model_ref.access.place}: {_root_cause_text(error)}"), hint=hint
    )


def _connection_lost_error(error: theirs.ModelConnectionError, model_ref: ModelRef) -> ModelFailed:
    cause = model_ref.words(f"the answer of {model_ref.name} broke off: {_root_cause_text(error)}")
    return ModelFailed(cause, hint="retry")


def _unexpected_response_error(model_ref: ModelRef, words: str) -> ModelFailed:
    """What came is not what such a provider sends."""
    cause = model_ref.words(f"{model_ref.access.place} answered what no model answers: {words}")
    if model_ref.access.base_url is None:
        return ModelFailed(cause, hint="retry")
    return ModelFailed(cause, hint="base_url must be the API's address, usually one that ends with /v1")


def _key_hint(model_ref: ModelRef) -> str:
    if model_ref.access.api_key is None:
        return "no key is set for this address: set api_key"
    variable = API_KEY_VARIABLES.get(model_ref.access.provider)
    return "check the key" + (f", {variable} or api_key" if variable else ": api_key")


# Words.


def _provider_with_status(error: theirs.ModelAPIError, model_ref: ModelRef) -> str:
    status = error.status_code if isinstance(error, theirs.ModelHTTPError) else None
    return model_ref.access.place if status is None else f"{model_ref.access.place} ({status})"


def _provider_message_suffix(error: theirs.ModelAPIError, model_ref: ModelRef) -> str:
    """What the provider said about it, to be put behind a sentence."""
    words = _extract_message(error.body)
    if words is None or words.lstrip().startswith("<"):
        return ""
    words = model_ref.words(words)
    return f": {words}" if words else ""


def _extract_message(body: object) -> str | None:
    """The message within an error, however the provider wrapped it."""
    for _ in range(4):
        if isinstance(body, list) and body:
            body = cast("list[object]", body)[0]
        elif isinstance(body, dict):
            told = cast("dict[str, object]", body)
            body = told.get("error") or told.get("message") or told.get("detail")
    return body if isinstance(body, str) else None


def _exception_chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _root_cause_text(error: BaseException) -> str:
    """The system's own words where there are any, else those of the last in the chain that has some."""
    chain = list(_exception_chain(error))
    for each in reversed(chain):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    return next((_error_text(each) for each in reversed(chain) if str(each)), type(error).__name__)


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
