"""Selection of the scopes to request in a sign-in."""

from __future__ import annotations

from toolyard.auth.discovery import DiscoveryResult
from toolyard.auth.provider import Challenge
from toolyard.auth.records import OAuthGrant

__all__ = ["choose_scopes", "scopes_in_challenge", "scopes_to_request_again"]

_OFFLINE_ACCESS_SCOPE = "offline_access"


def scopes_in_challenge(challenge: Challenge | None) -> tuple[str, ...]:
    """Return the scopes in a challenge's ``scope`` parameter."""
    return () if challenge is None else tuple(challenge.params.get("scope", "").split())


def scopes_to_request_again(grant: OAuthGrant | None, configured: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of a grant to request again, and those that the server has demanded since.

    If scopes are configured, the previously requested ones are not repeated: otherwise a scope that no
    longer exists at the authorization server could never be removed.
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
    """Return the configured scopes, else those of the challenge, else those of the metadata; and ``extra``.

    ``offline_access``, which requests a refresh token, is added only if the authorization server lists it.
    """
    base = configured or scopes_in_challenge(challenge) or discovery.scopes_supported or ()
    chosen = [scope for scope in dict.fromkeys((*extra, *base)) if scope != _OFFLINE_ACCESS_SCOPE]
    # Requested alone, it would replace the server's default scopes.
    if chosen and _OFFLINE_ACCESS_SCOPE in (discovery.server.scopes_supported or ()):
        chosen.append(_OFFLINE_ACCESS_SCOPE)
    return tuple(chosen)
