"""Where to sign in: from a server's refusal or well-known places to its authorization server's metadata."""

from __future__ import annotations

from dataclasses import dataclass

from yarl import URL

from toolyard.auth.address_policy import parse_http_url
from toolyard.auth.errors import AuthUnavailable, DiscoveryFailed, IssuerMismatch, ResourceMismatch
from toolyard.auth.metadata import AuthorizationServerMetadata, ProtectedResourceMetadata, get_string
from toolyard.auth.oauth_http import OAuthHttpClient, OAuthHttpResponse
from toolyard.auth.provider import Challenge, parse_challenge
from toolyard.auth.records import same_issuer
from toolyard.auth.sign_in_target import SignInTarget
from toolyard.net import is_same_origin

__all__ = [
    "DiscoveryResult",
    "discover_authorization_server",
    "fetch_resource_metadata",
    "fetch_server_metadata",
    "probe_for_challenge",
]

_RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
_SERVER_METADATA_PATH = "/.well-known/oauth-authorization-server"
_OPENID_CONFIGURATION_PATH = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """What discovery found out. ``resource`` is what to ask tokens for; None: a server of 2025-03-26."""

    server: AuthorizationServerMetadata
    resource: str | None
    scopes_supported: tuple[str, ...] | None


async def probe_for_challenge(http_client: OAuthHttpClient, target: SignInTarget) -> Challenge | None:
    """Ask the server without credentials, to hear where it wants us to sign in."""
    accept = {"Accept": "application/json, text/event-stream"}
    answer = await http_client.get(target.url, "the server", headers=accept)
    return parse_challenge(answer.status, answer.challenge) if answer.status in (401, 403) else None


async def discover_authorization_server(
    http_client: OAuthHttpClient,
    target: SignInTarget,
    challenge: Challenge | None,
    *,
    preferred_issuer: str | None = None,
) -> DiscoveryResult:
    """Find the authorization server. ``prefer`` is the issuer that is used already, if it is still named.

    Raises DiscoveryFailed where the server does not say it in a way that can be trusted, and AuthUnavailable
    where somebody could not be asked.
    """
    resource = await fetch_resource_metadata(http_client, target, challenge)
    if resource is None or not resource.authorization_servers:
        if target.oauth.legacy_discovery:
            return DiscoveryResult(
                await _discover_legacy_server(http_client, target), target.oauth.resource, None
            )
        raise _build_not_compliant_error(target, resource)
    named = sorted(
        resource.authorization_servers,
        key=lambda issuer: preferred_issuer is None or not same_issuer(issuer, preferred_issuer),
    )
    server = await _fetch_first_usable(http_client, named)
    return DiscoveryResult(server, target.oauth.resource or resource.resource, resource.scopes_supported)


# The protected resource.


async def fetch_resource_metadata(
    http_client: OAuthHttpClient, target: SignInTarget, challenge: Challenge | None
) -> ProtectedResourceMetadata | None:
    """The server's protected resource metadata, or None where it has none. Raises ResourceMismatch."""
    server = parse_http_url(target.url, "the server's URL")
    places = _resource_metadata_urls(server)
    if challenge is not None and (named := challenge.params.get("resource_metadata")):
        places.insert(0, _absolute_metadata_url(server, named))
    late: AuthUnavailable | None = None
    for place in dict.fromkeys(places):
        try:
            answer = await http_client.get(place, "the protected resource metadata")
        except AuthUnavailable as error:
            late = late or error
            continue
        if (found := _parse_resource_metadata(answer)) is not None:
            _check_resource(found.resource, server, target)
            return found
        late = late or _build_unavailable_error(answer, "the protected resource metadata", place)
    if late is not None:
        raise late
    return None


def _resource_metadata_urls(server: URL) -> list[str]:
    origin, path = str(server.origin()), server.raw_path.rstrip("/")
    return [f"{origin}{_RESOURCE_METADATA_PATH}{path}", f"{origin}{_RESOURCE_METADATA_PATH}"]


