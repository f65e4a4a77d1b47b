"""Facts about a request that the guard determines, for middleware and routes."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BODY_ARRIVED_KEY", "REQUEST_CONTEXT_KEY", "RESPONSE_STATUS_KEY", "RequestContext"]

REQUEST_CONTEXT_KEY = "toolyard.passage"
"""Key of the scope with the RequestContext, which the request guard sets."""
BODY_ARRIVED_KEY = "body_arrived"
"""Key of the scope that the HTTP server sets to True when it has received the whole body."""
RESPONSE_STATUS_KEY = "response_status"
"""Key of the scope with the status of the response, once the response has started."""


@dataclass(slots=True)
class RequestContext:
    """Network facts of one request, and the cookies to set in its response."""

    peer: str
    """IP address of the socket's peer."""
    is_trusted_proxy: bool
    """True if the peer is a proxy whose forwarding headers are trusted."""
    address: str
    """IP address of the client: the peer, or the address forwarded by a trusted proxy."""
    origin: str
    """Scheme, host and port that the client used."""
    headers: dict[str, str]
    """Headers by their names in lower case, with the values of a repeated one joined."""
    set_cookie_headers: list[str] = field(default_factory=list[str])
    user_id: str | None = None
    """Id of the user, once the request head is authenticated."""
