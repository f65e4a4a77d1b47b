"""Finds the secrets in a server's definition and redacts them from errors about the server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from urllib.parse import unquote

from toolyard.config.secret_replacement import find_secret_spans
from toolyard.errors import HttpStatus, RpcError, ServerError, SignInNeeded
from toolyard.results import redact_secrets
from toolyard.results.readable_json import to_readable_json
from toolyard.types.server import HttpSpec, Server

__all__ = ["find_secrets", "redact_error"]

_SECRET_NAME_PATTERN = re.compile(r"key|token|secret|pass|auth|credential|cookie", re.IGNORECASE)
_ASSIGNMENT_PATTERN = re.compile(r"[=:](?!//)")
_NON_SECRET_HEADERS = {"accept", "accept-language", "content-type", "origin", "referer", "user-agent"}
_MIN_SECRET_CHARACTERS = 6
_MAX_CAUSE_DEPTH = 8


def find_secrets(server: Server) -> tuple[str, ...]:
    """Return the secret values of a definition: headers and query parameters (both exist to carry
    credentials), environment variables and arguments with a name like ``TOKEN``, and in URLs passwords,
    random tokens in the path, and parameters with such a name.

    Of ``Bearer abc`` also ``abc``, since servers quote the token alone; of a query parameter also its
    percent-encoded form.
    """
    spec = server.transport
    if isinstance(spec, HttpSpec):
        from yarl import URL  # Imported late: programs without HTTP servers do not need it.

        values = [value for key, value in spec.headers.items() if key.lower() not in _NON_SECRET_HEADERS]
        for value in spec.query.values():
            values += (value, URL.build(query={"": value}).raw_query_string.removeprefix("="))
        values += _find_parts(spec.url)
    else:
        values = [value for key, value in spec.env.items() if _SECRET_NAME_PATTERN.search(key)]
        for value in spec.env.values():
            values += _find_parts(value)
        values += _find_secret_arguments(spec.args)
    if server.oauth is not None and server.oauth.client_secret:
        values.append(server.oauth.client_secret)
    # Short values are ignored: redacting them would remove ordinary words.
    words = (word for value in values for word in (value, *value.split()[-1:]))
    return tuple(dict.fromkeys(word for word in words if len(word) >= _MIN_SECRET_CHARACTERS))


def _find_parts(text: str) -> Iterator[str]:
    """Yield the secret parts of a URL, or of an argument or variable with a URL, also as a server reads
    them."""
    for start, end, _ in find_secret_spans(text):
        yield from (text[start:end], unquote(text[start:end]))


def _find_secret_arguments(args: Sequence[str]) -> Iterator[str]:
    """Yield ``abc`` of ``--api-key abc``, ``--token=abc``, ``-e TOKEN=abc`` and ``--header "Authorization:
    abc"``."""
    for argument, following in pairwise((*args, "")):
        yield from _find_parts(argument)
        name, *value = _ASSIGNMENT_PATTERN.split(argument, maxsplit=1)
        if not _SECRET_NAME_PATTERN.search(name) or " " in name:
            continue
        if value:
            yield value[0].strip()
        elif name.startswith("-") and not following.startswith("-"):
            yield following


def redact_error(error: BaseException | None, secrets: tuple[str, ...], depth: int = 0) -> None:
    """Redact an error in place, with its causes and contexts, which a traceback would show."""
    if not isinstance(error, ServerError) or depth > _MAX_CAUSE_DEPTH:
        return
    redact_error(error.__cause__, secrets, depth + 1)
    redact_error(error.__context__, secrets, depth + 1)
    error.cause = redact_secrets(error.cause, secrets)
    error.args = (error.cause,)
    if error.hint is not None:
        error.hint = redact_secrets(error.hint, secrets)
    if isinstance(error, RpcError):
        error.message = redact_secrets(error.message, secrets)
        data_text = to_readable_json(error.data)
        if (redacted := redact_secrets(data_text, secrets)) != data_text:
            error.data = redacted
    if isinstance(error, HttpStatus):
        error.body = redact_secrets(error.body.decode("utf-8", "replace"), secrets).encode()
    if (
        isinstance(error, SignInNeeded)
        and error.challenge
        and any(word in error.challenge for word in secrets)
    ):
        error.challenge = redact_secrets(error.challenge, secrets)
