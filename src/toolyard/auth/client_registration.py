"""A client id for an authorization server: what the operator entered, our document, or a registration."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from toolyard.auth.address_policy import is_local, read_url
from toolyard.auth.discovery import Found
from toolyard.auth.errors import (
    AuthUnavailable,
    IssuerUnconfirmed,
    RegistrationFailed,
    WrongAuthorizationServer,
)
from toolyard.auth.metadata import ServerMetadata, text
from toolyard.auth.oauth_http import Answer, Asker, Document, one_line
from toolyard.auth.records import AuthMethod, Client, same_issuer
from toolyard.auth.sign_in_target import Ourselves, Target
from toolyard.auth.storage import AuthStorage
from toolyard.types.registry import Registration

__all__ = ["client_document", "client_for", "confirmed_issuer"]

_LOOK = 5.0
"""Seconds for a look at the authorization endpoint."""
_BY_HAND = "register Toolyard there by hand, and enter its client id (and secret) in the server's entry"


async def client_for(
    asker: Asker,
    storage: AuthStorage,
    target: Target,
    ourselves: Ourselves,
    found: Found,
    scopes: tuple[str, ...],
    now: float,
) -> Client:
    """The client to use at this authorization server, registered now if need be.

    Raises RegistrationFailed or AuthUnavailable.
    """
    server, way = found.server, target.registration
    if target.oauth.client_id is not None and way in (Registration.ENTERED, Registration.AUTO):
        return await _entered(storage, target, ourselves, server, target.oauth.client_id)
    if way is Registration.ENTERED:
        raise RegistrationFailed(
            f"no client id was entered for the authorization server {server.issuer}", hint=_BY_HAND
        )
    if way is Registration.DOCUMENT or (way is Registration.AUTO and _by_document(ourselves, server)):
        client = _documented(ourselves, server)
        await storage.publish_document(server.issuer)
        return client
    redirect_uri = ourselves.redirect_for(server.issuer)
    kept = await storage.client(server.issuer, redirect_uri)
    if kept is not None and _fits(kept, scopes, now) and not await _forgotten(asker, server, kept):
        return kept
    listed = set(found.scopes_supported or ()) - {"offline_access"}
    before = frozenset[str]() if kept is None or kept.scopes is None else kept.scopes
    client = await _register(asker, ourselves, redirect_uri, server, sorted({*scopes, *listed, *before}))
    await storage.put_client(client)
    return client


def _fits(kept: Client, scopes: tuple[str, ...], now: float) -> bool:
    lasts = kept.expires_at is None or now < kept.expires_at
    return lasts and (kept.scopes is None or kept.scopes >= set(scopes))


async def _forgotten(asker: Asker, server: ServerMetadata, kept: Client) -> bool:
    """Whether the authorization server has lost our registration. It would tell only the person whom we send
    there, on a page from which no way leads back; so we look first, with a question of no consequence."""
    if server.authorization_endpoint is None:
        return False
    query = {
        "response_type": "code",
        "client_id": kept.client_id,
        "redirect_uri": kept.redirect_uri,
        "state": secrets.token_urlsafe(16),
        "code_challenge": secrets.token_urlsafe(32),
        "code_challenge_method": "S256",
    }
    base = server.authorization_endpoint.partition("#")[0]
    address = f"{base}{'&' if '?' in base else '?'}{urlencode(query, quote_via=quote)}"
    status = await asker.status(address, "the authorization endpoint", _LOOK)
    return status in (400, 401)


# Entered by the operator.


async def confirmed_issuer(storage: AuthStorage, target: Target) -> str | None:
    """Return the issuer that may be sent the entered secret: the one that the entry names, or the one that
    an earlier sign-in or the operator bound to the client id. None if there is none yet."""
    oauth = target.oauth
    if oauth.issuer is not None or oauth.client_id is None:
        return oauth.issuer
    return await storage.bound_issuer(target.url, oauth.client_id)


async def _entered(
    storage: AuthStorage, target: Target, ourselves: Ourselves, server: ServerMetadata, client_id: str
) -> Client:
    oauth = target.oauth
    expected = await confirmed_issuer(storage, target)
    if expected is not None and not same_issuer(expected, server.issuer):
        raise WrongAuthorizationServer(
            f"the server now signs in at {server.issuer}, but the client id that was entered "
            f"belongs to {expected}",
            hint="if the move is right, enter a client id of the new authorization server, and its issuer",
        )
    if expected is None and target.has_secret:
        # Whoever runs the server, or speaks in its place, chooses the issuer that it names.
        raise IssuerUnconfirmed(
            f"the server signs in at {server.issuer}, which nobody confirmed: the client secret or key is not"
            " sent there",
            issuer=server.issuer,
            hint="if you registered the client there, add it to the server's entry:"
            f' "issuer": "{server.issuer}"; for a server of a file, `toolyard login` asks as well,'
            " for one of the registry an admin confirms it on its page",
        )
    method: AuthMethod = "none"
    if oauth.client_secret is not None:
        method = _secret_method(server)
    elif target.private_key is not None and oauth.grant == "client_credentials":
        method = "private_key_jwt"
    redirect_uri = ourselves.redirect_uri
    if oauth.issuer_redirect:
        redirect_uri = ourselves.redirect_for(server.issuer)
    return Client(server.issuer, client_id, redirect_uri, "entered", method, oauth.client_secret)


def _secret_method(server: ServerMetadata) -> AuthMethod:
    offered = server.token_auth_methods
    if offered is not None and "client_secret_post" in offered and "client_secret_basic" not in offered:
        return "client_secret_post"
    return "client_secret_basic"


# Our document.


def _by_document(ourselves: Ourselves, server: ServerMetadata) -> bool:
    """Whether a document is the way to go where the operator leaves it to us."""
    possible = ourselves.document_url is not None and server.takes_documents and server.iss_promised
    return possible and not (ourselves.dynamic_first and server.registration_endpoint is not None)


def _documented(ourselves: Ourselves, server: ServerMetadata) -> Client:
    document_url = ourselves.document_for(server.issuer)
    if document_url is None:
        raise RegistrationFailed(
            "this deployment has no public address at which a client id metadata document could be read",
            hint="set public_url to its https address, or choose another registration",
        )
    if not server.takes_documents:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} takes no client id metadata documents",
            hint="choose another registration for this server",
        )
    if not server.iss_promised:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} takes client id metadata documents, but does not"
            " promise to name itself in its answers (RFC 9207), so that they could be another's",
            hint="choose another registration for this server",
        )
    return Client(server.issuer, document_url, ourselves.redirect_for(server.issuer), "document")


def client_document(ourselves: Ourselves, client_id: str, redirect_uri: str) -> dict[str, Any]:
    """Return the client id metadata document that is served at ``client_id``."""
    return {
        "client_id": client_id,
        **_facts(ourselves, redirect_uri),
        "token_endpoint_auth_method": "none",
    }


def _facts(ourselves: Ourselves, redirect_uri: str) -> dict[str, Any]:
    redirect = read_url(redirect_uri, "the redirect address")
    # Only a native client may come back without encryption, and only to its own machine.
    local = redirect.scheme == "http" and is_local(redirect.host or "")
    facts: dict[str, Any] = {
        "client_name": ourselves.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native" if local else "web",
    }
    if ourselves.client_uri is not None:
        facts["client_uri"] = ourselves.client_uri
    return facts


# Dynamic registration.


async def _register(
    asker: Asker, ourselves: Ourselves, redirect_uri: str, server: ServerMetadata, scopes: list[str]
) -> Client:
    if server.registration_endpoint is None:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} registers no clients by itself",
            hint=_BY_HAND,
        )
    facts = _facts(ourselves, redirect_uri)
    wanted = _wanted_method(server, public=facts["application_type"] == "native")
    asked = {**facts, "token_endpoint_auth_method": wanted}
    limit: frozenset[str] | None = frozenset(scopes)
    with_scopes = {**asked, "scope": " ".join(scopes)} if scopes else asked
    what = "the registration endpoint"

    async def ask(words: dict[str, Any]) -> Answer:
        body = orjson.dumps(words)
        return await asker.post(server.registration_endpoint or "", what, body, "application/json")

    answer = await ask(with_scopes)
    if answer.status == 400 and scopes:
        # Some want to hear every scope that will be asked for, others refuse those of a resource.
        answer, limit = await ask(asked), None
    if answer.status in (200, 201) and answer.document is not None:
        client = _registered(answer.document, server, redirect_uri, wanted)
        return replace(client, scopes=limit)
    if answer.status >= 500 or answer.status == 429:
        raise AuthUnavailable(f"{what} answered HTTP {answer.status}", hint="try again later")
    said = answer.document or {}
    words = one_line(said.get("error_description")) or one_line(said.get("error"))
    raise RegistrationFailed(
        f"the authorization server {server.issuer} refused to register us: HTTP {answer.status}"
        + (f", {words}" if words else ""),
        hint=_BY_HAND,
    )


def _wanted_method(server: ServerMetadata, *, public: bool) -> AuthMethod:
    """A program on somebody's machine keeps no secret, so it asks for none where it may choose."""
    order: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post", "none")
    if public:
        order = ("none", *order[:2])
    # RFC 8414: no list means client_secret_basic.
    offered = server.token_auth_methods or ("client_secret_basic",)
    for method in order:
        if method in offered:
            return method
    raise RegistrationFailed(
        f"the authorization server {server.issuer} offers no way to authenticate that we know",
        hint="it must offer none, client_secret_basic or client_secret_post",
    )


def _registered(document: Document, server: ServerMetadata, redirect_uri: str, wanted: AuthMethod) -> Client:
    client_id, secret = text(document, "client_id"), text(document, "client_secret")
    method = _registered_method(text(document, "token_endpoint_auth_method"), secret, wanted)
    if client_id is None or method is None:
        raise RegistrationFailed(
            f"the authorization server {server.issuer} registered us in a way that cannot be used",
            hint=_BY_HAND,
        )
    until: object = document.get("client_secret_expires_at")
    expires = float(until) if isinstance(until, int | float) and until > 0 else None
    return Client(server.issuer, client_id, redirect_uri, "dynamic", method, secret, expires)


def _registered_method(said: str | None, secret: str | None, wanted: AuthMethod) -> AuthMethod | None:
    """What the server registered counts, not what we asked for. None: nothing that can be used."""
    if said is None:
        said = "none" if secret is None else "client_secret_basic" if wanted == "none" else wanted
    if said == "none":
        return "none"
    if secret is None:
        return None
    if said == "client_secret_post":
        return "client_secret_post"
    return "client_secret_basic" if said == "client_secret_basic" else None
