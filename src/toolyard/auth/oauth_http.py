"""HTTP client for OAuth endpoints and metadata: small JSON documents, with limits on time and size.

Each request uses the guarded or the unguarded session, as the address policy of the server to sign in to
demands.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

import orjson
from yarl import URL

from toolyard.auth.errors import AddressNotAllowed, AuthUnavailable
from toolyard.auth.provider import get_challenge_header
from toolyard.net import AddressRefused, OutboundHttp, is_private, is_same_origin
from toolyard.results.redaction import redact_secrets

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "AddressPolicy",
    "JsonDocument",
    "OAuthHttpClient",
    "OAuthHttpResponse",
    "add_query",
    "basic_authorization",
    "is_private_host",
    "parse_http_url",
    "pkce_challenge",
    "sanitize_error_text",
]


_MAX_URL_CHARACTERS = 4096
"""Maximum length of a URL."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Addresses that are allowed for one server: its configured URL, and URLs from its metadata.

    ``private_addresses`` True allows all private addresses, False allows none. None allows the configured
    URL to be private; URLs from metadata may be private only if the configured host is loopback or a private
    IP address.
    """

    server_url: str
    private_addresses: bool | None = None

    def is_guarded(self, url: URL) -> bool:
        """Return whether a request to this URL must use the address guard."""
        if self.private_addresses is not None:
            return not self.private_addresses
        configured = parse_http_url(self.server_url, "the server's URL")
        return not (is_same_origin(configured, url) or is_private_host(configured.host or ""))

    def is_private_page(self, url: URL) -> bool:
        """Return whether a page is in a private network to which the server must not send a browser."""
        return is_private_host(url.host or "") and self.is_guarded(url)

    def check_endpoint(self, address: str, label: str) -> str:
        """Return the address of an authorization server's endpoint unchanged, or raise AddressNotAllowed.

        Endpoints receive secrets and browser redirects, so they need https, except on this machine or
        network, or if the operator allows private addresses.
        """
        url = parse_http_url(address, label)
        if self.is_private_page(url):
            # A remote server's metadata must not send the user's browser into the user's own network.
            raise AddressNotAllowed(
                f"{label} is at {url.host}, a private address, which is not allowed for this server",
                hint="allow private addresses for this server (privateAddresses) if you trust it",
                is_private=True,
            )
        if url.scheme != "https" and not is_private_host(url.host or "") and not self.private_addresses:
            raise AddressNotAllowed(
                f"{label} {url.with_query(None)} is not encrypted",
                hint="only https is accepted, except on this machine",
            )
        return address


def parse_http_url(address: str, label: str) -> URL:
    """Parse an http(s) URL, or raise AddressNotAllowed."""
    hint = "ask the server's operator to correct its metadata"
    try:
        url = URL(address if len(address) <= _MAX_URL_CHARACTERS else "")
        host = url.host or ""
        # Browsers decode percent escapes in a host name and we do not, so the two could see different
        # hosts. In an IPv6 address "%" starts the zone.
        is_escaped = "%" in host and ":" not in host
        is_invalid = url.scheme not in ("http", "https") or not host or is_escaped or url.user is not None
    except ValueError:
        is_invalid, url = True, URL()
    if is_invalid or " " in address or not address.isprintable():
        raise AddressNotAllowed(f"{label} is not a valid http(s) URL", hint=hint)
    return url


def is_private_host(host: str) -> bool:
    """Return whether a host is this machine or a private IP address, in any notation that browsers accept."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _is_legacy_private_ipv4(host)
    return is_private(host)


def _is_legacy_private_ipv4(host: str) -> bool:
    """Return whether a host is private in a notation only browsers accept: ``2130706433``, ``0x7f.1``."""
    try:
        return bool(host) and is_private(socket.inet_ntoa(socket.inet_aton(host)))
    except (OSError, ValueError):
        return False


_REQUEST_TIMEOUT_SECONDS = 20.0
"""Time limit of one request, from name resolution to the last byte."""
_MAX_DOCUMENT_BYTES = 256 * 1024
"""Maximum size of a response body. It is decoded in one step, which blocks the event loop."""
_MAX_REDIRECTS = 3
_ANSI_ESCAPE_PATTERN = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

JsonDocument = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OAuthHttpResponse:
    """HTTP status, and the JSON object of the body, or None if the body is not a JSON object."""

    status: int
    document: JsonDocument | None
    challenge: str | None = None


