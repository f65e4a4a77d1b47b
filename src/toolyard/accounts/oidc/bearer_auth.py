"""People who come with an access token of the identity provider, as MCP clients that sign in by themselves
do."""

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
"""What a token's header may say that it is. Some providers say only that it is signed."""


def is_jwt_shaped(token: str) -> bool:
    """Whether this could be one at all: three parts, and not longer than any of them is."""
    return token.count(".") == 2 and len(token) <= _MAX_TOKEN_CHARACTERS


def verify_access_token(
    token: str, keys: KeySet, *, issuer: str, audiences: Collection[str], now: float
) -> dict[str, Any]:
    """Its claims. ``audiences`` are those of which it must name one.

    Raises UnknownKey, or NotSignedIn, which says what kind of fault it has.
    """
    try:
        read = jwt.decode(
            token, keys, registry=JWSRegistry(algorithms=list(SAFE_ALGORITHMS), strict_check_header=False)
        )
    except InvalidKeyIdError as error:
        raise UnknownSigningKey from error
    except (JoseError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise _build_refusal("its signature is not the identity provider's") from error
    fault = _find_claim_fault(read.header, read.claims, issuer, audiences, now)
    if fault is not None:
        raise _build_refusal(fault)
    return dict(read.claims)


def _find_claim_fault(
    header: Mapping[str, Any],
    claims: Mapping[str, Any],
    issuer: str,
    audiences: Collection[str],
    now: float,
) -> str | None:
    sub = claims.get("sub")
    if str(header.get("typ") or "").lower() not in _ACCEPTED_TYP_VALUES:
        return "it is no access token"
    if claims.get("iss") != issuer:
        return "it is of another issuer"
    if not set(_list_strings(claims.get("aud"))) & set(audiences):
        return "it is for another audience"
    if not (isinstance(claims.get("exp"), int | float) and now <= claims["exp"] + CLOCK_LEEWAY_SECONDS):
        return "it has run out"
    if not _is_past(claims.get("nbf"), now) or not _is_past(claims.get("iat"), now):
        return "it is not good yet"
    if "cnf" in claims:
        return "it is bound to a key, and nobody here can check that"
    if not isinstance(sub, str) or not sub or sub in (claims.get("client_id"), claims.get("azp")):
        return "it is of a program, and not of a person"
    return None


def _is_past(moment: object, now: float) -> bool:
    return moment is None or (isinstance(moment, int | float) and moment <= now + CLOCK_LEEWAY_SECONDS)


def _list_strings(value: object) -> list[str]:
    many = cast("list[object]", value) if isinstance(value, list) else [value]
    return [one for one in many if isinstance(one, str)]


def _build_refusal(fault: str) -> NotSignedIn:
    return NotSignedIn(f"this access token is not accepted: {fault}", hint="sign in again")


class BearerAuthenticator:
    """The identity provider of the settings, as the authorization server of the gateway. Of a token nothing
    is kept."""

    def __init__(
        self, settings: Settings, net: OutboundHttp, *, clock: Callable[[], float] = time.time
    ) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise NotAllowed("no identity provider is set", hint="set oidc_issuer and oidc_client_id")
        self._issuer = settings.oidc_issuer
        self._clock = clock
        self._provider = OidcProvider(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret, net, clock
        )

    async def issuer(self) -> str:
        """The provider's own name for itself; the one of the settings while it cannot be asked."""
        try:
            return (await self._provider.get_metadata()).issuer
        except ProviderFailed:
            return self._issuer

    async def authenticate(self, token: str, audiences: Collection[str]) -> Identity:
        """Who it is of. Raises NotSignedIn where it is not accepted, ProviderFailed where nobody can tell."""
        issuer = (await self._provider.get_metadata()).issuer
        for again in (False, True):
            keys = await self._provider.get_keys(refresh=again)
            try:
                claims = verify_access_token(
                    token, keys, issuer=issuer, audiences=audiences, now=self._clock()
                )
            except UnknownSigningKey:
                continue
            try:
                return parse_identity(issuer, claims)
            except SignInRefused as refused:
                raise NotSignedIn(refused.cause, hint=refused.hint) from None
        # Whoever made it up may name any key, so this is not the provider's fault.
        raise NotSignedIn("this access token is not accepted: its key is unknown", hint="sign in again")
