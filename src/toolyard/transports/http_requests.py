"""One HTTP request to a server: credentials, redirects, and what each failure means."""

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
from toolyard.errors import (
    BadAnswer,
    HttpStatus,
    OutcomeUnknown,
    ServerError,
    SignInNeeded,
    Throttled,
    Unreachable,
)
from toolyard.net import HttpProtocolError, HttpResponse, OutboundHttp, is_same_origin
from toolyard.protocol.constants import UNSUPPORTED_VERSION
from toolyard.protocol.pending import parse_rpc_failure
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
"""Seconds that a finished answer's stream has to end by itself, so that its connection can be used again."""
_MAX_ERROR_BODY_BYTES = 64 * 1024
_MAX_REDIRECTS = 5
_MAX_SIGN_IN_RETRIES = 2


class ServerHttpClient:
    """Requests to one server's own origin."""

    def __init__(
        self, spec: HttpSpec, net: OutboundHttp, auth: AuthProvider | None, *, guarded: bool = False
    ) -> None:
        try:
            self.url = URL(spec.url)
        except ValueError as error:
            raise Unreachable(f"the URL {spec.url!r} cannot be used: {error}") from None
        self._configured_url = self.url
        self._headers = CIMultiDict(spec.headers)
        self._query = spec.query
        self._auth = auth
        self._origin = net.origin_pool(self.url, guarded=guarded)

    async def send(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """The response, whatever its status. Raises Unreachable where nothing was sent, OutcomeUnknown
        where it may have been. A same-origin redirect is followed; another origin is an error."""
        for attempt in range(_MAX_SIGN_IN_RETRIES + 1):
            response = await self._follow_redirects(method, url, headers, body)
            if response.status not in (401, 403) or self._auth is None or attempt == _MAX_SIGN_IN_RETRIES:
                return response
            challenge = parse_challenge(response.status, get_challenge_header(response.headers))
            try:
                fresh = await self._auth.challenged(challenge)
            except BaseException:
                response.close()
                raise
            if not fresh:
                return response
            response.close()
        raise AssertionError("the last attempt returns")

    async def _follow_redirects(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        usual = url == self.url
        for _ in range(_MAX_REDIRECTS):
            response = await self._send_once(method, url, headers, body)
            location = response.headers.get("Location")
            if response.status not in (301, 302, 307, 308) or location is None:
                if usual:
                    # A page that asks for patience, or a sign-in, is no place to go to the next time.
                    well = response.status < 300 and response.content_type != "text/html"
                    self.url = url if well else self._configured_url
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
        # Added here and kept nowhere: the address that redirects and errors speak of is without it.
        full = url.update_query(self._query) if self._query else url
        try:
            return await self._origin.request(method, full, merged, body)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The library's own errors quote the whole address.
            raise translate_request_error(error, url) from (None if self._query else error)


def _resolve_redirect(url: URL, location: str) -> URL:
    """Where a redirect leads. Headers stay with their origin, so another one is an error."""
    try:
        target = url.join(URL(location[:4096]))
        if is_same_origin(target, url):
            return target
    except ValueError:
        raise Unreachable(f"redirects to something that is no address: {to_single_line(location)}") from None
    raise Unreachable(
        f"redirects to another address: {to_single_line(str(target.with_query(None)))}",
        hint="put that address into the configuration if you trust it",
    )


def translate_request_error(error: Exception, url: URL) -> ServerError:
    """What a failed request means: whether it can have reached the server, and why it failed."""
    where = f"{url.host}:{url.port}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return Unreachable(f"TLS with {where} failed: {_tls_failure_reason(error)}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(
            f"the host name {url.host} cannot be resolved", hint="check the URL and the network"
        )
    if isinstance(error, aiohttp.ClientConnectorError) and " is private" in str(error.os_error):
        # Several addresses that were all refused come back as one error, of which only the words are left.
        cause = f"{where} cannot be reached: its address is private, which is not allowed for this server"
        return Unreachable(cause, hint="allow private addresses for it if you trust it")
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        words = os.strerror(number) if number and number > 0 else str(error.os_error)
        return Unreachable(f"{where} cannot be reached: {words}", hint="is the server running?")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return OutcomeUnknown(f"{where} closed the connection before it answered")
    if isinstance(error, HttpProtocolError):
        return BadAnswer(f"{where} answered something that is not HTTP: {to_single_line(str(error))}")
    if isinstance(error, aiohttp.ClientPayloadError):
        return OutcomeUnknown(f"{where} ended the connection in the middle of its answer")
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError | ValueError):
        return Unreachable(f"the request cannot be made: {to_single_line(str(error))}")
    words = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return OutcomeUnknown(f"the connection to {where} broke: {to_single_line(words) or type(error).__name__}")


def _tls_failure_reason(error: Exception) -> str:
    reason: BaseException | None = error
    while reason is not None:
        # aiohttp's own error is of that kind too, but has not its words.
        if isinstance(reason, ssl.SSLCertVerificationError) and not isinstance(reason, aiohttp.ClientError):
            return reason.verify_message
        reason = reason.__cause__ or reason.__context__
    return to_single_line(str(error))


async def read_error_response(response: HttpResponse) -> ServerError:
    """The error for a status that says no, with what the server said about it. Releases the response."""
    body = await read_body_excerpt(response)
    status, words = response.status, _describe_body(response, body)
    text = f"answered HTTP {status} {response.reason or ''}".rstrip() + (f": {words}" if words else "")
    if status in (401, 403):
        challenge = get_challenge_header(response.headers)
        return SignInNeeded(
            text, status=status, challenge=challenge, hint="sign in, or check the credentials"
        )
    if status == 429 or (status == 503 and "Retry-After" in response.headers):
        after = response.headers.get("Retry-After", "")
        seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 10 else None
        hint = f"try again after {after} s" if seconds is not None else "try again later"
        return Throttled(text, retry_after=seconds, hint=hint)
    headers = {"Content-Type": response.content_type}
    return HttpStatus(text, status=status, body=body, headers=headers)


async def read_body_excerpt(response: HttpResponse) -> bytes:
    """The first part of a body, as far as it came. The rest is dropped with its connection."""
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := await response.more():
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
    """Read what nobody needs, for a moment: a connection whose answer has ended is used again."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await response.more():
                pass
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    finally:
        response.close()


def _describe_body(response: HttpResponse, body: bytes) -> str:
    text = to_single_line(body.decode("utf-8", "replace"), 300)
    return "an HTML page" if response.content_type == "text/html" or text[:1] == "<" else text


def is_session_lost_message(message: object) -> bool:
    """Whether an answer with HTTP 200 says, in one of the known ways, that the session is gone.

    Only the bare words of the known libraries count: a tool's own error that speaks of some session of its
    own must not lead to a second call.
    """
    if not is_rpc_error(message):
        return False
    failure = parse_rpc_failure(message["error"])
    known = failure.code in (-32000, -32001, -32002, -32600)
    return known and _SESSION_LOST_EXACT_PATTERN.fullmatch(failure.message) is not None


def is_rpc_error(message: object) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded body is a JSON-RPC error."""
    return isinstance(message, dict) and isinstance(cast("dict[str, Any]", message).get("error"), dict)


def requires_session(error: HttpStatus, message: object) -> bool:
    """Whether a request without a session was refused as a legacy server with sessions does it, which took
    over meanwhile.

    Again only the bare words of the known libraries count.
    """
    if error.status != 400 or len(error.body) > 2000:
        return False
    said = error.body.decode("utf-8", "replace")
    if is_rpc_error(message):
        failure = parse_rpc_failure(message["error"])
        if failure.code == UNSUPPORTED_VERSION:
            # The modern word for it, with which comes what it does speak.
            return False
        said = failure.message
    said = said.strip()
    return (
        _SESSION_LOST_EXACT_PATTERN.fullmatch(said) is not None
        or _UNSUPPORTED_VERSION_PATTERN.match(said) is not None
    )


def is_session_lost_status(error: HttpStatus) -> bool:
    """Whether a refusal of a request with a session says that the session is gone."""
    if error.status == 404:
        return True
    text = error.body.decode("utf-8", "replace") if len(error.body) < 2000 else ""
    return error.status == 400 and _SESSION_LOST_PATTERN.search(text) is not None
