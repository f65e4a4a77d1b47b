"""Who asks: one request of a client while it is answered, and what the client can do for servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from toolyard.protocol.constants import LOG_LEVELS
from toolyard.protocol.pending import Message, RequestId, build_notification

if TYPE_CHECKING:
    from toolyard.gateway.legacy_session import LegacySession

__all__ = [
    "CURRENT_REQUEST",
    "ClientRequest",
    "SendToClient",
    "as_object",
    "discard_message",
    "forwardable_capabilities",
    "is_at_or_above_level",
    "is_jsonrpc_message",
    "is_request_id",
]

SendToClient: TypeAlias = Callable[[Message], None]
"""Sends a message to a client; never waits and never raises."""

_FORWARDABLE_CAPABILITIES = ("elicitation", "sampling", "roots")


def as_object(value: object) -> dict[str, Any]:
    """The value, where it is a JSON object; else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def forwardable_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """What servers are told of a client's capabilities: what it can do, of what we carry."""
    return {
        key: capabilities[key] for key in _FORWARDABLE_CAPABILITIES if isinstance(capabilities.get(key), dict)
    }


def is_at_or_above_level(params: Mapping[str, Any], level: str | None) -> bool:
    """Whether a log message is one of those that somebody wants who named this level."""
    said = params.get("level")
    if level is None or said not in LOG_LEVELS:
        return True
    return LOG_LEVELS.index(cast("str", said)) >= LOG_LEVELS.index(level)


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request of a client. ``tell`` sends what belongs to it before its answer."""

    method: str
    params: dict[str, Any]
    modern: bool
    send_to_client: SendToClient
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the client, as far as servers may be told."""
    log_level: str | None = None
    """Where a modern request names one; in the legacy era the session has it."""
    progress_token: RequestId | None = None
    session: LegacySession | None = None
    is_finished: bool = False
    """It has been answered: nothing can be sent with it any more."""

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """What the client sent along, e.g. a trace context."""
        found = self.params.get("_meta")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def send_progress(self, params: Mapping[str, Any]) -> None:
        """Pass on how far the server is, if the client wants to know."""
        if self.progress_token is not None and not self.is_finished:
            self.send_to_client(
                build_notification("notifications/progress", {**params, "progressToken": self.progress_token})
            )

    def send_log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message of the server, if the client wants it."""
        if (
            self.log_level is not None
            and not self.is_finished
            and is_at_or_above_level(params, self.log_level)
        ):
            self.send_to_client(build_notification("notifications/message", dict(params)))


CURRENT_REQUEST: ContextVar[ClientRequest | None] = ContextVar("gateway_request", default=None)
"""The request that the running task works for. Over HTTP, what a server says within its answer is read by
that very task, so this names whose it is. Over one channel for all it may be an earlier one that is over."""


def discard_message(message: Message) -> None:
    """Where messages go as long as there is no way for them."""


def is_jsonrpc_message(body: Message) -> bool:
    """Whether a JSON object is a message of JSON-RPC."""
    method, params = body.get("method"), body.get("params")
    known = is_request_id(body.get("id")) or "id" not in body
    well = isinstance(method, str) or (method is None and ("result" in body or "error" in body))
    return known and well and (params is None or isinstance(params, dict))


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Whether a request may have this id."""
    return isinstance(value, int | str) and not isinstance(value, bool)
