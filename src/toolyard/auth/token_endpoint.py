"""Token requests: exchange codes, refresh tokens and client credentials for access tokens, and revoke them.

A client authenticates with its secret, or with a signed JWT (RFC 7523) instead of one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from toolyard.auth.discovery import fetch_server_metadata, get_string
from toolyard.auth.errors import AuthError, AuthUnavailable, ClientForgotten, RegistrationFailed, TokenRefused
from toolyard.auth.oauth_http import (
    AddressPolicy,
    JsonDocument,
    OAuthHttpClient,
    OAuthHttpResponse,
    basic_authorization,
    sanitize_error_text,
)
from toolyard.auth.sign_in_target import SignInTarget, with_current_secret
from toolyard.auth.storage import OAuthClient, OAuthGrant
from toolyard.net import OutboundHttp
from toolyard.tracing.tracer import Attributes, describe_address

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey

__all__ = [
    "TokenResponse",
    "build_client_assertion",
    "build_grant",
    "request_tokens",
    "revoke_grant",
    "revoke_tokens",
]

log = logging.getLogger("toolyard.auth")

_REVOCATION_TIMEOUT_SECONDS = 10.0
"""Time limit of the whole revocation, so that a slow authorization server does not delay a sign-out."""
_REVOCATION_LABEL = "the revocation endpoint"
_CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
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
    # Imported here because it is slow to import and only this authentication method needs it.
    from joserfc import jwt

    key = _load_private_key(private_key)
    algorithm = "ES256" if key.key_type == "EC" else "RS256"
    return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key)


def _load_private_key(pem: str) -> ECKey | RSAKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from joserfc.jwk import ECKey, RSAKey

    hint = "use a PEM file without a password, with an EC key on P-256 or an RSA key of at least 2048 bits"
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        # Do not include the parser's message: it may quote the key file.
        raise RegistrationFailed(
            "the private key of the OAuth client is not a valid PEM file", hint=hint
        ) from None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return ECKey.import_key(pem)
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= 2048:
        return RSAKey.import_key(pem)
    raise RegistrationFailed("the type of the OAuth client's private key is not supported", hint=hint)


_FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
_ACCESS_TOKEN_PATTERN = re.compile(r"[\x21-\x7e]+")
_MAX_TOKEN_LIFETIME_SECONDS = 10 * 365 * 86400.0
_ENDPOINT_LABEL = "the token endpoint"
_TEMPORARY_ERROR_CODES = ("temporarily_unavailable", "server_error", "slow_down")
_SECRET_FORM_FIELDS = ("code", "code_verifier", "refresh_token")


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """Successful response of a token endpoint, with absolute times."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    scopes: tuple[str, ...] | None
    issued_at: float
    expires_at: float | None


async def request_tokens(
    http_client: OAuthHttpClient,
    endpoint: str,
    client: OAuthClient,
    form: Mapping[str, str],
    now: float,
    *,
    private_key: str | None = None,
) -> TokenResponse:
    """Send one token request.

    Raises TokenRefused for an OAuth error, and AuthUnavailable if the outcome is unknown or temporary.
    """
    body, headers = _build_authenticated_form(client, form, now, private_key)
    attributes: Attributes = {
        "http.request.method": "POST",
        "toolyard.oauth.grant_type": form.get("grant_type"),
        **describe_address(endpoint),
    }
    with http_client.tracer.span("POST token endpoint", "client", attributes) as span:
        response = await http_client.post(endpoint, _ENDPOINT_LABEL, body, _FORM_CONTENT_TYPE, headers)
        span.set({"http.response.status_code": response.status})
        document = response.document
        # Some large providers send errors with status 200.
        if response.status == 200 and document is not None and get_string(document, "error") is None:
            return _parse_token_response(document, now)
        raise _build_token_error(
            response, client, [*(form.get(name) for name in _SECRET_FORM_FIELDS), client.secret]
        )