def _absolute_metadata_url(server: URL, reference: str) -> str:
    """Where a server points to; some leave their own origin out."""
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
    named = parse_http_url(resource, "the resource that the metadata names")
    path, own = named.raw_path.rstrip("/"), server.raw_path.rstrip("/")
    if is_same_origin(named, server) and (own == path or own.startswith(f"{path}/")):
        return
    raise ResourceMismatch(
        f"the metadata found for {server.origin()}{server.raw_path} is that of another resource, "
        f"{named.with_query(None)}",
        hint="if that is right, enter it as the resource in the server's entry",
    )


def _build_not_compliant_error(
    target: SignInTarget, resource: ProtectedResourceMetadata | None
) -> DiscoveryFailed:
    lack = (
        "serves no protected resource metadata"
        if resource is None
        else "names no authorization server in its metadata"
    )
    return DiscoveryFailed(
        f"the server wants a sign-in but is not MCP-compliant: it {lack}",
        hint="an old server may work with legacyDiscovery in its entry; others need a header",
    )


# The authorization server.


async def _fetch_first_usable(
    http_client: OAuthHttpClient, issuers: list[str]
) -> AuthorizationServerMetadata:
    first: DiscoveryFailed | None = None
    for issuer in issuers:
        try:
            return await fetch_server_metadata(http_client, issuer)
        except DiscoveryFailed as error:
            first = first or error
    raise first or DiscoveryFailed("the server names no authorization server")


async def fetch_server_metadata(http_client: OAuthHttpClient, issuer: str) -> AuthorizationServerMetadata:
    """The metadata of one authorization server. Raises DiscoveryFailed or AuthUnavailable."""
    http_client.address_policy.check_endpoint(issuer, "the authorization server")
    found = await _try_server_metadata_urls(http_client, issuer)
    if found is None:
        raise DiscoveryFailed(
            f"the authorization server {issuer} serves no metadata",
            hint="it must offer RFC 8414 or OpenID Connect metadata to be used with MCP",
        )
    return found


async def _try_server_metadata_urls(
    http_client: OAuthHttpClient, issuer: str
) -> AuthorizationServerMetadata | None:
    late: AuthUnavailable | None = None
    wrong: IssuerMismatch | None = None
    for place in _server_metadata_urls(parse_http_url(issuer, "the authorization server")):
        try:
            answer = await http_client.get(place, "the authorization server's metadata")
        except AuthUnavailable as error:
            late = late or error
            continue
        if answer.status == 200 and answer.document is not None:
            named = get_string(answer.document, "issuer")
            if named is not None and same_issuer(named, issuer):
                return AuthorizationServerMetadata.from_document(
                    answer.document, named, http_client.address_policy
                )
            wrong = wrong or IssuerMismatch(
                f"the metadata of the authorization server {issuer} names another issuer",
                hint="its endpoints are not used: it may pose as another; tell those who run the server",
            )
        late = late or _build_unavailable_error(answer, "the authorization server's metadata", place)
    if wrong is not None:
        raise wrong
    if late is not None:
        raise late
    return None


def _server_metadata_urls(issuer: URL) -> list[str]:
    origin, path = str(issuer.origin()), issuer.raw_path.rstrip("/")
    places = [f"{origin}{_SERVER_METADATA_PATH}{path}", f"{origin}{_OPENID_CONFIGURATION_PATH}{path}"]
    return [*places, f"{origin}{path}{_OPENID_CONFIGURATION_PATH}"] if path else places


async def _discover_legacy_server(
    http_client: OAuthHttpClient, target: SignInTarget
) -> AuthorizationServerMetadata:
    """2025-03-26: the server's own origin is the authorization server, with metadata or without."""
    origin = str(parse_http_url(target.url, "the server's URL").origin())
    return await _try_server_metadata_urls(
        http_client, origin
    ) or AuthorizationServerMetadata.with_default_endpoints(origin, http_client.address_policy)


def _build_unavailable_error(response: OAuthHttpResponse, label: str, url: str) -> AuthUnavailable | None:
    if response.status < 500 and response.status != 429:
        return None
    return AuthUnavailable(
        f"{label} cannot be had: {URL(url).host} answered HTTP {response.status}", hint="try again later"
    )
