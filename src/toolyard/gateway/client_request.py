"""One request of a client while it is being answered, and the client's capabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from toolyard.protocol.constants import LOG_LEVELS
from toolyard.protocol.eras import Era
from toolyard.protocol.mirrored_headers import HeaderParam
from toolyard.protocol.pending import Message, RequestId, build_notification
from toolyard.protocol.server import RequestRejection, parse_request_metadata
from toolyard.types.call import OnProgress

if TYPE_CHECKING:
    from toolyard.gateway.legacy_session import LegacySession

__all__ = [
    "CURRENT_REQUEST",
    "ClientRequest",
    "SendToClient",
    "as_object",
    "build_session_request",
    "discard_message",
    "forwardable_capabilities",
    "is_at_or_above_level",
    "is_jsonrpc_message",
    "is_request_id",
    "parse_stateless_request",
]

SendToClient: TypeAlias = Callable[[Message], None]
"""Sends a message to a client; never waits and never raises."""

_FORWARDABLE_CAPABILITIES = ("elicitation", "sampling", "roots")


def as_object(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def forwardable_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client capabilities to declare to servers: those that we can forward."""
    return {
        key: capabilities[key] for key in _FORWARDABLE_CAPABILITIES if isinstance(capabilities.get(key), dict)
    }


def is_at_or_above_level(params: Mapping[str, Any], level: str | None) -> bool:
    """Return whether a log message is at or above the requested level."""
    said = params.get("level")
    if level is None or said not in LOG_LEVELS:
        return True
    return LOG_LEVELS.index(cast("str", said)) >= LOG_LEVELS.index(level)


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request of a client. ``send_to_client`` sends messages that belong to it, before its response."""

    method: str
    params: dict[str, Any]
    era: Era
    send_to_client: SendToClient
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Capabilities of the client to declare to servers."""
    log_level: str | None = None
    """Log level of a request without a session; a session has its own."""
    progress_token: RequestId | None = None
    session: LegacySession | None = None
    is_finished: bool = False
    """Whether the request has been answered, so that no message can be sent with it."""

    @property
    def version(self) -> str:
        """Protocol version of the client."""
        return self.era.assumed_version if self.session is None else self.session.version

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """Return the ``_meta`` of the request, such as a trace context."""
        found = self.params.get("_meta")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    @property
    def on_progress(self) -> OnProgress | None:
        """Callback for the server's progress; None if the client did not ask for it."""
        return self.send_progress if self.progress_token is not None else None

    def send_progress(self, params: Mapping[str, Any]) -> None:
        """Forward the server's progress, if the client asked for it."""
        if self.progress_token is not None and not self.is_finished:
            self.send_to_client(
                build_notification("notifications/progress", {**params, "progressToken": self.progress_token})
            )

    def send_log(self, params: Mapping[str, Any]) -> None:
        """Forward a log message of the server, if the client asked for that level."""
        if (
            self.log_level is not None
            and not self.is_finished
            and is_at_or_above_level(params, self.log_level)
        ):
            self.send_to_client(build_notification("notifications/message", dict(params)))


def build_session_request(
    body: Message, era: Era, session: LegacySession | None, send_to_client: SendToClient
) -> ClientRequest:
    """Build a request of an era with sessions."""
    params = cast("dict[str, Any]", body.get("params") or {})
    token = as_object(params.get("_meta")).get("progressToken")
    return ClientRequest(
        cast("str", body["method"]),
        params,
        era,
        send_to_client,
        progress_token=token if is_request_id(token) else None,
        session=session,
    )


def parse_stateless_request(
    body: Message,
    era: Era,
    send_to_client: SendToClient,
    *,
    headers: Mapping[str, str] | None = None,
    header_params: Sequence[HeaderParam] = (),
) -> ClientRequest | RequestRejection:
    """Build a request of an era without sessions, or return its rejection. ``headers`` are those of HTTP."""
    metadata = parse_request_metadata(body, headers=headers, header_params=header_params)
    if isinstance(metadata, RequestRejection):
        return metadata
    return ClientRequest(
        cast("str", body["method"]),
        cast("dict[str, Any]", body.get("params") or {}),
        era,
        send_to_client,
        forwardable_capabilities(metadata.capabilities),
        metadata.log_level,
        metadata.progress_token,
    )


CURRENT_REQUEST: ContextVar[ClientRequest | None] = ContextVar("gateway_request", default=None)
"""The request that the running task works on.

Over HTTP a server's messages within a response are read by that task, so this identifies their request. On a
shared channel it may be an earlier request that has ended.
"""


def discard_message(message: Message) -> None:
    """Drop a message: the sender of a client that cannot be reached."""


def is_jsonrpc_message(body: Message) -> bool:
    """Return whether a JSON object is a JSON-RPC message."""
    method, params = body.get("method"), body.get("params")
    known = is_request_id(body.get("id")) or "id" not in body
    well = isinstance(method, str) or (method is None and ("result" in body or "error" in body))
    return known and well and (params is None or isinstance(params, dict))


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Return whether a value is a valid request id."""
    return isinstance(value, int | str) and not isinstance(value, bool)
