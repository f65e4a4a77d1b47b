"""What a protected resource and an authorization server say about themselves, read and validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from toolyard.auth.address_policy import AddressPolicy
from toolyard.auth.errors import DiscoveryFailed
from toolyard.auth.oauth_http import JsonDocument

__all__ = ["AuthorizationServerMetadata", "ProtectedResourceMetadata", "get_string", "get_strings"]


@dataclass(frozen=True, slots=True)
class ProtectedResourceMetadata:
    """RFC 9728, as far as we use it."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None

    @classmethod
    def from_document(cls, document: JsonDocument) -> ProtectedResourceMetadata | None:
        """The metadata, or None where a document is no such thing."""
        resource = get_string(document, "resource")
        if resource is None:
            return None
        servers = get_strings(document, "authorization_servers") or ()
        return cls(resource, servers, get_strings(document, "scopes_supported"))


@dataclass(frozen=True, slots=True)
class AuthorizationServerMetadata:
    """RFC 8414 or OpenID Connect Discovery, as far as we use it. Its endpoints were checked."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    code_challenge_methods: tuple[str, ...] | None = None
    token_auth_methods: tuple[str, ...] | None = None
    grant_types: tuple[str, ...] | None = None
    sends_iss_parameter: bool = False
    supports_client_id_documents: bool = False
    revocation_endpoint: str | None = None
    """Not checked: a bad one is no reason not to sign in."""

    @classmethod
    def from_document(
        cls, document: JsonDocument, issuer: str, address_policy: AddressPolicy
    ) -> AuthorizationServerMetadata:
        """The metadata under the issuer that it was found to have. Raises DiscoveryFailed."""
        token = get_string(document, "token_endpoint")
        if token is None:
            raise DiscoveryFailed(
                f"the authorization server {issuer} names no token endpoint in its metadata",
                hint="ask those who run it to correct it",
            )
        authorize, register = (
            get_string(document, "authorization_endpoint"),
            get_string(document, "registration_endpoint"),
        )
        return cls(
            issuer,
            address_policy.check_endpoint(token, "the token endpoint"),
            authorize and address_policy.check_endpoint(authorize, "the authorization endpoint"),
            register and address_policy.check_endpoint(register, "the registration endpoint"),
            get_strings(document, "scopes_supported"),
            get_strings(document, "code_challenge_methods_supported"),
            get_strings(document, "token_endpoint_auth_methods_supported"),
            get_strings(document, "grant_types_supported"),
            document.get("authorization_response_iss_parameter_supported") is True,
            document.get("client_id_metadata_document_supported") is True,
            get_string(document, "revocation_endpoint"),
        )

    @classmethod
    def with_default_endpoints(
        cls, origin: str, address_policy: AddressPolicy
    ) -> AuthorizationServerMetadata:
        """The endpoints that a server of 2025-03-26 without metadata has."""
        return cls(
            origin,
            address_policy.check_endpoint(f"{origin}/token", "the token endpoint"),
            address_policy.check_endpoint(f"{origin}/authorize", "the authorization endpoint"),
            address_policy.check_endpoint(f"{origin}/register", "the registration endpoint"),
            code_challenge_methods=("S256",),
        )


def get_string(document: JsonDocument, name: str) -> str | None:
    """A string of a document that is there and not empty."""
    value: object = document.get(name)
    return value if isinstance(value, str) and value else None


def get_strings(document: JsonDocument, name: str) -> tuple[str, ...] | None:
    """The strings of a list of a document, or None where there is no list."""
    value: object = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(item for item in cast("list[object]", value) if isinstance(item, str) and item)
