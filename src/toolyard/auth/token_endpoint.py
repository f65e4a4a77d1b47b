"""Asking a token endpoint: codes, refresh tokens and client credentials become access tokens."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from toolyard.auth.client_assertion import ASSERTION_TYPE, client_assertion
from toolyard.auth.errors import AuthUnavailable, ClientForgotten, TokenRefused
from toolyard.auth.metadata import text
from toolyard.auth.oauth_http import Answer, Asker, Document, one_line
from toolyard.auth.records import Client, Grant

__all__ = ["FORM", "Tokens", "granted", "request_tokens", "signed_form"]

FORM = "application/x-www-form-urlencoded"
_SENDABLE = re.compile(r"[\x21-\x7e]+")
_LONGEST = 10 * 365 * 86400.0
_WHAT = "the token endpoint"
_PASSING = ("temporarily_unavailable", "server_error", "slow_down")
_SECRET = ("code", "code_verifier", "refresh_token")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a token endpoint answered, with absolute times."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    scopes: tuple[str, ...] | None
    issued_at: float
    expires_at: float | None


async def request_tokens(
    asker: Asker,
    endpoint: str,
    client: Client,
    form: Mapping[str, str],
    now: float,
    *,
    private_key: str | None = None,
) -> Tokens:
    """One request. Raises TokenRefused where it was refused, AuthUnavailable where nothing is known."""
    body, headers = signed_form(client, form, now, private_key)
    answer = await asker.post(endpoint, _WHAT, body, FORM, headers)
    # Some large ones say no with 200.
    if answer.status == 200 and answer.document is not None and text(answer.document, "error") is None:
        return _read(answer.document, now)
    raise _refusal(answer, client, [*(form.get(name) for name in _SECRET), client.secret])


def signed_form(
    client: Client, form: Mapping[str, str], now: float, private_key: str | None
) -> tuple[bytes, dict[str, str]]:
    """A form with which a client says who it is: the body, and the headers."""
    # Common servers look for the client id here even where it stands in the header, too.
    fields, headers = {**form, "client_id": client.client_id}, dict[str, str]()
    if client.auth_method == "client_secret_basic" and client.secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    elif client.auth_method == "private_key_jwt" and private_key is not None:
        fields["client_assertion_type"] = ASSERTION_TYPE
        fields["client_assertion"] = client_assertion(private_key, client.client_id, client.issuer, now)
    elif client.auth_method == "client_secret_post" and client.secret is not None:
        fields["client_secret"] = client.secret
    return urlencode(fields).encode(), headers


def _read(document: Document, now: float) -> Tokens:
    access = text(document, "access_token")
    kind = text(document, "token_type") or "Bearer"
    if access is None or not _SENDABLE.fullmatch(access) or kind.lower() != "bearer":
        raise TokenRefused(
            f"{_WHAT} answered without a bearer token that can be used",
            code="",
            hint="tell those who run the authorization server",
        )
    scope = document.get("scope")
    scopes = tuple(scope.split()) if isinstance(scope, str) and scope.strip() else None
    life = _seconds(document.get("expires_in"))
    return Tokens(access, text(document, "refresh_token"), scopes, now, None if life is None else now + life)


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return None
    return min(seconds, _LONGEST) if seconds >= 0 else None


def _refusal(answer: Answer, client: Client, secrets: list[str | None]) -> TokenRefused | AuthUnavailable:
    code = text(answer.document or {}, "error")
    if code is None or code in _PASSING or answer.status >= 500 or answer.status == 429:
        # A page of some proxy, or a server in trouble: it says nothing about our tokens.
        return AuthUnavailable(
            f"{_WHAT} of {client.issuer} answered HTTP {answer.status}",
            hint="nothing was lost; try again later",
        )
    words = one_line((answer.document or {}).get("error_description"), secrets)
    code = one_line(code, secrets, 60)
    cause = f"{_WHAT} of {client.issuer} refused: {code}" + (f" ({words})" if words else "")
    if code == "invalid_client" and client.origin == "dynamic":
        return ClientForgotten(cause, code=code, hint="sign in again: Toolyard registers itself anew")
    entered = code == "invalid_client" and client.origin == "entered"
    hint = "check clientId and clientSecret in the server's entry" if entered else "sign in again"
    return TokenRefused(cause, code=code, hint=hint)


def granted(
    tokens: Tokens,
    server_url: str,
    client: Client,
    endpoint: str,
    resource: str | None,
    requested: tuple[str, ...],
) -> Grant:
    """A grant of what a token endpoint answered."""
    return Grant(
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
