"""Discovery of a server's authorization server, from a 401 challenge or well-known URLs to its metadata.

Metadata of both, the protected resource (RFC 9728) and the authorization server (RFC 8414), is parsed and
validated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from yarl import URL

from toolyard.auth.errors import (
    AuthUnavailable,
    DiscoveryFailed,
    IssuerMismatch,
    ResourceMismatch,
    SignInNotNeeded,
)
from toolyard.auth.oauth_http import (
    AddressPolicy,
    JsonDocument,
    OAuthHttpClient,
    OAuthHttpResponse,
    parse_http_url,
)
from toolyard.auth.provider import Challenge, parse_challenge
from toolyard.auth.sign_in_target import SignInTarget
from toolyard.auth.storage import same_issuer
from toolyard.net import is_same_origin

__all__ = [
    "AuthorizationServerMetadata",
    "DiscoveryResult",
    "ProtectedResourceMetadata",
    "discover_authorization_server",
    "fetch_resource_metadata",
    "fetch_server_metadata",
    "get_string",
    "get_strings",
    "probe_for_challenge",
]


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


_RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
_SERVER_METADATA_PATH = "/.well-known/oauth-authorization-server"
_OPENID_CONFIGURATION_PATH = "/.well-known/openid-configuration"
_MAX_TRIED_ISSUERS = 10
"""A document of 256 KB can name thousands, each of which would get up to three requests."""
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """The authorization server of an MCP server.

    ``resource`` is the resource indicator of token requests; None for servers of MCP 2025-03-26.
    """

    server: AuthorizationServerMetadata
    resource: str | None
    scopes_supported: tuple[str, ...] | None


async def probe_for_challenge(http_client: OAuthHttpClient, target: SignInTarget) -> Challenge | None:
    """Send requests without credentials, and return the challenge of a 401 or 403 response."""
    accept = {"Accept": "application/json, text/event-stream"}
    response = await http_client.get(target.url, "the server", headers=accept)
    if response.status not in (401, 403):
        # Servers without an event stream refuse GET with 405 before they check credentials. A ping opens no
        # session.
        response = await http_client.post(target.url, "the server", _PING, "application/json", accept)
    return parse_challenge(response.status, response.challenge) if response.status in (401, 403) else None


async def discover_authorization_server(
    http_client: OAuthHttpClient,
    target: SignInTarget,
    challenge: Challenge | None,
    *,
    preferred_issuer: str | None = None,
) -> DiscoveryResult:
    """Find the server's authorization server.

    ``challenge`` is None if the server answers without credentials. ``preferred_issuer`` is chosen if the
    metadata still lists it. Raises DiscoveryFailed if the metadata is missing or cannot be trusted,
    SignInNotNeeded if it is missing and there is no challenge, and AuthUnavailable if it cannot be fetched.
    """
    resource = await fetch_resource_metadata(http_client, target, challenge)
    if resource is None or not resource.authorization_servers:
        if target.oauth.legacy_discovery:
            return DiscoveryResult(
                await _discover_legacy_server(http_client, target), target.oauth.resource, None
            )
        if challenge is None:
            raise SignInNotNeeded(
                "the server does not require a sign-in", hint="use the server without signing in"
            )
        raise _build_not_compliant_error(resource)
    # False sorts first: the preferred issuer comes before the others, which keep their order.
    issuers = sorted(
        resource.authorization_servers,
        key=lambda issuer: preferred_issuer is None or not same_issuer(issuer, preferred_issuer),
    )
    server = await _fetch_first_usable(http_client, issuers[:_MAX_TRIED_ISSUERS])
    return DiscoveryResult(server, target.oauth.resource or resource.resource, resource.scopes_supported)


# The protected resource.


async def fetch_resource_metadata(
    http_client: OAuthHttpClient, target: SignInTarget, challenge: Challenge | None
) -> ProtectedResourceMetadata | None:
    """Return the server's protected resource metadata (RFC 9728), or None if it has none.

    Raises ResourceMismatch if the metadata belongs to another resource, and AuthUnavailable if a URL could
    not be fetched and no other URL had the metadata.
    """
    server = parse_http_url(target.url, "the server's URL")
    urls = _resource_metadata_urls(server)
    if challenge is not None and (reference := challenge.params.get("resource_metadata")):
        urls.insert(0, _absolute_metadata_url(server, reference))
    unavailable: AuthUnavailable | None = None
    for url in dict.fromkeys(urls):
        try:
            response = await http_client.get(url, "the protected resource metadata")
        except AuthUnavailable as error:
            unavailable = unavailable or error
            continue
        if (metadata := _parse_resource_metadata(response)) is not None:
            _check_resource(metadata.resource, server, target)
            return metadata
        unavailable = unavailable or _build_unavailable_error(
            response, "the protected resource metadata", url
        )
    if unavailable is not None:
        raise unavailable
    return None


def _resource_metadata_urls(server: URL) -> list[str]:
    origin, path = str(server.origin()), server.raw_path.rstrip("/")
    return [f"{origin}{_RESOURCE_METADATA_PATH}{path}", f"{origin}{_RESOURCE_METADATA_PATH}"]


def _absolute_metadata_url(server: URL, reference: str) -> str:
    """Resolve the metadata URL of a challenge; some servers send only the path."""
    return (
        f"{server.origin()}{reference}" if reference.startswith("/") and reference[1:2] != "/" else reference
    )


def _parse_resource_metadata(response: OAuthHttpResponse) -> ProtectedResourceMetadata | None:
    if response.status != 200 or response.document is None:
        return None
    return ProtectedResourceMetadata.from_document(response.document)


def _check_resource(resource: str, server: URL, target: SignInTarget) -> None:
    if resource == target.oauth.resource:
        return
    # RFC 9728, section 3.3: the metadata must be for this server, or its tokens could be requested for
    # another resource. A parent path on the same origin is accepted.
    resource_url = parse_http_url(resource, "the resource in the metadata")
    resource_path, server_path = resource_url.raw_path.rstrip("/"), server.raw_path.rstrip("/")
    if is_same_origin(resource_url, server) and (
        server_path == resource_path or server_path.startswith(f"{resource_path}/")
    ):
        return
    raise ResourceMismatch(
        f"the metadata found for {server.origin()}{server.raw_path} belongs to another resource, "
        f"{resource_url.with_query(None)}",
        hint="if that is correct, enter it as the resource in the server's entry",
    )


def _build_not_compliant_error(resource: ProtectedResourceMetadata | None) -> DiscoveryFailed:
    fault = (
        "serves no protected resource metadata"
        if resource is None
        else "names no authorization server in its metadata"
    )
    return DiscoveryFailed(
        f"the server requires a sign-in but is not MCP-compliant: it {fault}",
        hint="turn on legacy discovery (legacyDiscovery) for an old server, or use an API key in a header",
    )


# The authorization server.


async def _fetch_first_usable(
    http_client: OAuthHttpClient, issuers: list[str]
) -> AuthorizationServerMetadata:
    first_error: DiscoveryFailed | None = None
    for issuer in issuers:
        try:
            return await fetch_server_metadata(http_client, issuer)
        except DiscoveryFailed as error:
            first_error = first_error or error
    raise first_error or DiscoveryFailed("the server names no authorization server")


async def fetch_server_metadata(http_client: OAuthHttpClient, issuer: str) -> AuthorizationServerMetadata:
    """Return the metadata of an authorization server. Raises DiscoveryFailed or AuthUnavailable."""
    http_client.address_policy.check_endpoint(issuer, "the authorization server")
    metadata = await _try_server_metadata_urls(http_client, issuer)
    if metadata is None:
        raise DiscoveryFailed(
            f"the authorization server {issuer} serves no metadata",
            hint="ask its operator to publish RFC 8414 or OpenID Connect metadata, which MCP requires",
        )
    return metadata


async def _try_server_metadata_urls(
    http_client: OAuthHttpClient, issuer: str
) -> AuthorizationServerMetadata | None:
    unavailable: AuthUnavailable | None = None
    mismatch: IssuerMismatch | None = None
    for url in _server_metadata_urls(parse_http_url(issuer, "the authorization server")):
        try:
            response = await http_client.get(url, "the authorization server's metadata")
        except AuthUnavailable as error:
            unavailable = unavailable or error
            continue
        if response.status == 200 and response.document is not None:
            stated_issuer = get_string(response.document, "issuer")
            # RFC 8414, section 3.3: metadata with another issuer must not be used. Otherwise a server could
            # publish its own endpoints under the name of another one.
            if stated_issuer is not None and same_issuer(stated_issuer, issuer):
                return AuthorizationServerMetadata.from_document(
                    response.document, stated_issuer, http_client.address_policy
                )
            mismatch = mismatch or IssuerMismatch(
                f"the metadata of the authorization server {issuer} names another issuer",
                hint="its endpoints are not used, as it may impersonate another server; tell the server's"
                " operator",
            )
        unavailable = unavailable or _build_unavailable_error(
            response, "the authorization server's metadata", url
        )
    # A mismatch is a security finding, so it takes precedence over a temporary failure of another URL.
    if mismatch is not None:
        raise mismatch
    if unavailable is not None:
        raise unavailable
    return None


def _server_metadata_urls(issuer: URL) -> list[str]:
    # The order of the MCP specification: RFC 8414 first, then OpenID Connect with the path inserted after
    # the well-known part, then with the path before it.
    origin, path = str(issuer.origin()), issuer.raw_path.rstrip("/")
    urls = [f"{origin}{_SERVER_METADATA_PATH}{path}", f"{origin}{_OPENID_CONFIGURATION_PATH}{path}"]
    return [*urls, f"{origin}{path}{_OPENID_CONFIGURATION_PATH}"] if path else urls


async def _discover_legacy_server(
    http_client: OAuthHttpClient, target: SignInTarget
) -> AuthorizationServerMetadata:
    """Return the server's origin as authorization server, as MCP 2025-03-26 prescribes.

    If it serves no metadata, the default endpoints of that version apply.
    """
    origin = str(parse_http_url(target.url, "the server's URL").origin())
    return await _try_server_metadata_urls(
        http_client, origin
    ) or AuthorizationServerMetadata.with_default_endpoints(origin, http_client.address_policy)


def _build_unavailable_error(response: OAuthHttpResponse, label: str, url: str) -> AuthUnavailable | None:
    if response.status < 500 and response.status != 429:
        return None
    return AuthUnavailable(
        f"{label} cannot be fetched: {URL(url).host} answered with HTTP {response.status}",
        hint="try again later",
    )
