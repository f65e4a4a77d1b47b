"""Is this access token the provider's own, for us, of a person, and still good? (RFC 9068)"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from toolyard.accounts.errors import NotSignedIn
from toolyard.accounts.oidc.id_token import LEEWAY, SAFE, UnknownKey

__all__ = ["checked_access", "looks_signed"]

_LONGEST = 16_384
_KINDS = ("", "jwt", "at+jwt", "application/at+jwt")
"""What a token's header may say that it is. Some providers say only that it is signed."""


def looks_signed(token: str) -> bool:
    """Whether this could be one at all: three parts, and not longer than any of them is."""
    return token.count(".") == 2 and len(token) <= _LONGEST


def checked_access(
    token: str, keys: KeySet, *, issuer: str, audiences: Collection[str], now: float
) -> dict[str, Any]:
    """Its claims. ``audiences`` are those of which it must name one.

    Raises UnknownKey, or NotSignedIn, which says what kind of fault it has.
    """
    try:
        read = jwt.decode(token, keys, registry=JWSRegistry(algorithms=list(SAFE), strict_check_header=False))
    except InvalidKeyIdError as error:
        raise UnknownKey from error
    except (JoseError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise _refused("its signature is not the identity provider's") from error
    fault = _fault(read.header, read.claims, issuer, audiences, now)
    if fault is not None:
        raise _refused(fault)
    return dict(read.claims)


def _fault(
    header: Mapping[str, Any],
    claims: Mapping[str, Any],
    issuer: str,
    audiences: Collection[str],
    now: float,
) -> str | None:
    sub = claims.get("sub")
    if str(header.get("typ") or "").lower() not in _KINDS:
        return "it is no access token"
    if claims.get("iss") != issuer:
        return "it is of another issuer"
    if not set(_texts(claims.get("aud"))) & set(audiences):
        return "it is for another audience"
    if not (isinstance(claims.get("exp"), int | float) and now <= claims["exp"] + LEEWAY):
        return "it has run out"
    if not _past(claims.get("nbf"), now) or not _past(claims.get("iat"), now):
        return "it is not good yet"
    if "cnf" in claims:
        return "it is bound to a key, and nobody here can check that"
    if not isinstance(sub, str) or not sub or sub in (claims.get("client_id"), claims.get("azp")):
        return "it is of a program, and not of a person"
    return None


def _past(moment: object, now: float) -> bool:
    return moment is None or (isinstance(moment, int | float) and moment <= now + LEEWAY)


def _texts(value: object) -> list[str]:
    many = cast("list[object]", value) if isinstance(value, list) else [value]
    return [one for one in many if isinstance(one, str)]


def _refused(fault: str) -> NotSignedIn:
    return NotSignedIn(f"this access token is not accepted: {fault}", hint="sign in again")
