"""Which scopes to ask for."""

from __future__ import annotations

from toolyard.auth.discovery import Found
from toolyard.auth.provider import Challenge
from toolyard.auth.records import Grant

__all__ = ["asked_before", "challenged_scopes", "choose_scopes"]

_OFFLINE = "offline_access"


def challenged_scopes(challenge: Challenge | None) -> tuple[str, ...]:
    """The scopes that a server named when it refused."""
    return () if challenge is None else tuple(challenge.params.get("scope", "").split())


def asked_before(grant: Grant | None, entered: tuple[str, ...]) -> tuple[str, ...]:
    """What to ask for again at the next sign-in, so that nothing is lost, and what the server wanted since.

    Where the operator entered the scopes, those alone are asked for again: a scope that is gone at the
    authorization server could not be got rid of otherwise.
    """
    if grant is None:
        return ()
    return tuple(dict.fromkeys((*(() if entered else grant.requested), *grant.wanted)))


def choose_scopes(
    entered: tuple[str, ...], challenge: Challenge | None, found: Found, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What the operator entered, else what the server asked for, else what its metadata lists, else none;
    and ``more``. Asking for refresh tokens is added only where the authorization server lists that."""
    first = entered or challenged_scopes(challenge) or found.scopes_supported or ()
    chosen = [scope for scope in dict.fromkeys((*more, *first)) if scope != _OFFLINE]
    # Alone it would replace the scopes that the server gives by itself.
    if chosen and _OFFLINE in (found.server.scopes_supported or ()):
        chosen.append(_OFFLINE)
    return tuple(chosen)
