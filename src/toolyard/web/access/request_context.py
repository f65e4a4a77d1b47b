"""What the guard found out about a request at the door, for those who answer it."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.types import Scope

__all__ = ["RequestContext", "get_request_context"]

_SCOPE_KEY = "toolyard.passage"


@dataclass(slots=True)
class RequestContext:
    """One request's way in. ``cookies`` are sent with the answer, whatever answers."""

    peer: str
    """The address at the other end of the socket."""
    is_trusted_proxy: bool
    """Whether that is a proxy whose headers are believed."""
    address: str
    """Who is calling: the peer, or whom a trusted proxy calls for."""
    origin: str
    """Scheme, host and port under which the caller reached us."""
    set_cookie_headers: list[str] = field(default_factory=list[str])
    user_id: str | None = None
    """The id of the account that the request is from, once its head has proved it."""

    def attach_to(self, scope: Scope) -> None:
        """Put it where those who answer find it."""
        scope[_SCOPE_KEY] = self


def get_request_context(scope: Scope) -> RequestContext:
    """The passage of a request that came through the guard. One that did not is a mistake of ours."""
    found = scope.get(_SCOPE_KEY)
    if not isinstance(found, RequestContext):
        raise RuntimeError("a request got past the guard")
    return found