def _build_authenticated_form(
    client: OAuthClient, form: Mapping[str, str], now: float, private_key: str | None
) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of a form request that authenticates the client."""
    # Common servers require the client id in the form even if the Authorization header contains it.
    fields, headers = {**form, "client_id": client.client_id}, dict[str, str]()
    if client.auth_method == "client_secret_basic" and client.secret is not None:
        headers = basic_authorization(client.client_id, client.secret)
    elif client.auth_method == "private_key_jwt" and private_key is not None:
        fields["client_assertion_type"] = _CLIENT_ASSERTION_TYPE
        fields["client_assertion"] = build_client_assertion(private_key, client.client_id, client.issuer, now)
    elif client.auth_method == "client_secret_post" and client.secret is not None:
        fields["client_secret"] = client.secret
    return urlencode(fields).encode(), headers


def _parse_token_response(document: JsonDocument, now: float) -> TokenResponse:
    access_token = get_string(document, "access_token")
    token_type = get_string(document, "token_type") or "Bearer"
    if (
        access_token is None
        or not _ACCESS_TOKEN_PATTERN.fullmatch(access_token)
        or token_type.lower() != "bearer"
    ):
        raise TokenRefused(
            f"{_ENDPOINT_LABEL} returned no usable bearer token",
            code="",
            hint="contact the operator of the authorization server",
        )
    scope = document.get("scope")
    scopes = tuple(scope.split()) if isinstance(scope, str) and scope.strip() else None
    lifetime = _parse_lifetime(document.get("expires_in"))
    expires_at = None if lifetime is None else now + lifetime
    return TokenResponse(access_token, get_string(document, "refresh_token"), scopes, now, expires_at)


def _parse_lifetime(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return None
    return min(seconds, _MAX_TOKEN_LIFETIME_SECONDS) if seconds >= 0 else None


def _build_token_error(
    response: OAuthHttpResponse, client: OAuthClient, secrets: list[str | None]
) -> TokenRefused | AuthUnavailable:
    code = get_string(response.document or {}, "error")
    if code is None or code in _TEMPORARY_ERROR_CODES or response.status >= 500 or response.status == 429:
        # An error page of a proxy or a temporary failure: our tokens may still be valid.
        return AuthUnavailable(
            f"{_ENDPOINT_LABEL} of {client.issuer} answered with HTTP {response.status}",
            hint="nothing was lost; try again later",
        )
    description = sanitize_error_text((response.document or {}).get("error_description"), secrets)
    code = sanitize_error_text(code, secrets, 60)
    detail = f"{code} ({description})" if description else code
    cause = f"{_ENDPOINT_LABEL} of {client.issuer} refused: {detail}"
    if code == "invalid_client" and client.origin == "dynamic":
        return ClientForgotten(cause, code=code, hint="sign in again: Toolyard then registers itself again")
    is_configured_client = code == "invalid_client" and client.origin == "entered"
    hint = (
        "check clientId and clientSecret in the server's entry" if is_configured_client else "sign in again"
    )
    return TokenRefused(cause, code=code, hint=hint)


def build_grant(
    tokens: TokenResponse,
    server_url: str,
    client: OAuthClient,
    endpoint: str,
    resource: str | None,
    requested: tuple[str, ...],
) -> OAuthGrant:
    """Return a grant with the tokens of a response. Without ``scope`` in it, all requested scopes count."""
    return OAuthGrant(
        server_url,
        client.issuer,
        client,
        endpoint,
        resource,
        requested,
        requested if tokens.scopes is None else tokens.scopes,
        tokens.access_token,
        tokens.refresh_token,
        tokens.issued_at,
        tokens.expires_at,
    )


# Revocation.


async def revoke_grant(
    net: OutboundHttp,
    grant: OAuthGrant,
    target: SignInTarget,
    *,
    clock: Callable[[], float] = time.time,
    timeout_seconds: float = _REVOCATION_TIMEOUT_SECONDS,
) -> bool:
    """Revoke the tokens of a grant if the authorization server supports it, and return whether it succeeded.

    The grant must be out of use already. Never raises, and ends within ``timeout_seconds``. Tokens are sent
    only to the authorization server that issued them.
    """
    http_client = OAuthHttpClient(net, AddressPolicy(grant.server_url, target.private_addresses))
    return await revoke_tokens(http_client, grant, target, clock(), timeout_seconds)


async def revoke_tokens(
    http_client: OAuthHttpClient,
    grant: OAuthGrant,
    target: SignInTarget,
    now: float,
    timeout_seconds: float = _REVOCATION_TIMEOUT_SECONDS,
) -> bool:
    """Revoke the tokens of a grant with an existing HTTP client; see ``revoke_grant``."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _send_revocations(http_client, grant, target, now)
    except (AuthError, AuthUnavailable, TimeoutError) as error:
        log.info("tokens issued by %s were not revoked: %s", grant.issuer, error or "timed out")
        return False


async def _send_revocations(
    http_client: OAuthHttpClient, grant: OAuthGrant, target: SignInTarget, now: float
) -> bool:
    address = (await fetch_server_metadata(http_client, grant.issuer)).revocation_endpoint
    if address is None:
        return False
    endpoint = http_client.address_policy.check_endpoint(address, _REVOCATION_LABEL)
    client = with_current_secret(grant.client, target)
    key = target.private_key if target.trusts(grant.issuer) else None
    all_revoked = True
    # The refresh token first: most authorization servers then revoke the access tokens issued with it.
    for kind, token in (("refresh_token", grant.refresh_token), ("access_token", grant.access_token)):
        if token:
            form = {"token": token, "token_type_hint": kind}
            body, headers = _build_authenticated_form(client, form, now, key)
            response = await http_client.post(endpoint, _REVOCATION_LABEL, body, _FORM_CONTENT_TYPE, headers)
            all_revoked = all_revoked and response.status == 200
    return all_revoked
