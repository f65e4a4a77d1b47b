"""HTTP requests to one server: credentials, redirects, and the translation of failures."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from toolyard.auth import AuthProvider, get_challenge_header, parse_challenge
from toolyard.config.value_checks import mask_url_secrets
from toolyard.errors import (
    BadAnswer,
    HttpStatus,
    OutcomeUnknown,
    PrivateAddress,
    ServerError,
    SignInNeeded,
    Throttled,
    Unreachable,
)
from toolyard.net import AddressRefused, HttpProtocolError, HttpResponse, OutboundHttp, is_same_origin
from toolyard.protocol.constants import UNSUPPORTED_VERSION
from toolyard.protocol.jsonrpc import parse_rpc_failure
from toolyard.transports.transport import to_single_line
from toolyard.types.server import HttpSpec

__all__ = [
    "ServerHttpClient",
    "drain_response",
    "is_rpc_error",
    "is_session_lost_message",
    "is_session_lost_status",
    "read_body_excerpt",
    "read_error_response",
    "requires_session",
    "translate_request_error",
]

# Servers report a lost session in prose: the specification asks for HTTP 404, but widely used libraries
# answer with 400 or 200. The first pattern is a search, for refusals with status 400. The second must match
# the whole message, for responses with status 200 (see is_session_lost_message).
_SESSION_LOST_PATTERN = re.compile(
    r"session\b.{0,40}\b(not found|expired|invalid|unknown|terminated|does(n't| not) exist|closed|missing)"
    r"|(invalid|unknown|expired|missing|no valid|no active|no)( or \w+)? session"
    r"|(server|session|connection) not initialized",
    re.IGNORECASE | re.DOTALL,
)

_SESSION_LOST_EXACT_PATTERN = re.compile(
    r"(bad request: |not found: )?(mcp )?"
    r"(session( id| with given id)?( is)? (not found|expired|invalid|unknown|terminated|missing|closed)"
    r"|(invalid|unknown|expired|no valid|missing)( or \w+)? session( id)?( provided)?"
    r"|server not initialized)[.!]?",
    re.IGNORECASE,
)

_UNSUPPORTED_VERSION_PATTERN = re.compile(r"(bad request: )?unsupported protocol version\b", re.IGNORECASE)

_DRAIN_SECONDS = 0.5
"""Seconds granted to the stream of a finished response to end, so that its connection can be reused."""
_MAX_ERROR_BODY_BYTES = 64 * 1024
_MAX_REDIRECTS = 5
"""Maximum number of redirects followed for one request."""
_MAX_SIGN_IN_RETRIES = 2
"""Maximum number of repetitions with new credentials after 401 or 403."""


class ServerHttpClient:
    """Sends requests to the origin of one server."""

    def __init__(
        self, spec: HttpSpec, net: OutboundHttp, auth: AuthProvider | None, *, guarded: bool = False
    ) -> None:
        try:
            self.url = URL(spec.url)
        except ValueError as error:
            raise Unreachable(f"the URL {mask_url_secrets(spec.url)!r} cannot be used: {error}") from None
        self._configured_url = self.url
        self._headers = CIMultiDict(spec.headers)
        self._query = spec.query
        self._auth = auth
        self._origin = net.origin_pool(self.url, guarded=guarded)

    async def send(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the response, whatever its status.

        Same-origin redirects are followed; another origin is an error. After 401 or 403 the auth provider may
        obtain new credentials, and the request is repeated. Raise Unreachable if nothing was sent, and
        OutcomeUnknown if the server may have received it.
        """
        for attempt in range(_MAX_SIGN_IN_RETRIES + 1):
            response = await self._follow_redirects(method, url, headers, body)
            if response.status not in (401, 403) or self._auth is None or attempt == _MAX_SIGN_IN_RETRIES:
                return response
            # The response stays open meanwhile: without new credentials it is returned, and its body explains
            # the refusal.
            challenge = parse_challenge(response.status, get_challenge_header(response.headers))
            try:
                has_new_credentials = await self._auth.challenged(challenge)
            except BaseException:
                response.close()
                raise
            if not has_new_credentials:
                return response
            response.close()
        raise AssertionError("the last attempt returns")

    async def _follow_redirects(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        is_server_url = url == self.url
        for _ in range(_MAX_REDIRECTS):
            response = await self._send_once(method, url, headers, body)
            location = response.headers.get("Location")
            # The method is kept, for 301 and 302 as well: turning a POST into a GET, as browsers do, would
            # lose the message. 303 demands a GET and is not followed.
            if response.status not in (301, 302, 307, 308) or location is None:
                if is_server_url:
                    # Remember the target of a redirect only after a good response: a page that asks to sign
                    # in or to wait must not become the server's URL.
                    is_good = response.status < 300 and response.content_type != "text/html"
                    self.url = url if is_good else self._configured_url
                return response
            response.close()
            url = _resolve_redirect(url, location)
        raise Unreachable(f"redirects more than {_MAX_REDIRECTS} times")

    async def _send_once(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        merged = self._headers.copy()
        merged.update(headers)
        if self._auth is not None:
            merged.update(await self._auth.headers())
        # Secret query parameters are added only here, so that they appear in no redirect or error.
        full_url = url.update_query(self._query) if self._query else url
        try:
            return await self._origin.request(method, full_url, merged, body)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Do not chain it if the URL has secrets: aiohttp's own errors quote the whole URL.
            raise translate_request_error(error, url) from (None if self._query else error)


def _resolve_redirect(url: URL, location: str) -> URL:
    """Return the target of a redirect. Credentials must not leave their origin, so another one is an
    error."""
    try:
        target = url.join(URL(location[:4096]))
        if is_same_origin(target, url):
            return target
    except ValueError:
        raise Unreachable(f"redirects to an invalid URL: {to_single_line(location)}") from None
    raise Unreachable(
        f"redirects to another origin: {to_single_line(str(target.with_query(None)))}",
        hint="put that URL into the configuration if you trust it",
    )


def translate_request_error(error: Exception, url: URL) -> ServerError:
    """Translate a failed request: its class tells whether the server may have received it, its text why."""
    address = f"{url.host}:{url.port}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return _translate_tls_error(error, address)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(
            f"the host name {url.host} cannot be resolved", hint="check the URL and the network"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return _translate_connect_error(error.os_error, address)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return OutcomeUnknown(f"{address} closed the connection before it answered")
    if isinstance(error, HttpProtocolError):
        return BadAnswer(f"{address} sent an invalid HTTP response: {to_single_line(str(error))}")
    if isinstance(error, aiohttp.ClientPayloadError):
        return OutcomeUnknown(f"{address} closed the connection in the middle of its response")
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError | ValueError):
        return Unreachable(f"the request cannot be made: {to_single_line(str(error))}")
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return OutcomeUnknown(
        f"the connection to {address} was lost: {to_single_line(reason) or type(error).__name__}"
    )


def _translate_connect_error(error: OSError, address: str) -> Unreachable:
    if isinstance(error, AddressRefused):
        if error.is_denied:
            return Unreachable(
                f"{address} cannot be reached: {error}",
                hint="the address is listed in the setting guard_deny",
            )
        cause = f"{address} cannot be reached: its address is private, which is not allowed for this server"
        return PrivateAddress(cause, hint="allow private addresses for this server if you trust it")
    # The text of the errno alone is shorter than that of the exception. A number below 0 is not an errno.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return Unreachable(f"{address} cannot be reached: {reason}", hint="is the server running?")


def _translate_tls_error(error: Exception, address: str) -> Unreachable:
    text, hint = to_single_line(str(error)), None
    reason: BaseException | None = error
    while reason is not None:
        # aiohttp's errors are also errors of ssl, but without what those say.
        if isinstance(reason, ssl.SSLError) and not isinstance(reason, aiohttp.ClientError):
            if isinstance(reason, ssl.SSLCertVerificationError):
                text = reason.verify_message
            elif reason.reason:
                text = reason.reason.lower().replace("_", " ")
                if reason.reason == "WRONG_VERSION_NUMBER":
                    hint = "if the server does not use TLS, its URL begins with http://"
            break
        reason = reason.__cause__ or reason.__context__
    return Unreachable(f"TLS with {address} failed: {text}", hint=hint)


async def read_error_response(response: HttpResponse) -> ServerError:
    """Return the error for a response with an error status, with the server's explanation. Closes it."""
    body = await read_body_excerpt(response)
    status, explanation = response.status, _describe_body(response, body)
    text = f"answered with HTTP {status} {response.reason or ''}".rstrip()
    text += f": {explanation}" if explanation else ""
    if status in (401, 403):
        challenge = get_challenge_header(response.headers)
        return SignInNeeded(
            text, status=status, challenge=challenge, hint="sign in, or check the credentials"
        )
    if status == 429 or (status == 503 and "Retry-After" in response.headers):
        retry_after = response.headers.get("Retry-After", "")
        is_seconds = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10
        seconds = float(retry_after) if is_seconds else None
        hint = f"try again after {retry_after} s" if seconds is not None else "try again later"
        return Throttled(text, retry_after=seconds, hint=hint)
    headers = {"Content-Type": response.content_type}
    return HttpStatus(text, status=status, body=body, headers=headers)


async def read_body_excerpt(response: HttpResponse) -> bytes:
    """Read the first part of a body, as far as it arrives. The rest is dropped with its connection."""
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := await response.read_chunk():
            parts.append(chunk)
            size += len(chunk)
            if size >= _MAX_ERROR_BODY_BYTES:
                response.close()
                break
    except (aiohttp.ClientError, OSError):
        pass
    response.close()
    return b"".join(parts)[:_MAX_ERROR_BODY_BYTES]


async def drain_response(response: HttpResponse) -> None:
    """Read and discard the rest of a response for a short time, so that its connection can be reused."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await response.read_chunk():
                pass
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    finally:
        response.close()


def _describe_body(response: HttpResponse, body: bytes) -> str:
    text = to_single_line(body.decode("utf-8", "replace"), 300)
    return "an HTML page" if response.content_type == "text/html" or text[:1] == "<" else text


def is_session_lost_message(message: object) -> bool:
    """Return True if a response with HTTP 200 is the error of a known library for a lost session.

    The whole message must match. An error of a tool that mentions a session of some other kind must not lead
    to a second call.
    """
    if not is_rpc_error(message):
        return False
    failure = parse_rpc_failure(message["error"])
    is_known_code = failure.code in (-32000, -32001, -32002, -32600)
    return is_known_code and _SESSION_LOST_EXACT_PATTERN.fullmatch(failure.message) is not None


def is_rpc_error(message: object) -> TypeGuard[dict[str, Any]]:
    """Return True if a decoded body is a JSON-RPC error."""
    return isinstance(message, dict) and isinstance(cast("dict[str, Any]", message).get("error"), dict)


def requires_session(error: HttpStatus, message: object) -> bool:
    """Return True if a request without a session was refused the way that legacy servers with sessions do:
    the server was replaced since the handshake.

    Again the whole message must match that of a known library.
    """
    if error.status != 400 or len(error.body) > 2000:
        return False
    text = error.body.decode("utf-8", "replace")
    if is_rpc_error(message):
        failure = parse_rpc_failure(message["error"])
        if failure.code == UNSUPPORTED_VERSION:
            # The modern error for an unsupported version, which lists the supported ones.
            return False
        text = failure.message
    text = text.strip()
    return (
        _SESSION_LOST_EXACT_PATTERN.fullmatch(text) is not None
        or _UNSUPPORTED_VERSION_PATTERN.match(text) is not None
    )


def is_session_lost_status(error: HttpStatus) -> bool:
    """Return True if the refusal of a request with a session id means that the session is gone."""
    if error.status == 404:
        return True
    text = error.body.decode("utf-8", "replace") if len(error.body) < 2000 else ""
    return error.status == 400 and _SESSION_LOST_PATTERN.search(text) is not None
