"""Which scopes to ask for."""

from __future__ import annotations

from toolyard.auth.discovery import DiscoveryResult
from toolyard.auth.provider import Challenge
from toolyard.auth.records import OAuthGrant

__all__ = ["choose_scopes", "scopes_in_challenge", "scopes_to_request_again"]

_OFFLINE_ACCESS_SCOPE = "offline_access"


def scopes_in_challenge(challenge: Challenge | None) -> tuple[str, ...]:
    """The scopes that a server named when it refused."""
    return () if challenge is None else tuple(challenge.params.get("scope", "").split())


def scopes_to_request_again(grant: OAuthGrant | None, configured: tuple[str, ...]) -> tuple[str, ...]:
    """What to ask for again at the next sign-in, so that nothing is lost, and what the server wanted since.

    Where the operator entered the scopes, those alone are asked for again: a scope that is gone at the
    authorization server could not be got rid of otherwise.
    """
    if grant is None:
        return ()
    return tuple(dict.fromkeys((*(() if configured else grant.requested), *grant.wanted)))


def choose_scopes(
    configured: tuple[str, ...],
    challenge: Challenge | None,
    discovery: DiscoveryResult,
    extra: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """What the operator entered, else what the server asked for, else what its metadata lists, else none;
    and ``more``. Asking for refresh tokens is added only where the authorization server lists that."""
    first = configured or scopes_in_challenge(challenge) or discovery.scopes_supported or ()
    chosen = [scope for scope in dict.fromkeys((*extra, *first)) if scope != _OFFLINE_ACCESS_SCOPE]
    # Alone it would replace the scopes that the server gives by itself.
    if chosen and _OFFLINE_ACCESS_SCOPE in (discovery.server.scopes_supported or ()):
        chosen.append(_OFFLINE_ACCESS_SCOPE)
    return tuple(chosen)