class OAuthHttpClient:
    """Sends the HTTP requests of one server's sign-in, under that server's address policy."""

    def __init__(
        self,
        net: OutboundHttp,
        address_policy: AddressPolicy,
        *,
        timeout_seconds: float = _REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self.address_policy = address_policy
        self.tracer = net.tracer
        self._net = net
        self._timeout_seconds = timeout_seconds

    async def get(
        self, address: str, label: str, *, headers: Mapping[str, str] | None = None
    ) -> OAuthHttpResponse:
        """Fetch a document. Redirects are followed, and the address policy applies to every hop.

        ``label`` names the resource in error messages. Raises AuthUnavailable or AddressNotAllowed.
        """
        url = parse_http_url(address, label)
        for _ in range(_MAX_REDIRECTS + 1):
            response, location = await self._send_request("GET", url, label, headers=headers)
            if location is None:
                return response
            target = _resolve_redirect(url, location, label)
            if url.scheme == "https" and target.scheme != "https":
                raise AddressNotAllowed(f"{label} redirects from https to {target.scheme}")
            url = target
        raise AddressNotAllowed(f"{label} redirects more than {_MAX_REDIRECTS} times")

    async def get_status(self, address: str, label: str, timeout_seconds: float) -> int | None:
        """Return the status of a GET request, without following redirects; None if it fails or times out."""
        try:
            async with asyncio.timeout(timeout_seconds):
                response, _ = await self._send_request("GET", parse_http_url(address, label), label)
        except (AuthUnavailable, AddressNotAllowed, TimeoutError):
            return None
        return response.status

    async def post(
        self,
        address: str,
        label: str,
        body: bytes,
        content_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> OAuthHttpResponse:
        """Send a POST request. Redirects are never followed, because the body may contain secrets.

        Raises AuthUnavailable or AddressNotAllowed.
        """
        post_headers = {**(headers or {}), "Content-Type": content_type}
        response, _ = await self._send_request(
            "POST", parse_http_url(address, label), label, headers=post_headers, body=body
        )
        return response

    async def _send_request(
        self,
        method: str,
        url: URL,
        label: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[OAuthHttpResponse, str | None]:
        await self._net.load_library()
        import aiohttp  # Loaded by now.

        guarded = self.address_policy.is_guarded(url)
        session, options = self._net.session(guarded=guarded), self._net.request_options(url, guarded=guarded)
        merged = {"Accept": "application/json", **(headers or {})}
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                session.request(method, url, headers=merged, data=body, **options) as response,
            ):
                location = response.headers.get("Location") if 300 <= response.status < 400 else None
                return await _read_response(response), location
        except TimeoutError as error:
            raise AuthUnavailable(
                f"{label} at {_format_host_port(url)} did not answer within {self._timeout_seconds:g} s",
                hint="try again later",
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _build_connection_error(error, url, label) from error


async def _read_response(response: aiohttp.ClientResponse) -> OAuthHttpResponse:
    challenge = get_challenge_header(response.headers)
    if response.status == 200 and response.content_type == "text/event-stream":
        # A server with the older HTTP+SSE transport opens its event stream, which never ends.
        response.close()
        return OAuthHttpResponse(response.status, None, challenge)
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_DOCUMENT_BYTES:
            response.close()
            return OAuthHttpResponse(response.status, None, challenge)
    try:
        value: object = orjson.loads(bytes(body))
    except ValueError:
        value = None
    document = cast("JsonDocument", value) if isinstance(value, dict) else None
    return OAuthHttpResponse(response.status, document, challenge)


def _resolve_redirect(url: URL, location: str, label: str) -> URL:
    try:
        return parse_http_url(str(url.join(URL(location[:4096]))), label)
    except ValueError:
        raise AddressNotAllowed(f"{label} redirects to an invalid address") from None


def _build_connection_error(error: Exception, url: URL, label: str) -> AuthUnavailable | AddressNotAllowed:
    import aiohttp  # Loaded by now.

    refusal = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(refusal, AddressRefused) and not refusal.is_denied:
        return AddressNotAllowed(
            f"{label} is at {_format_host_port(url)}, a private address, which is not allowed "
            "for this server",
            hint="allow private addresses for this server (privateAddresses) if you trust it",
            is_private=True,
        )
    if isinstance(refusal, AddressRefused):
        return AddressNotAllowed(
            f"{label} is at {_format_host_port(url)}, an address that the operator has denied",
            hint="the address is listed in the setting guard_deny",
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        reason = f"the host name {url.host} cannot be resolved"
    elif isinstance(error, aiohttp.ClientConnectorError):
        reason = f"{_format_host_port(url)} cannot be reached"
    else:
        reason = f"the connection to {_format_host_port(url)} was lost"
    return AuthUnavailable(f"{label}: {reason}", hint="try again later, or check the network")


def _format_host_port(url: URL) -> str:
    return f"{url.host}:{url.port}"


def add_query(address: str, query: Mapping[str, str]) -> str:
    """Return the URL of a page with further query parameters, and without its fragment."""
    base = address.partition("#")[0]
    return f"{base}{'&' if '?' in base else '?'}{urlencode(query, quote_via=quote)}"


def pkce_challenge(verifier: str) -> str:
    """Return the S256 code challenge of a verifier (RFC 7636)."""
    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def basic_authorization(client_id: str, secret: str) -> dict[str, str]:
    """Return the header that authenticates a client with its secret."""
    # RFC 6749, section 2.3.1: both parts are form-encoded first, since a client id may contain a colon.
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def sanitize_error_text(value: object, secrets: Iterable[str | None] = (), max_characters: int = 200) -> str:
    """Return a remote error text for use in a message: one printable line, shortened, without secrets."""
    if not isinstance(value, str):
        return ""
    text = redact_secrets(value[: max_characters * 4], [secret for secret in secrets if secret])
    line = " ".join(_ANSI_ESCAPE_PATTERN.sub("", text).split())[:max_characters]
    return "".join(char if char.isprintable() else "\ufffd" for char in line)
