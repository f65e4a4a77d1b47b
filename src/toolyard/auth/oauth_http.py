"""HTTP client for OAuth endpoints and metadata: small JSON documents, with limits on time and size.

Each request uses the guarded or the unguarded session, as the server's address policy demands.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson
from yarl import URL

from toolyard.auth.address_policy import AddressPolicy, parse_http_url
from toolyard.auth.errors import AddressNotAllowed, AuthUnavailable
from toolyard.auth.provider import get_challenge_header
from toolyard.net import AddressRefused, OutboundHttp
from toolyard.results.redaction import redact_secrets

if TYPE_CHECKING:
    import aiohttp

__all__ = ["JsonDocument", "OAuthHttpClient", "OAuthHttpResponse", "sanitize_error_text"]

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
            hint="allow private addresses for it (privateAddresses) if you trust it",
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


def sanitize_error_text(value: object, secrets: Iterable[str | None] = (), max_characters: int = 200) -> str:
    """Return a remote error text for use in a message: one printable line, shortened, without secrets."""
    if not isinstance(value, str):
        return ""
    text = redact_secrets(value[: max_characters * 4], [secret for secret in secrets if secret])
    line = " ".join(_ANSI_ESCAPE_PATTERN.sub("", text).split())[:max_characters]
    return "".join(char if char.isprintable() else "\ufffd" for char in line)
