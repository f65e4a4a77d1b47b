"""Callbacks through which the embedding program answers server requests: elicitation, sampling, roots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.clients.unanswered_calls import UnansweredCall
from toolyard.errors import ServerError, ToolyardError
from toolyard.protocol.codec import encode
from toolyard.types.call import RequestClient

__all__ = [
    "INPUT_NAME_META_KEY",
    "Callbacks",
    "CapabilityNotOffered",
    "ServerRequestHandler",
    "SharedRequestHandler",
]

log = logging.getLogger("toolyard.clients")

INPUT_NAME_META_KEY = "toolyard/inputName"
"""Key in ``_meta`` of a legacy server request that carries its name among the modern ``inputRequests``. It
makes a translation between the eras reversible."""

ServerRequestHandler: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Takes the server's id and the params of its request; returns the result."""

SharedRequestHandler: TypeAlias = Callable[
    [str, str, Mapping[str, Any], Sequence[UnansweredCall]], Awaitable[Mapping[str, Any]]
]
"""Takes the server's id, the method and params of its request, and the calls that it may belong to. Raises
CapabilityNotOffered."""


class CapabilityNotOffered(Exception):
    """Raised when a server requests a capability that it was not offered."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Handlers for server requests. Only capabilities with a handler are offered.

    An exception of a handler becomes a JSON-RPC error for a legacy server. A modern server has no way to
    receive an error for an input request, so its call fails.
    """

    elicitation: ServerRequestHandler | None = None
    """Prompts the person. Result: ``{"action": "accept" | "decline" | "cancel", "content": {…}}``."""
    elicitation_urls: bool = False
    """True if the person can also be sent to a URL."""
    sampling: ServerRequestHandler | None = None
    """Runs a model."""
    roots: ServerRequestHandler | None = None
    """Lists the folders that servers may work in. Result: ``{"roots": [{"uri": …}]}``."""
    log: Callable[[str, Mapping[str, Any]], None] | None = None
    """Called with each log message of a server."""
    notification: Callable[[str, str, Mapping[str, Any]], None] | None = None
    """Called with each other notification: the server's id, the method, the params."""
    offers: Mapping[str, Any] | None = None
    """Capabilities to announce in place of those derived from the handlers, for proxies of other clients."""
    shared: SharedRequestHandler | None = None
    """Answers, in place of the handlers above, the requests of a server that several clients share, where no
    single client can be asked."""
    name_inputs: bool = False
    """If True, add the input's name to ``_meta`` (``INPUT_NAME_META_KEY``) of each input request."""

    @classmethod
    def from_client(cls, client: RequestClient) -> Callbacks:
        """Return callbacks that ask a client, and offer exactly its capabilities."""

        def ask_for(method: str) -> ServerRequestHandler | None:
            if client.ask is None or method.partition("/")[0] not in client.capabilities:
                return None
            ask = client.ask
            return lambda server_id, params: ask(server_id, method, params)

        send_log = client.send_log
        return cls(
            elicitation=ask_for("elicitation/create"),
            sampling=ask_for("sampling/createMessage"),
            roots=ask_for("roots/list"),
            log=None if send_log is None else lambda _, params: send_log(params),
            offers=client.capabilities,
            name_inputs=True,
        )

    def capabilities(self) -> dict[str, Any]:
        """Return the client capabilities to announce to servers."""
        if self.offers is not None:
            return dict(self.offers)
        capabilities: dict[str, Any] = {}
        if self.elicitation is not None:
            capabilities["elicitation"] = {"form": {}, "url": {}} if self.elicitation_urls else {"form": {}}
        if self.sampling is not None:
            capabilities["sampling"] = {}
        if self.roots is not None:
            capabilities["roots"] = {}
        return capabilities

    async def answer(
        self, server: str, method: str, params: Mapping[str, Any], calls: Sequence[UnansweredCall] = ()
    ) -> dict[str, Any]:
        """Return the result of a server's request, ready to be sent; ``calls`` are those that it may belong
        to. Raise CapabilityNotOffered for a method without a handler, and a ToolyardError if the handler
        fails."""
        handler = {
            "elicitation/create": self.elicitation,
            "sampling/createMessage": self.sampling,
            "roots/list": self.roots,
        }.get(method)
        if handler is None and self.shared is None:
            raise CapabilityNotOffered(method)
        try:
            if self.shared is not None:
                result = dict(await self.shared(server, method, params, calls))
            else:
                assert handler is not None
                result = dict(await handler(server, params))
            encode(result)  # Fail here, with the handler's name, if the result cannot be serialised.
        except asyncio.CancelledError as error:
            # If this task is being cancelled, no answer is needed. Otherwise the handler itself raised
            # CancelledError, and the server must still get an error.
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
    description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ServerError(f"the callback for {method} failed: {description}")
