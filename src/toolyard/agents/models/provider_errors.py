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
from toolyard.agents.models.model_ref import VARIABLES, Asked

__all__ = ["again_after", "endless", "failure", "nothing", "silent", "unfinished"]

_PATIENCE = 5.0
"""The longest pause, in seconds, that is worth making before a second try."""
_PAUSE = 0.5
_TOO_LONG = (
    "set context of the model to the tokens that it takes, so that earlier turns are left out in time; "
    "or begin another chat, or pick a model that takes more"
)
_WORDS_TOO_LONG = re.compile(
    r"context (length|size|window)|exceed_context_size|prompt is too long|input is too long|too many tokens"
    r"|input token count",
    re.IGNORECASE,
)
"""How servers say it that have no code for it, such as llama.cpp."""


def again_after(error: Exception) -> float | None:
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
    wait = _PAUSE if error.retry_after is None else error.retry_after
    return wait if wait <= _PATIENCE else None


def failure(error: Exception, asked: Asked, *, begun: bool) -> ModelError:
    """The error of ours. ``begun``: part of an answer had arrived."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, theirs.ModelTimeoutError):
        return ModelSilent(f"{asked.access.place} did not answer in time", hint="try again")
    if isinstance(error, theirs.ModelConnectionError):
        return _lost(error, asked) if begun else _unreachable(error, asked)
    if isinstance(error, theirs.ModelAPIError):
        return _answered(error, asked)
    if isinstance(error, theirs.UnexpectedModelBehavior):
        return _foreign(asked, error.message)
    return ModelFailed(asked.words(f"{asked.name} could not be asked: {_sentence(error)}"))


def silent(asked: Asked, seconds: float) -> ModelSilent:
    """Nothing came."""
    return ModelSilent(
        f"{asked.name} at {asked.access.place} sent nothing for {seconds:g} s",
        hint="try again; if it needs longer, raise the setting model_silence",
    )


def endless(asked: Asked, characters: int) -> ModelFailed:
    """It does not stop."""
    return ModelFailed(
        f"the answer of {asked.name} at {asked.access.place} was ended after {characters:,} characters",
        hint="it may go round in circles: retry, say it in other words, or pick another model",
    )


def unfinished(asked: Asked) -> ModelFailed:
    """The stream ended as if it were whole, without saying so."""
    return ModelFailed(
        f"the answer of {asked.name} broke off: {asked.access.place} ended it without a finish",
        hint="retry",
    )


def nothing(asked: Asked, reason: str | None) -> ModelFailed:
    """There is no word and no call in the answer. ``reason``: why it finished."""
    hints = {
        "content_filter": "the provider's filter withheld the answer: say it in other words",
        "length": "its limit of tokens was used up before it said anything: try a shorter request",
    }
    hint = hints.get(reason or "", "retry, or pick another model")
    return ModelFailed(f"{asked.name} at {asked.access.place} answered nothing", hint=hint)


# The sorts of failure.


def _answered(error: theirs.ModelAPIError, asked: Asked) -> ModelError:
    where, said = _where(error, asked), _said(error, asked)
    if isinstance(error, theirs.ModelNotFoundError):
        return NoSuchModel(
            f"{where} has no model '{asked.name}'{said}",
            hint="check the model's name, and base_url if it has one",
        )
    if isinstance(error, theirs.ModelAuthenticationError):
        return KeyRefused(f"{where} refused the key for {asked.name}{said}", hint=_key_hint(asked))
    if isinstance(error, theirs.ModelQuotaExceededError):
        return ModelFailed(f"the account at {where} has nothing left{said}", hint="see its billing page")
    if isinstance(error, theirs.ModelRateLimitError):
        when = "" if error.retry_after is None else f"; try again in {error.retry_after:g} s"
        return RateLimited(
            f"{where} wants fewer requests{when}{said}",
            retry_after=error.retry_after,
            hint="wait a little, then retry",
        )
    if isinstance(error, theirs.ModelContextWindowExceededError) or _is_too_long(error):
        return ModelFailed(f"this chat is too long for {asked.name}{said}", hint=_TOO_LONG)
    if isinstance(error, (theirs.ModelUnavailableError, theirs.ModelServerError)):
        return ModelFailed(f"{where} failed{said}", hint="nothing is wrong with the chat: retry")
    if isinstance(error, theirs.ModelHTTPError):
        return ModelFailed(f"{where} refused the request{said}")
    return _foreign(asked, error.message)


def _is_too_long(error: theirs.ModelAPIError) -> bool:
    refused = isinstance(error, theirs.ModelHTTPError) and error.status_code in (400, 413, 422)
    return refused and _WORDS_TOO_LONG.search(str(error.body)) is not None


def _unreachable(error: theirs.ModelConnectionError, asked: Asked) -> ModelFailed:
    hint = "is the server running, and base_url right?" if asked.access.base_url else "is there a network?"
    return ModelFailed(asked.words(f"cannot reach {asked.access.place}: {_root(error)}"), hint=hint)


def _lost(error: theirs.ModelConnectionError, asked: Asked) -> ModelFailed:
    cause = asked.words(f"the answer of {asked.name} broke off: {_root(error)}")
    return ModelFailed(cause, hint="retry")


def _foreign(asked: Asked, words: str) -> ModelFailed:
    """What came is not what such a provider sends."""
    cause = asked.words(f"{asked.access.place} answered what no model answers: {words}")
    if asked.access.base_url is None:
        return ModelFailed(cause, hint="retry")
    return ModelFailed(cause, hint="base_url must be the API's address, usually one that ends with /v1")


def _key_hint(asked: Asked) -> str:
    if asked.access.api_key is None:
        return "no key is set for this address: set api_key"
    variable = VARIABLES.get(asked.access.provider)
    return "check the key" + (f", {variable} or api_key" if variable else ": api_key")


# Words.


def _where(error: theirs.ModelAPIError, asked: Asked) -> str:
    status = error.status_code if isinstance(error, theirs.ModelHTTPError) else None
    return asked.access.place if status is None else f"{asked.access.place} ({status})"


def _said(error: theirs.ModelAPIError, asked: Asked) -> str:
    """What the provider said about it, to be put behind a sentence."""
    words = _message_in(error.body)
    if words is None or words.lstrip().startswith("<"):
        return ""
    words = asked.words(words)
    return f": {words}" if words else ""


def _message_in(body: object) -> str | None:
    """The message within an error, however the provider wrapped it."""
    for _ in range(4):
        if isinstance(body, list) and body:
            body = cast("list[object]", body)[0]
        elif isinstance(body, dict):
            told = cast("dict[str, object]", body)
            body = told.get("error") or told.get("message") or told.get("detail")
    return body if isinstance(body, str) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _root(error: BaseException) -> str:
    """The system's own words where there are any, else those of the last in the chain that has some."""
    chain = list(_chain(error))
    for each in reversed(chain):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    return next((_sentence(each) for each in reversed(chain) if str(each)), type(error).__name__)


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__
