"""Verification of the tokens of an identity provider: ID tokens, and access tokens of MCP clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from authlib.oidc.core import CodeIDToken  # pyright: ignore[reportMissingTypeStubs]
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from toolyard.accounts.errors import NotSignedIn, SignInRefused

__all__ = [
    "ExpectedClaims",
    "UnknownSigningKey",
    "is_jwt_shaped",
    "verify_access_token",
    "verify_id_token",
]


_SAFE_ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
"""Accepted asymmetric algorithms, whose signatures only the provider can make.

Excludes ``none``, and HS256, whose key is our own client secret."""
_CLOCK_LEEWAY_SECONDS = 60
"""Accepted difference between the provider's clock and ours."""


class UnknownSigningKey(Exception):
    """The token is signed with a key that is not in the key set."""


@dataclass(frozen=True, slots=True)
class ExpectedClaims:
    """Expected values for the verification of an ID token."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str | None
    algorithms: tuple[str, ...] | None
    """Algorithms that the provider lists; None if it has no list, which means RS256."""


def verify_id_token(token: str, keys: KeySet, expected: ExpectedClaims, now: float) -> dict[str, Any]:
    """Verify an ID token as OpenID Connect Core, 3.1.3.7, requires, and return its claims.

    Raises UnknownSigningKey or SignInRefused.
    """
    allowed = _allowed_algorithms(expected.algorithms)
    try:
        decoded = jwt.decode(token, keys, registry=JWSRegistry(algorithms=allowed, strict_check_header=False))
        options = {
            "iss": {"essential": True, "value": expected.issuer},
            "aud": {"essential": True, "value": expected.client_id},
            "sub": {"essential": True},
        }
        params = {
            "nonce": expected.nonce,
            "client_id": expected.client_id,
            "access_token": expected.access_token,
        }
        claims = CodeIDToken(decoded.claims, decoded.header, cast("Any", options), params)
        claims.validate(now=int(now), leeway=_CLOCK_LEEWAY_SECONDS)  # pyright: ignore[reportUnknownMemberType]
    except InvalidKeyIdError as error:
        raise UnknownSigningKey from error
    except (JoseError, ValueError, TypeError, AttributeError, KeyError) as error:
        # The token's contents are untrusted, so the message names only the kind of fault.
        claim = getattr(error, "claim", None)
        fault = f"its claim '{claim}' is wrong" if isinstance(claim, str) else _describe_error(error)
        raise SignInRefused(
            f"the identity provider's ID token is not accepted: {fault}",
            hint="sign in again; if it fails again, check oidc_issuer, oidc_client_id and this machine's"
            " clock",
        ) from error
    return dict(cast("dict[str, Any]", claims))


def _allowed_algorithms(listed: Iterable[str] | None) -> list[str]:
    allowed = [name for name in (("RS256",) if listed is None else listed) if name in _SAFE_ALGORITHMS]
    # For an empty list the library would use its default algorithms.
    return allowed or ["RS256"]


def _describe_error(error: Exception) -> str:
    if isinstance(error, JoseError):
        return str(error.error).replace("_", " ")
    return "it cannot be decoded"


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
            token, keys, registry=JWSRegistry(algorithms=list(_SAFE_ALGORITHMS), strict_check_header=False)
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
    if not (isinstance(claims.get("exp"), int | float) and now <= claims["exp"] + _CLOCK_LEEWAY_SECONDS):
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
    return moment is None or (isinstance(moment, int | float) and moment <= now + _CLOCK_LEEWAY_SECONDS)


def _list_strings(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _build_refusal(fault: str) -> NotSignedIn:
    return NotSignedIn(f"this access token is not accepted: {fault}", hint="sign in again")
