"""Authentication with access tokens of the identity provider, sent by MCP clients that sign in there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import NotAllowed, NotSignedIn, ProviderFailed, SignInRefused
from toolyard.accounts.oidc.claims import parse_identity
from toolyard.accounts.oidc.id_token import CLOCK_LEEWAY_SECONDS, SAFE_ALGORITHMS, UnknownSigningKey
from toolyard.accounts.oidc.provider import OidcProvider
from toolyard.config.settings.table import Settings
from toolyard.net import OutboundHttp

__all__ = ["BearerAuthenticator", "is_jwt_shaped", "verify_access_token"]


_MAX_TOKEN_CHARACTERS = 16_384
_ACCEPTED_TYP_VALUES = ("", "jwt", "at+jwt", "application/at+jwt")
"""Accepted values of the JOSE header ``typ``. Some providers omit it or send only "JWT"."""


def is_jwt_shaped(token: str) -> bool:
    """Return whether a token could be a JWT: three parts, and not longer than the limit."""
    return token.count(".") == 2 and len(token) <= _MAX_TOKEN_CHARACTERS


def verify_access_token(
    token: str, keys: KeySet, *, issuer: str, audiences: Collection[str], now: float
) -> dict[str, Any]:
    """Verify an access token, and return its claims. Its audience must contain one of ``audiences``.

    Raises UnknownSigningKey, or NotSignedIn with the kind of fault.
    """
    try:
        decoded = jwt.decode(
            token, keys, registry=JWSRegistry(algorithms=list(SAFE_ALGORITHMS), strict_check_header=False)
        )
    except InvalidKeyIdError as error:
        raise UnknownSigningKey from error
    except (JoseError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise _build_refusal("its signature is not the identity provider's") from error
    fault = _find_claim_fault(decoded.header, decoded.claims, issuer, audiences, now)
    if fault is not None:
        raise _build_refusal(fault)
    return dict(decoded.claims)


def _find_claim_fault(
    header: Mapping[str, Any],
    claims: Mapping[str, Any],
    issuer: str,
    audiences: Collection[str],
    now: float,
) -> str | None:
    sub = claims.get("sub")
    if str(header.get("typ") or "").lower() not in _ACCEPTED_TYP_VALUES:
        return "it is not an access token"
    if claims.get("iss") != issuer:
        return "it is from another issuer"
    if not set(_list_strings(claims.get("aud"))) & set(audiences):
        return "it is for another audience"
    if not (isinstance(claims.get("exp"), int | float) and now <= claims["exp"] + CLOCK_LEEWAY_SECONDS):
        return "it has expired"
    if not _is_past(claims.get("nbf"), now) or not _is_past(claims.get("iat"), now):
        return "it is not valid yet"
    if "cnf" in claims:
        # Sender-constrained tokens (DPoP, mutual TLS): accepting one without its proof would defeat them.
        return "it is bound to a key, which is not supported"
    if not isinstance(sub, str) or not sub or sub in (claims.get("client_id"), claims.get("azp")):
        return "it belongs to a program, not to a person"
    return None


def _is_past(moment: object, now: float) -> bool:
    return moment is None or (isinstance(moment, int | float) and moment <= now + CLOCK_LEEWAY_SECONDS)


def _list_strings(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _build_refusal(fault: str) -> NotSignedIn:
    return NotSignedIn(f"this access token is not accepted: {fault}", hint="sign in again")


class BearerAuthenticator:
    """Verifies tokens of the configured identity provider, the gateway's authorization server.

    Tokens are not stored.
    """

    def __init__(
        self, settings: Settings, net: OutboundHttp, *, clock: Callable[[], float] = time.time
    ) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise NotAllowed("no identity provider is configured", hint="set oidc_issuer and oidc_client_id")
        self._issuer = settings.oidc_issuer
        self._clock = clock
        self._provider = OidcProvider(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret, net, clock
        )

    async def get_issuer(self) -> str:
        """Return the issuer in the provider's metadata, or the configured one if it cannot be fetched."""
        try:
            return (await self._provider.get_metadata()).issuer
        except ProviderFailed:
            return self._issuer

    async def authenticate(self, token: str, audiences: Collection[str]) -> Identity:
        """Return the identity of a token's user.

        Raises NotSignedIn if the token is not accepted, and ProviderFailed if it cannot be verified.
        """
        issuer = (await self._provider.get_metadata()).issuer
        # An unknown key may be new: fetch the key set again before the token is refused.
        for refresh in (False, True):
            keys = await self._provider.get_keys(refresh=refresh)
            try:
                claims = verify_access_token(
                    token, keys, issuer=issuer, audiences=audiences, now=self._clock()
                )
            except UnknownSigningKey:
                continue
            try:
                return parse_identity(issuer, claims)
            except SignInRefused as error:
                raise NotSignedIn(error.cause, hint=error.hint) from None
        # A forged token may name any key, so this is not reported as a fault of the provider.
        raise NotSignedIn(
            "this access token is not accepted: it was signed with an unknown key", hint="sign in again"
        )
