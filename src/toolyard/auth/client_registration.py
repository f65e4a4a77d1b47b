"""Client ids at authorization servers: configured by the operator, a client id metadata document, or dynamic
registration (RFC 7591)."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import orjson

from toolyard.auth.discovery import AuthorizationServerMetadata, DiscoveryResult, get_string
from toolyard.auth.errors import (
    AuthUnavailable,
    IssuerUnconfirmed,
    RegistrationFailed,
    WrongAuthorizationServer,
)
from toolyard.auth.oauth_http import (
    JsonDocument,
    OAuthHttpClient,
    OAuthHttpResponse,
    add_query,
    is_private_host,
    parse_http_url,
    sanitize_error_text,
)
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage, OAuthClient, TokenAuthMethod, same_issuer
from toolyard.types.registry import RegistrationMethod

__all__ = ["build_client_metadata_document", "confirmed_issuer", "get_or_register_client"]

_PROBE_TIMEOUT_SECONDS = 5.0
"""Time limit of the probe of the authorization endpoint."""
_MANUAL_REGISTRATION_HINT = (
    "register Toolyard there manually, and enter its client id (and secret) in the server's entry"
)


async def get_or_register_client(
    http_client: OAuthHttpClient,
    storage: AuthStorage,
    target: SignInTarget,
    client_identity: ClientIdentity,
    discovery: DiscoveryResult,
    scopes: tuple[str, ...],
    now: float,
) -> OAuthClient:
    """Return the client to use at this authorization server, and register it if necessary.

    Raises RegistrationFailed or AuthUnavailable.
    """
    server, method = discovery.server, target.registration
    if target.oauth.client_id is not None and method in (RegistrationMethod.ENTERED, RegistrationMethod.AUTO):
        return await _build_entered_client(storage, target, client_identity, server, target.oauth.client_id)
    if method is RegistrationMethod.ENTERED:
        raise RegistrationFailed(
            f"no client id was entered for the authorization server {server.issuer}",
            hint=_MANUAL_REGISTRATION_HINT,
        )
    if method is RegistrationMethod.DOCUMENT or (
        method is RegistrationMethod.AUTO and _should_use_document(client_identity, server)
    ):
        client = _build_document_client(client_identity, server)
        await storage.publish_document(server.issuer)
        return client
    redirect_uri = client_identity.redirect_uri_for(server.issuer)
    stored = await storage.get_client(server.issuer, redirect_uri)
    if (
        stored is not None
        and _can_reuse_client(stored, scopes, now)
        and not await _is_registration_lost(http_client, server, stored)
    ):
        return stored
    # Some authorization servers limit a client to the scopes of its registration, so register for all that
    # may be requested later.
    listed = set(discovery.scopes_supported or ()) - {"offline_access"}
    previous = frozenset[str]() if stored is None or stored.scopes is None else stored.scopes
    client = await _register_client(
        http_client, client_identity, redirect_uri, server, sorted({*scopes, *listed, *previous})
    )
    await storage.put_client(client)
    return client


def _can_reuse_client(client: OAuthClient, scopes: tuple[str, ...], now: float) -> bool:
    is_current = client.expires_at is None or now < client.expires_at
    return is_current and (client.scopes is None or client.scopes >= set(scopes))


async def _is_registration_lost(
    http_client: OAuthHttpClient, server: AuthorizationServerMetadata, client: OAuthClient
) -> bool:
    """Return whether the authorization server no longer has our registration.

    The server would report that only to the user, on an error page that does not redirect back. So probe the
    authorization endpoint first, with a request that has no effect.
    """
    if server.authorization_endpoint is None:
        return False
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        "state": secrets.token_urlsafe(16),
        "code_challenge": secrets.token_urlsafe(32),
        "code_challenge_method": "S256",
    }
    address = add_query(server.authorization_endpoint, query)
    status = await http_client.get_status(address, "the authorization endpoint", _PROBE_TIMEOUT_SECONDS)
    # A redirect or a page means that the client is accepted; other failures tell nothing about it.
    return status in (400, 401)


# Clients configured by the operator.


async def confirmed_issuer(storage: AuthStorage, target: SignInTarget) -> str | None:
    """Return the issuer that may receive the configured client secret, or None if it is not confirmed yet.

    It is the issuer in the server's entry, or the issuer bound to the secret by an earlier sign-in or by the
    operator. A client without a secret is bound by any sign-in, which confirms nothing for a later secret.
    """
    oauth = target.oauth
    if oauth.issuer is not None or oauth.client_id is None:
        return oauth.issuer
    return await storage.get_bound_issuer(target.url, oauth.client_id, for_secret=target.has_secret)


async def _build_entered_client(
    storage: AuthStorage,
    target: SignInTarget,
    client_identity: ClientIdentity,
    server: AuthorizationServerMetadata,
    client_id: str,
) -> OAuthClient:
    oauth = target.oauth
    expected = await confirmed_issuer(storage, target)
    if expected is not None and not same_issuer(expected, server.issuer):
        raise WrongAuthorizationServer(
            f"the server now uses the authorization server {server.issuer}, but the client id in its entry "
            f"belongs to {expected}",
            hint="if the change is legitimate, enter a client id of the new authorization server, and its"
            " issuer",
        )
    if expected is None and target.has_secret:
        # The server chooses the issuer in its metadata: a hostile or impersonated server could name its own
        # issuer to obtain the secret.
        raise IssuerUnconfirmed(
            f"the server uses the authorization server {server.issuer}, which is not confirmed: the client"
            " secret or key is not sent there",
            issuer=server.issuer,
            hint="if you registered the client there, add the issuer to the server's entry:"
            f' "issuer": "{server.issuer}"; `toolyard login` also asks for a server from a file, and an'
            " admin can confirm it on the registry server's page",
        )
    method: TokenAuthMethod = "none"
    if oauth.client_secret is not None:
        method = _choose_secret_method(server)
    elif target.private_key is not None and oauth.grant == "client_credentials":
        method = "private_key_jwt"
    redirect_uri = client_identity.redirect_uri
    if oauth.issuer_redirect:
        redirect_uri = client_identity.redirect_uri_for(server.issuer)
    return OAuthClient(server.issuer, client_id, redirect_uri, "entered", method, oauth.client_secret)


def _choose_secret_method(server: AuthorizationServerMetadata) -> TokenAuthMethod:
    offered = server.token_auth_methods
    if offered is not None and "client_secret_post" in offered and "client_secret_basic" not in offered:
        return "client_secret_post"
    return "client_secret_basic"


# Client id metadata documents.


def _should_use_document(client_identity: ClientIdentity, server: AuthorizationServerMetadata) -> bool:
    """Return whether to use a metadata document if the operator has chosen no registration method."""
    possible = (
        client_identity.document_url is not None
        and server.supports_client_id_documents
        and server.sends_iss_parameter
    )
    return possible and not (client_identity.dynamic_first and server.registration_endpoint is not None)


def _build_document_client(
    client_identity: ClientIdentity, server: AuthorizationServerMetadata
) -> OAuthClient:
    document_url = client_identity.document_url_for(server.issuer)
    if document_url is None:
        raise RegistrationFailed(
            "this deployment has no public address, which a client id metadata document needs",
            hint="set public_url to its https address, or choose another registration",
        )
    if not server.supports_client_id_documents:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} does not support client id metadata documents",
            hint="choose another registration for this server",
        )
    if not server.sends_iss_parameter:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} supports client id metadata documents, but does not"
            " promise to name itself in its responses (RFC 9207), so they could come from another server",
            hint="choose another registration for this server",
        )
    return OAuthClient(
        server.issuer, document_url, client_identity.redirect_uri_for(server.issuer), "document"
    )


def build_client_metadata_document(
    client_identity: ClientIdentity, client_id: str, redirect_uri: str
) -> dict[str, Any]:
    """Return the client id metadata document to serve at the URL ``client_id``."""
    return {
        "client_id": client_id,
        **_build_client_metadata(client_identity, redirect_uri),
        "token_endpoint_auth_method": "none",
    }


def _build_client_metadata(client_identity: ClientIdentity, redirect_uri: str) -> dict[str, Any]:
    redirect = parse_http_url(redirect_uri, "the redirect URI")
    # Only native clients may have a redirect URI without TLS, and only on the loopback interface.
    local = redirect.scheme == "http" and is_private_host(redirect.host or "")
    metadata: dict[str, Any] = {
        "client_name": client_identity.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native" if local else "web",
    }
    if client_identity.client_uri is not None:
        metadata["client_uri"] = client_identity.client_uri
    return metadata


# Dynamic registration.


async def _register_client(
    http_client: OAuthHttpClient,
    client_identity: ClientIdentity,
    redirect_uri: str,
    server: AuthorizationServerMetadata,
    scopes: list[str],
) -> OAuthClient:
    if server.registration_endpoint is None:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} does not support dynamic client registration",
            hint=_MANUAL_REGISTRATION_HINT,
        )
    client_metadata = _build_client_metadata(client_identity, redirect_uri)
    auth_method = _choose_auth_method(server, public=client_metadata["application_type"] == "native")
    without_scopes = {**client_metadata, "token_endpoint_auth_method": auth_method}
    registered_scopes: frozenset[str] | None = frozenset(scopes)
    with_scopes = {**without_scopes, "scope": " ".join(scopes)} if scopes else without_scopes
    label = "the registration endpoint"

    async def send_registration(metadata: dict[str, Any]) -> OAuthHttpResponse:
        body = orjson.dumps(metadata)
        return await http_client.post(server.registration_endpoint or "", label, body, "application/json")

    response = await send_registration(with_scopes)
    if response.status == 400 and scopes:
        # Some servers require every scope that will be requested later, others reject scopes of resources.
        response, registered_scopes = await send_registration(without_scopes), None
    if response.status in (200, 201) and response.document is not None:
        client = _parse_registration(response.document, server, redirect_uri, auth_method)
        return replace(client, scopes=registered_scopes)
    if response.status >= 500 or response.status == 429:
        raise AuthUnavailable(f"{label} answered with HTTP {response.status}", hint="try again later")
    error = response.document or {}
    reason = sanitize_error_text(error.get("error_description")) or sanitize_error_text(error.get("error"))
    raise RegistrationFailed(
        f"the authorization server {server.issuer} refused to register Toolyard: HTTP {response.status}"
        + (f", {reason}" if reason else ""),
        hint=_MANUAL_REGISTRATION_HINT,
    )


def _choose_auth_method(server: AuthorizationServerMetadata, *, public: bool) -> TokenAuthMethod:
    """Return the first supported method. Public clients cannot keep a secret, so they prefer "none"."""
    order: tuple[TokenAuthMethod, ...] = ("client_secret_basic", "client_secret_post", "none")
    if public:
        order = ("none", *order[:2])
    # RFC 8414: no list means client_secret_basic.
    offered = server.token_auth_methods or ("client_secret_basic",)
    for method in order:
        if method in offered:
            return method
    raise RegistrationFailed(
        f"the authorization server {server.issuer} offers no supported client authentication method",
        hint="the authorization server must offer client_secret_basic, client_secret_post or 'none'",
    )


def _parse_registration(
    document: JsonDocument,
    server: AuthorizationServerMetadata,
    redirect_uri: str,
    requested_method: TokenAuthMethod,
) -> OAuthClient:
    client_id, secret = get_string(document, "client_id"), get_string(document, "client_secret")
    method = _resolve_auth_method(
        get_string(document, "token_endpoint_auth_method"), secret, requested_method
    )
    if client_id is None or method is None:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} returned a registration that cannot be used",
            hint=_MANUAL_REGISTRATION_HINT,
        )
    until: object = document.get("client_secret_expires_at")
    expires = float(until) if isinstance(until, int | float) and until > 0 else None
    return OAuthClient(server.issuer, client_id, redirect_uri, "dynamic", method, secret, expires)


def _resolve_auth_method(
    registered_method: str | None, secret: str | None, requested_method: TokenAuthMethod
) -> TokenAuthMethod | None:
    """Return the method that the server registered, which may differ from the requested one.

    None if the registration is unusable: an unsupported method, or a missing secret.
    """
    if registered_method is None:
        registered_method = (
            "none"
            if secret is None
            else "client_secret_basic"
            if requested_method == "none"
            else requested_method
        )
    if registered_method == "none":
        return "none"
    if secret is None:
        return None
    if registered_method == "client_secret_post":
        return "client_secret_post"
    return "client_secret_basic" if registered_method == "client_secret_basic" else None
