"""Client authentication with a signed JWT (RFC 7523) instead of a client secret."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import Any

import orjson

from toolyard.auth.errors import RegistrationFailed

__all__ = ["CLIENT_ASSERTION_TYPE", "build_client_assertion"]

CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFETIME_SECONDS = 300


def build_client_assertion(private_key: str, client_id: str, audience: str, now: float) -> str:
    """Return a JWT for one request, signed with ES256 or RS256 depending on the key.

    Raises RegistrationFailed if the key cannot be used.
    """
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": secrets.token_urlsafe(16),
        "iat": int(now),
        "exp": int(now) + _ASSERTION_LIFETIME_SECONDS,
    }
    algorithm, sign = _load_signer(private_key)
    signed = b".".join((_encode_json({"alg": algorithm, "typ": "JWT"}), _encode_json(claims)))
    return (signed + b"." + _encode_base64url(sign(signed))).decode()


def _load_signer(private_key: str) -> tuple[str, Callable[[bytes], bytes]]:
    # Imported here because it is slow to import and only this authentication method needs it.
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    except ImportError:
        raise RegistrationFailed(
            "private keys need the package cryptography, which is not installed",
            hint="install it: pip install cryptography",
        ) from None

    hint = "it must be a PEM file with an EC key on P-256 or an RSA key of at least 2048 bits, no password"
    try:
        private = serialization.load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError):
        # Do not include the parser's message: it may quote the key file.
        raise RegistrationFailed("the private key cannot be read", hint=hint) from None
    if isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1):
        # JWS needs the plain concatenation of r and s (RFC 7518, section 3.4), not DER.
        def sign_ec(data: bytes) -> bytes:
            r, s = utils.decode_dss_signature(private.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")

        return "ES256", sign_ec
    if isinstance(private, rsa.RSAPrivateKey) and private.key_size >= 2048:

        def sign_rsa(data: bytes) -> bytes:
            return private.sign(data, padding.PKCS1v15(), hashes.SHA256())

        return "RS256", sign_rsa
    raise RegistrationFailed("the type of the private key is not supported", hint=hint)


def _encode_json(value: dict[str, Any]) -> bytes:
    return _encode_base64url(orjson.dumps(value))


def _encode_base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
