"""Token requests: exchange codes, refresh tokens and client credentials for access tokens."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from toolyard.auth.client_assertion import CLIENT_ASSERTION_TYPE, build_client_assertion
from toolyard.auth.errors import AuthUnavailable, ClientForgotten, TokenRefused
from toolyard.auth.metadata import get_string
from toolyard.auth.oauth_http import JsonDocument, OAuthHttpClient, OAuthHttpResponse, sanitize_error_text
from toolyard.auth.records import OAuthClient, OAuthGrant

__all__ = ["FORM_CONTENT_TYPE", "TokenResponse", "build_authenticated_form", "build_grant", "request_tokens"]

FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
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
    body, headers = build_authenticated_form(client, form, now, private_key)
    response = await http_client.post(endpoint, _ENDPOINT_LABEL, body, FORM_CONTENT_TYPE, headers)
    document = response.document
    # Some large providers send errors with status 200.
    if response.status == 200 and document is not None and get_string(document, "error") is None:
        return _parse_token_response(document, now)
    raise _build_token_error(
        response, client, [*(form.get(name) for name in _SECRET_FORM_FIELDS), client.secret]
    )


def build_authenticated_form(
    client: OAuthClient, form: Mapping[str, str], now: float, private_key: str | None
) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of a form request that authenticates the client."""
    # Common servers require the client id in the form even if the Authorization header contains it.
    fields, headers = {**form, "client_id": client.client_id}, dict[str, str]()
    if client.auth_method == "client_secret_basic" and client.secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    elif client.auth_method == "private_key_jwt" and private_key is not None:
        fields["client_assertion_type"] = CLIENT_ASSERTION_TYPE
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
            f"{_ENDPOINT_LABEL} of {client.issuer} answered HTTP {response.status}",
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
