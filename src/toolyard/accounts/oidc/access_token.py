"""Is this access token the provider's own, for us, of a person, and still good? (RFC 9068)"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from toolyard.accounts.errors import NotSignedIn
from toolyard.accounts.oidc.id_token import CLOCK_LEEWAY_SECONDS, SAFE_ALGORITHMS, UnknownSigningKey

__all__ = ["is_jwt_shaped", "verify_access_token"]

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
