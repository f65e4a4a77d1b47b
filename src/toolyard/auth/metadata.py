"""What a protected resource and an authorization server say about themselves, read and validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from toolyard.auth.address_policy import Reach
from toolyard.auth.errors import DiscoveryFailed
from toolyard.auth.oauth_http import Document

__all__ = ["ResourceMetadata", "ServerMetadata", "text", "texts"]


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """RFC 9728, as far as we use it."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None

    @classmethod
    def read(cls, document: Document) -> ResourceMetadata | None:
        """The metadata, or None where a document is no such thing."""
        resource = text(document, "resource")
        if resource is None:
            return None
        servers = texts(document, "authorization_servers") or ()
        return cls(resource, servers, texts(document, "scopes_supported"))


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """RFC 8414 or OpenID Connect Discovery, as far as we use it. Its endpoints were checked."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    challenge_methods: tuple[str, ...] | None = None
    token_auth_methods: tuple[str, ...] | None = None
    grant_types: tuple[str, ...] | None = None
    iss_promised: bool = False
    takes_documents: bool = False
    revocation_endpoint: str | None = None
    """Not checked: a bad one is no reason not to sign in."""

    @classmethod
    def read(cls, document: Document, issuer: str, reach: Reach) -> ServerMetadata:
        """The metadata under the issuer that it was found to have. Raises DiscoveryFailed."""
        token = text(document, "token_endpoint")
        if token is None:
            raise DiscoveryFailed(
                f"the authorization server {issuer} names no token endpoint in its metadata",
                hint="ask those who run it to correct it",
            )
        authorize, register = (
            text(document, "authorization_endpoint"),
            text(document, "registration_endpoint"),
        )
        return cls(
            issuer,
            reach.endpoint(token, "the token endpoint"),
            authorize and reach.endpoint(authorize, "the authorization endpoint"),
            register and reach.endpoint(register, "the registration endpoint"),
            texts(document, "scopes_supported"),
            texts(document, "code_challenge_methods_supported"),
            texts(document, "token_endpoint_auth_methods_supported"),
            texts(document, "grant_types_supported"),
            document.get("authorization_response_iss_parameter_supported") is True,
            document.get("client_id_metadata_document_supported") is True,
            text(document, "revocation_endpoint"),
        )

    @classmethod
    def guessed(cls, origin: str, reach: Reach) -> ServerMetadata:
        """The endpoints that a server of 2025-03-26 without metadata has."""
        return cls(
            origin,
            reach.endpoint(f"{origin}/token", "the token endpoint"),
            reach.endpoint(f"{origin}/authorize", "the authorization endpoint"),
            reach.endpoint(f"{origin}/register", "the registration endpoint"),
            challenge_methods=("S256",),
        )


def text(document: Document, name: str) -> str | None:
    """A string of a document that is there and not empty."""
    value: object = document.get(name)
    return value if isinstance(value, str) and value else None


def texts(document: Document, name: str) -> tuple[str, ...] | None:
    """The strings of a list of a document, or None where there is no list."""
    value: object = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(item for item in cast("list[object]", value) if isinstance(item, str) and item)
