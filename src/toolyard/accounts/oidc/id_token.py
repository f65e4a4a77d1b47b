"""Is this ID token the provider's own, for us, for this sign-in, and still good?"""

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
"""Signatures that only the provider can make. Not ``none``; not HS256, whose key we hold ourselves."""
CLOCK_LEEWAY_SECONDS = 60
"""Seconds by which our clocks may differ."""


class UnknownSigningKey(Exception):
    """The token is signed with a key that is not among those we know."""


@dataclass(frozen=True, slots=True)
class ExpectedClaims:
    """What the token must say."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str | None
    algorithms: tuple[str, ...] | None
    """Those that the provider lists; None where it lists none, which means RS256."""


def parse_key_set(document: Mapping[str, Any]) -> KeySet:
    """The provider's keys. Raises ValueError."""
    try:
        return KeySet.import_key_set(cast("Any", document))
    except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("no key set") from error


def verify_id_token(token: str, keys: KeySet, expected: ExpectedClaims, now: float) -> dict[str, Any]:
    """The claims, checked as OpenID Connect Core, 3.1.3.7, asks. Raises UnknownKey or SignInRefused."""
    allowed = _allowed_algorithms(expected.algorithms)
    try:
        read = jwt.decode(token, keys, registry=JWSRegistry(algorithms=allowed, strict_check_header=False))
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
        claims = CodeIDToken(read.claims, read.header, cast("Any", options), params)
        claims.validate(now=int(now), leeway=CLOCK_LEEWAY_SECONDS)  # pyright: ignore[reportUnknownMemberType]
    except InvalidKeyIdError as error:
        raise UnknownSigningKey from error
    except (JoseError, ValueError, TypeError, AttributeError, KeyError) as error:
        # What it holds is written by somebody else, so only the kind of fault is told.
        what = getattr(error, "claim", None)
        fault = f"its claim '{what}' is wrong" if isinstance(what, str) else _describe_error(error)
        raise SignInRefused(
            f"the identity provider's ID token is not accepted: {fault}",
            hint="begin again; if it stays so, check oidc_issuer, oidc_client_id and this machine's clock",
        ) from error
    return dict(cast("dict[str, Any]", claims))


def _allowed_algorithms(listed: Iterable[str] | None) -> list[str]:
    allowed = [name for name in (("RS256",) if listed is None else listed) if name in SAFE_ALGORITHMS]
    # An empty list would mean the library's own choice.
    return allowed or ["RS256"]


def _describe_error(error: Exception) -> str:
    if isinstance(error, JoseError):
        return str(error.error).replace("_", " ")
    return "it cannot be read"
