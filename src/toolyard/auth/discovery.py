"""Where to sign in: from a server's refusal or well-known places to its authorization server's metadata."""

from __future__ import annotations

from dataclasses import dataclass

from yarl import URL

from toolyard.auth.address_policy import read_url
from toolyard.auth.errors import AuthUnavailable, DiscoveryFailed, IssuerMismatch, ResourceMismatch
from toolyard.auth.metadata import ResourceMetadata, ServerMetadata, text
from toolyard.auth.oauth_http import Answer, Asker
from toolyard.auth.provider import Challenge, parse_challenge
from toolyard.auth.records import same_issuer
from toolyard.auth.sign_in_target import Target
from toolyard.net import same_origin

__all__ = ["Found", "discover", "find_resource", "find_server", "probe"]

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery found out. ``resource`` is what to ask tokens for; None: a server of 2025-03-26."""

    server: ServerMetadata
    resource: str | None
    scopes_supported: tuple[str, ...] | None


async def probe(asker: Asker, target: Target) -> Challenge | None:
    """Ask the server without credentials, to hear where it wants us to sign in."""
    accept = {"Accept": "application/json, text/event-stream"}
    answer = await asker.get(target.url, "the server", headers=accept)
    return parse_challenge(answer.status, answer.challenge) if answer.status in (401, 403) else None


async def discover(
    asker: Asker, target: Target, challenge: Challenge | None, *, prefer: str | None = None
) -> Found:
    """Find the authorization server. ``prefer`` is the issuer that is used already, if it is still named.

    Raises DiscoveryFailed where the server does not say it in a way that can be trusted, and AuthUnavailable
    where somebody could not be asked.
    """
    resource = await find_resource(asker, target, challenge)
    if resource is None or not resource.authorization_servers:
        if target.oauth.legacy_discovery:
            return Found(await _legacy(asker, target), target.oauth.resource, None)
        raise _not_compliant(target, resource)
    named = sorted(
        resource.authorization_servers,
        key=lambda issuer: prefer is None or not same_issuer(issuer, prefer),
    )
    server = await _first_usable(asker, named)
    return Found(server, target.oauth.resource or resource.resource, resource.scopes_supported)


# The protected resource.


async def find_resource(asker: Asker, target: Target, challenge: Challenge | None) -> ResourceMetadata | None:
    """The server's protected resource metadata, or None where it has none. Raises ResourceMismatch."""
    server = read_url(target.url, "the server's URL")
    places = _resource_places(server)
    if challenge is not None and (named := challenge.params.get("resource_metadata")):
        places.insert(0, _absolute(server, named))
    late: AuthUnavailable | None = None
    for place in dict.fromkeys(places):
        try:
            answer = await asker.get(place, "the protected resource metadata")
        except AuthUnavailable as error:
            late = late or error
            continue
        if (found := _resource_in(answer)) is not None:
            _check_resource(found.resource, server, target)
            return found
        late = late or _trouble(answer, "the protected resource metadata", place)
    if late is not None:
        raise late
    return None


def _resource_places(server: URL) -> list[str]:
    origin, path = str(server.origin()), server.raw_path.rstrip("/")
    return [f"{origin}{_RESOURCE}{path}", f"{origin}{_RESOURCE}"]


def _absolute(server: URL, named: str) -> str:
    """Where a server points to; some leave their own origin out."""
    return f"{server.origin()}{named}" if named.startswith("/") and named[1:2] != "/" else named


def _resource_in(answer: Answer) -> ResourceMetadata | None:
    if answer.status != 200 or answer.document is None:
        return None
    return ResourceMetadata.read(answer.document)


def _check_resource(resource: str, server: URL, target: Target) -> None:
    if resource == target.oauth.resource:
        return
    named = read_url(resource, "the resource that the metadata names")
    path, own = named.raw_path.rstrip("/"), server.raw_path.rstrip("/")
    if same_origin(named, server) and (own == path or own.startswith(f"{path}/")):
        return
    raise ResourceMismatch(
        f"the metadata found for {server.origin()}{server.raw_path} is that of another resource, "
        f"{named.with_query(None)}",
        hint="if that is right, enter it as the resource in the server's entry",
    )


def _not_compliant(target: Target, resource: ResourceMetadata | None) -> DiscoveryFailed:
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


async def _first_usable(asker: Asker, issuers: list[str]) -> ServerMetadata:
    first: DiscoveryFailed | None = None
    for issuer in issuers:
        try:
            return await find_server(asker, issuer)
        except DiscoveryFailed as error:
            first = first or error
    raise first or DiscoveryFailed("the server names no authorization server")


async def find_server(asker: Asker, issuer: str) -> ServerMetadata:
    """The metadata of one authorization server. Raises DiscoveryFailed or AuthUnavailable."""
    asker.reach.endpoint(issuer, "the authorization server")
    found = await _ask_server(asker, issuer)
    if found is None:
        raise DiscoveryFailed(
            f"the authorization server {issuer} serves no metadata",
            hint="it must offer RFC 8414 or OpenID Connect metadata to be used with MCP",
        )
    return found


async def _ask_server(asker: Asker, issuer: str) -> ServerMetadata | None:
    late: AuthUnavailable | None = None
    wrong: IssuerMismatch | None = None
    for place in _server_places(read_url(issuer, "the authorization server")):
        try:
            answer = await asker.get(place, "the authorization server's metadata")
        except AuthUnavailable as error:
            late = late or error
            continue
        if answer.status == 200 and answer.document is not None:
            named = text(answer.document, "issuer")
            if named is not None and same_issuer(named, issuer):
                return ServerMetadata.read(answer.document, named, asker.reach)
            wrong = wrong or IssuerMismatch(
                f"the metadata of the authorization server {issuer} names another issuer",
                hint="its endpoints are not used: it may pose as another; tell those who run the server",
            )
        late = late or _trouble(answer, "the authorization server's metadata", place)
    if wrong is not None:
        raise wrong
    if late is not None:
        raise late
    return None


def _server_places(issuer: URL) -> list[str]:
    origin, path = str(issuer.origin()), issuer.raw_path.rstrip("/")
    places = [f"{origin}{_SERVER}{path}", f"{origin}{_OPENID}{path}"]
    return [*places, f"{origin}{path}{_OPENID}"] if path else places


async def _legacy(asker: Asker, target: Target) -> ServerMetadata:
    """2025-03-26: the server's own origin is the authorization server, with metadata or without."""
    origin = str(read_url(target.url, "the server's URL").origin())
    return await _ask_server(asker, origin) or ServerMetadata.guessed(origin, asker.reach)


def _trouble(answer: Answer, what: str, place: str) -> AuthUnavailable | None:
    if answer.status < 500 and answer.status != 429:
        return None
    return AuthUnavailable(
        f"{what} cannot be had: {URL(place).host} answered HTTP {answer.status}", hint="try again later"
    )
