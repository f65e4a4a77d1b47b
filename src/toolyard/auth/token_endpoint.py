"""Asking a token endpoint: codes, refresh tokens and client credentials become access tokens."""

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
    """What a token endpoint answered, with absolute times."""

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
    """One request. Raises TokenRefused where it was refused, AuthUnavailable where nothing is known."""
    body, headers = build_authenticated_form(client, form, now, private_key)
    answer = await http_client.post(endpoint, _ENDPOINT_LABEL, body, FORM_CONTENT_TYPE, headers)
    # Some large ones say no with 200.
    if answer.status == 200 and answer.document is not None and get_string(answer.document, "error") is None:
        return _parse_token_response(answer.document, now)
    raise _build_token_error(
        answer, client, [*(form.get(name) for name in _SECRET_FORM_FIELDS), client.secret]
    )


def build_authenticated_form(
    client: OAuthClient, form: Mapping[str, str], now: float, private_key: str | None
) -> tuple[bytes, dict[str, str]]:
    """A form with which a client says who it is: the body, and the headers."""
    # Common servers look for the client id here even where it stands in the header, too.
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
    access = get_string(document, "access_token")
    kind = get_string(document, "token_type") or "Bearer"
    if access is None or not _ACCESS_TOKEN_PATTERN.fullmatch(access) or kind.lower() != "bearer":
        raise TokenRefused(
            f"{_ENDPOINT_LABEL} answered without a bearer token that can be used",
            code="",
            hint="tell those who run the authorization server",
        )
    scope = document.get("scope")
    scopes = tuple(scope.split()) if isinstance(scope, str) and scope.strip() else None
    life = _parse_lifetime(document.get("expires_in"))
    return TokenResponse(
        access, get_string(document, "refresh_token"), scopes, now, None if life is None else now + life
    )


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
        # A page of some proxy, or a server in trouble: it says nothing about our tokens.
        return AuthUnavailable(
            f"{_ENDPOINT_LABEL} of {client.issuer} answered HTTP {response.status}",
            hint="nothing was lost; try again later",
        )
    words = sanitize_error_text((response.document or {}).get("error_description"), secrets)
    code = sanitize_error_text(code, secrets, 60)
    cause = f"{_ENDPOINT_LABEL} of {client.issuer} refused: {code}" + (f" ({words})" if words else "")
    if code == "invalid_client" and client.origin == "dynamic":
        return ClientForgotten(cause, code=code, hint="sign in again: Toolyard registers itself anew")
    entered = code == "invalid_client" and client.origin == "entered"
    hint = "check clientId and clientSecret in the server's entry" if entered else "sign in again"
    return TokenRefused(cause, code=code, hint=hint)


def build_grant(
    tokens: TokenResponse,
    server_url: str,
    client: OAuthClient,
    endpoint: str,
    resource: str | None,
    requested: tuple[str, ...],
) -> OAuthGrant:
    """A grant of what a token endpoint answered."""
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
