"""What the embedding program can do for servers that ask: fill in a form, run a model, name folders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.errors import ServerError, ToolyardError
from toolyard.protocol.codec import encode

__all__ = ["INPUT_NAME_META_KEY", "Callbacks", "CapabilityNotOffered", "ServerRequestHandler"]

log = logging.getLogger("toolyard.clients")

INPUT_NAME_META_KEY = "toolyard/inputName"
"""The key in ``_meta`` of a legacy question that says what it is called in the modern era. Those who carry
questions from one era to the other and back lose nothing by it."""

ServerRequestHandler: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Takes the server's id and the parameters of its request, gives the result."""


class CapabilityNotOffered(Exception):
    """A server asks for something that it was not offered."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Offered to servers only where given.

    An exception becomes an error: a legacy server sees it, a modern one cannot be told, so its call fails.
    """

    elicitation: ServerRequestHandler | None = None
    """Asks the person. Result: ``{"action": "accept" | "decline" | "cancel", "content": {…}}``."""
    elicitation_urls: bool = False
    """The person can also be sent to a URL."""
    sampling: ServerRequestHandler | None = None
    """Runs a model."""
    roots: ServerRequestHandler | None = None
    """Names the folders that servers may work in. Result: ``{"roots": [{"uri": …}]}``."""
    log: Callable[[str, Mapping[str, Any]], None] | None = None
    """Told each log message of a server."""
    notification: Callable[[str, str, Mapping[str, Any]], None] | None = None
    """Told each other notification: the server's id, the method, the parameters."""
    offers: Mapping[str, Any] | None = None
    """What servers are told in place of what follows from the rest, for whoever speaks for somebody else."""
    name_inputs: bool = False
    """Whether ``_meta`` of a question says under which name (``INPUT_NAME``) a modern server asks it."""

    def capabilities(self) -> dict[str, Any]:
        """What servers are told that we can do: what was given, and nothing else."""
        if self.offers is not None:
            return dict(self.offers)
        offered: dict[str, Any] = {}
        if self.elicitation is not None:
            offered["elicitation"] = {"form": {}, "url": {}} if self.elicitation_urls else {"form": {}}
        if self.sampling is not None:
            offered["sampling"] = {}
        if self.roots is not None:
            offered["roots"] = {}
        return offered

    async def answer(self, server: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a server's request, fit to be sent. Raises NotOffered for what was not offered, and a
        ToolyardError where there is no such result."""
        answerer = {
            "elicitation/create": self.elicitation,
            "sampling/createMessage": self.sampling,
            "roots/list": self.roots,
        }.get(method)
        if answerer is None:
            raise CapabilityNotOffered(method)
        try:
            result = dict(await answerer(server, params))
            encode(result)
        except asyncio.CancelledError as error:
            # Whoever cancels us wants no answer; a callback that gave up by itself still owes one.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise _callback_error(method, error) from error
        except (CapabilityNotOffered, ToolyardError):
            raise
        except Exception as error:
            log.exception("%s: the callback for %s failed", server, method)
            raise _callback_error(method, error) from error
        return result


def _callback_error(method: str, error: BaseException) -> ServerError:
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ServerError(f"the callback for {method} failed: {words}")
