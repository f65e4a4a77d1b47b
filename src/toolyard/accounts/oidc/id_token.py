"""Verification of ID tokens: signature, issuer, audience, nonce and lifetime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from authlib.oidc.core import CodeIDToken  # pyright: ignore[reportMissingTypeStubs]
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from toolyard.accounts.errors import SignInRefused

__all__ = [
    "CLOCK_LEEWAY_SECONDS",
    "SAFE_ALGORITHMS",
    "ExpectedClaims",
    "UnknownSigningKey",
    "parse_key_set",
    "verify_id_token",
]

SAFE_ALGORITHMS = (
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
CLOCK_LEEWAY_SECONDS = 60
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


def parse_key_set(document: Mapping[str, Any]) -> KeySet:
    """Parse a JSON Web Key Set. Raises ValueError."""
    try:
        return KeySet.import_key_set(cast("Any", document))
    except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("not a valid key set") from error


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
        claims.validate(now=int(now), leeway=CLOCK_LEEWAY_SECONDS)  # pyright: ignore[reportUnknownMemberType]
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
    allowed = [name for name in (("RS256",) if listed is None else listed) if name in SAFE_ALGORITHMS]
    # For an empty list the library would use its default algorithms.
    return allowed or ["RS256"]


def _describe_error(error: Exception) -> str:
    if isinstance(error, JoseError):
        return str(error.error).replace("_", " ")
    return "it cannot be decoded"
