"""What the guard found out about a request at the door, for those who answer it."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.types import Scope

__all__ = ["Passage", "passage_of"]

_KEY = "toolyard.passage"


@dataclass(slots=True)
class Passage:
    """One request's way in. ``cookies`` are sent with the answer, whatever answers."""

    peer: str
    """The address at the other end of the socket."""
    trusted: bool
    """Whether that is a proxy whose headers are believed."""
    address: str
    """Who is calling: the peer, or whom a trusted proxy calls for."""
    origin: str
    """Scheme, host and port under which the caller reached us."""
    cookies: list[str] = field(default_factory=list[str])
    owner: str | None = None
    """The id of the account that the request is from, once its head has proved it."""

    def enter(self, scope: Scope) -> None:
        """Put it where those who answer find it."""
        scope[_KEY] = self


def passage_of(scope: Scope) -> Passage:
    """The passage of a request that came through the guard. One that did not is a mistake of ours."""
    found = scope.get(_KEY)
    if not isinstance(found, Passage):
        raise RuntimeError("a request got past the guard")
    return found
