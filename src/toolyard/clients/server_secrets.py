"""What of a server's definition is a secret, and how to take it out of what is said about the server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from toolyard.errors import HttpStatus, RpcError, ServerError, SignInNeeded
from toolyard.results import redact
from toolyard.results.readable_json import readable
from toolyard.types.server import HttpSpec, Server

__all__ = ["hush", "secrets_of"]

_SECRET_NAME = re.compile(r"key|token|secret|pass|auth|credential|cookie", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"[=:](?!//)")
_PLAIN_HEADERS = {"accept", "accept-language", "content-type", "origin", "referer", "user-agent"}
_SHORTEST_SECRET = 6
_DEEPEST = 8


def secrets_of(server: Server) -> tuple[str, ...]:
    """Values in a definition that are secrets: headers and query parameters, which are there for that, and
    variables and arguments whose name says so. Of ``Bearer abc`` also ``abc``, since that is what a server
    quotes; of a query parameter also how it stands in the URL."""
    spec = server.transport
    if isinstance(spec, HttpSpec):
        from yarl import URL  # which programs do without

        values = [value for key, value in spec.headers.items() if key.lower() not in _PLAIN_HEADERS]
        for value in spec.query.values():
            values += (value, URL.build(query={"": value}).raw_query_string.removeprefix("="))
    else:
        values = [value for key, value in spec.env.items() if _SECRET_NAME.search(key)]
        values += _in_arguments(spec.args)
    if server.oauth is not None and server.oauth.client_secret:
        values.append(server.oauth.client_secret)
    words = (word for value in values for word in (value, *value.split()[-1:]))
    return tuple(dict.fromkeys(word for word in words if len(word) >= _SHORTEST_SECRET))


def _in_arguments(args: Sequence[str]) -> Iterator[str]:
    """As in ``--api-key abc``, ``--token=abc``, ``-e TOKEN=abc`` and ``--header "Authorization: abc"``."""
    for argument, following in pairwise((*args, "")):
        name, *value = _ASSIGNMENT.split(argument, maxsplit=1)
        if not _SECRET_NAME.search(name) or " " in name:
            continue
        if value:
            yield value[0].strip()
        elif name.startswith("-") and not following.startswith("-"):
            yield following


def hush(error: BaseException | None, secrets: tuple[str, ...], depth: int = 0) -> None:
    """Take secrets out of an error, and out of those that led to it: a traceback shows them."""
    if not isinstance(error, ServerError) or depth > _DEEPEST:
        return
    hush(error.__cause__, secrets, depth + 1)
    hush(error.__context__, secrets, depth + 1)
    error.cause = redact(error.cause, secrets)
    error.args = (error.cause,)
    if error.hint is not None:
        error.hint = redact(error.hint, secrets)
    if isinstance(error, RpcError):
        error.message = redact(error.message, secrets)
        told = readable(error.data)
        if (hushed := redact(told, secrets)) != told:
            error.data = hushed
    if isinstance(error, HttpStatus):
        error.body = redact(error.body.decode("utf-8", "replace"), secrets).encode()
    if (
        isinstance(error, SignInNeeded)
        and error.challenge
        and any(word in error.challenge for word in secrets)
    ):
        error.challenge = redact(error.challenge, secrets)
