"""Parsed and validated metadata of protected resources and authorization servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from toolyard.auth.address_policy import AddressPolicy
from toolyard.auth.errors import DiscoveryFailed
from toolyard.auth.oauth_http import JsonDocument

__all__ = ["AuthorizationServerMetadata", "ProtectedResourceMetadata", "get_string", "get_strings"]


@dataclass(frozen=True, slots=True)
class ProtectedResourceMetadata:
    """Protected resource metadata (RFC 9728), limited to the fields in use."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None

    @classmethod
    def from_document(cls, document: JsonDocument) -> ProtectedResourceMetadata | None:
        """Parse a document; None if it is not protected resource metadata."""
        resource = get_string(document, "resource")
        if resource is None:
            return None
        servers = get_strings(document, "authorization_servers") or ()
        return cls(resource, servers, get_strings(document, "scopes_supported"))


@dataclass(frozen=True, slots=True)
class AuthorizationServerMetadata:
    """Authorization server metadata (RFC 8414 or OpenID Connect Discovery), limited to the fields in use.

    Endpoints have passed the address policy, except ``revocation_endpoint``.
    """

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
    """Checked only before use: an invalid one must not prevent a sign-in."""

    @classmethod
    def from_document(
        cls, document: JsonDocument, issuer: str, address_policy: AddressPolicy
    ) -> AuthorizationServerMetadata:
        """Parse a document whose issuer has been verified. Raises DiscoveryFailed."""
        token_endpoint = get_string(document, "token_endpoint")
        if token_endpoint is None:
            raise DiscoveryFailed(
                f"the authorization server {issuer} names no token endpoint in its metadata",
                hint="ask its operator to correct the metadata",
            )
        authorization_endpoint = get_string(document, "authorization_endpoint")
        registration_endpoint = get_string(document, "registration_endpoint")
        return cls(
            issuer,
            address_policy.check_endpoint(token_endpoint, "the token endpoint"),
            authorization_endpoint
            and address_policy.check_endpoint(authorization_endpoint, "the authorization endpoint"),
            registration_endpoint
            and address_policy.check_endpoint(registration_endpoint, "the registration endpoint"),
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
        """Return the default endpoints of MCP 2025-03-26 for a server without metadata."""
        return cls(
            origin,
            address_policy.check_endpoint(f"{origin}/token", "the token endpoint"),
            address_policy.check_endpoint(f"{origin}/authorize", "the authorization endpoint"),
            address_policy.check_endpoint(f"{origin}/register", "the registration endpoint"),
            code_challenge_methods=("S256",),
        )


def get_string(document: JsonDocument, name: str) -> str | None:
    """Return a non-empty string of a document, or None."""
    value: object = document.get(name)
    return value if isinstance(value, str) and value else None


def get_strings(document: JsonDocument, name: str) -> tuple[str, ...] | None:
    """Return the non-empty strings of a list in a document, or None if the value is not a list."""
    value: object = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(item for item in cast("list[object]", value) if isinstance(item, str) and item)
