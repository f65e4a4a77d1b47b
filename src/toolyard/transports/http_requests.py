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

from toolyard.auth import AuthProvider, challenge_in, parse_challenge
from toolyard.errors import (
    BadAnswer,
    HttpStatus,
    OutcomeUnknown,
    ServerError,
    SignInNeeded,
    Throttled,
    Unreachable,
)
from toolyard.net import Answer, Net, NotHttp, same_origin
from toolyard.protocol.constants import UNSUPPORTED_VERSION
from toolyard.protocol.pending import read_failure
from toolyard.transports.transport import in_one_line
from toolyard.types.server import HttpSpec

__all__ = [
    "Requests",
    "body_excerpt",
    "drain",
    "fault",
    "is_lost_session",
    "is_rpc_error",
    "refusal",
    "tells_lost_session",
    "wants_session",
]

_LOST = re.compile(
    r"session\b.{0,40}\b(not found|expired|invalid|unknown|terminated|does(n't| not) exist|closed|missing)"
    r"|(invalid|unknown|expired|missing|no valid|no active|no)( or \w+)? session"
    r"|(server|session|connection) not initialized",
    re.IGNORECASE | re.DOTALL,
)

_LOST_BARE = re.compile(
    r"(bad request: |not found: )?(mcp )?"
    r"(session( id| with given id)?( is)? (not found|expired|invalid|unknown|terminated|missing|closed)"
    r"|(invalid|unknown|expired|no valid|missing)( or \w+)? session( id)?( provided)?"
    r"|server not initialized)[.!]?",
    re.IGNORECASE,
)

_OLDER = re.compile(r"(bad request: )?unsupported protocol version\b", re.IGNORECASE)

_DRAIN = 0.5
"""Seconds that a finished answer's stream has to end by itself, so that its connection can be used again."""
_ERROR_BODY = 64 * 1024
_REDIRECTS = 5
_SIGN_INS = 2


class Requests:
    """Requests to one server's own origin."""

    def __init__(self, spec: HttpSpec, net: Net, auth: AuthProvider | None, *, guarded: bool = False) -> None:
        try:
            self.url = URL(spec.url)
        except ValueError as error:
            raise Unreachable(f"the URL {spec.url!r} cannot be used: {error}") from None
        self._configured = self.url
        self._headers = CIMultiDict(spec.headers)
        self._query = spec.query
        self._auth = auth
        self._origin = net.origin(self.url, guarded=guarded)

    async def send(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """The response, whatever its status. Raises Unreachable where nothing was sent, OutcomeUnknown
        where it may have been. A same-origin redirect is followed; another origin is an error."""
        for attempt in range(_SIGN_INS + 1):
            response = await self._follow(method, url, headers, body)
            if response.status not in (401, 403) or self._auth is None or attempt == _SIGN_INS:
                return response
            challenge = parse_challenge(response.status, challenge_in(response.headers))
            try:
                fresh = await self._auth.challenged(challenge)
            except BaseException:
                response.close()
                raise
            if not fresh:
                return response
            response.close()
        raise AssertionError("the last attempt returns")

    async def _follow(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> Answer:
        usual = url == self.url
        for _ in range(_REDIRECTS):
            response = await self._once(method, url, headers, body)
            location = response.headers.get("Location")
            if response.status not in (301, 302, 307, 308) or location is None:
                if usual:
                    # A page that asks for patience, or a sign-in, is no place to go to the next time.
                    well = response.status < 300 and response.content_type != "text/html"
                    self.url = url if well else self._configured
                return response
            response.close()
            url = _target(url, location)
        raise Unreachable(f"redirects more than {_REDIRECTS} times")

    async def _once(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> Answer:
        merged = self._headers.copy()
        merged.update(headers)
        if self._auth is not None:
            merged.update(await self._auth.headers())
        # Added here and kept nowhere: the address that redirects and errors speak of is without it.
        full = url.update_query(self._query) if self._query else url
        try:
            return await self._origin.ask(method, full, merged, body)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The library's own errors quote the whole address.
            raise fault(error, url) from (None if self._query else error)


def _target(url: URL, location: str) -> URL:
    """Where a redirect leads. Headers stay with their origin, so another one is an error."""
    try:
        target = url.join(URL(location[:4096]))
        if same_origin(target, url):
            return target
    except ValueError:
        raise Unreachable(f"redirects to something that is no address: {in_one_line(location)}") from None
    raise Unreachable(
        f"redirects to another address: {in_one_line(str(target.with_query(None)))}",
        hint="put that address into the configuration if you trust it",
    )


def fault(error: Exception, url: URL) -> ServerError:
    """What a failed request means: whether it can have reached the server, and why it failed."""
    where = f"{url.host}:{url.port}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return Unreachable(f"TLS with {where} failed: {_tls_words(error)}")
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
    if isinstance(error, NotHttp):
        return BadAnswer(f"{where} answered something that is not HTTP: {in_one_line(str(error))}")
    if isinstance(error, aiohttp.ClientPayloadError):
        return OutcomeUnknown(f"{where} ended the connection in the middle of its answer")
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError | ValueError):
        return Unreachable(f"the request cannot be made: {in_one_line(str(error))}")
    words = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return OutcomeUnknown(f"the connection to {where} broke: {in_one_line(words) or type(error).__name__}")


def _tls_words(error: Exception) -> str:
    reason: BaseException | None = error
    while reason is not None:
        # aiohttp's own error is of that kind too, but has not its words.
        if isinstance(reason, ssl.SSLCertVerificationError) and not isinstance(reason, aiohttp.ClientError):
            return reason.verify_message
        reason = reason.__cause__ or reason.__context__
    return in_one_line(str(error))


async def refusal(response: Answer) -> ServerError:
    """The error for a status that says no, with what the server said about it. Releases the response."""
    body = await body_excerpt(response)
    status, words = response.status, _words(response, body)
    text = f"answered HTTP {status} {response.reason or ''}".rstrip() + (f": {words}" if words else "")
    if status in (401, 403):
        challenge = challenge_in(response.headers)
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


async def body_excerpt(response: Answer) -> bytes:
    """The first part of a body, as far as it came. The rest is dropped with its connection."""
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := await response.more():
            parts.append(chunk)
            size += len(chunk)
            if size >= _ERROR_BODY:
                response.close()
                break
    except (aiohttp.ClientError, OSError):
        pass
    response.close()
    return b"".join(parts)[:_ERROR_BODY]


async def drain(response: Answer) -> None:
    """Read what nobody needs, for a moment: a connection whose answer has ended is used again."""
    try:
        async with asyncio.timeout(_DRAIN):
            while await response.more():
                pass
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    finally:
        response.close()


def _words(response: Answer, body: bytes) -> str:
    text = in_one_line(body.decode("utf-8", "replace"), 300)
    return "an HTML page" if response.content_type == "text/html" or text[:1] == "<" else text


def is_lost_session(message: object) -> bool:
    """Whether an answer with HTTP 200 says, in one of the known ways, that the session is gone.

    Only the bare words of the known libraries count: a tool's own error that speaks of some session of its
    own must not lead to a second call.
    """
    if not is_rpc_error(message):
        return False
    failure = read_failure(message["error"])
    known = failure.code in (-32000, -32001, -32002, -32600)
    return known and _LOST_BARE.fullmatch(failure.message) is not None


def is_rpc_error(message: object) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded body is a JSON-RPC error."""
    return isinstance(message, dict) and isinstance(cast("dict[str, Any]", message).get("error"), dict)


def wants_session(error: HttpStatus, message: object) -> bool:
    """Whether a request without a session was refused as a legacy server with sessions does it, which took
    over meanwhile.

    Again only the bare words of the known libraries count.
    """
    if error.status != 400 or len(error.body) > 2000:
        return False
    said = error.body.decode("utf-8", "replace")
    if is_rpc_error(message):
        failure = read_failure(message["error"])
        if failure.code == UNSUPPORTED_VERSION:
            # The modern word for it, with which comes what it does speak.
            return False
        said = failure.message
    said = said.strip()
    return _LOST_BARE.fullmatch(said) is not None or _OLDER.match(said) is not None


def tells_lost_session(error: HttpStatus) -> bool:
    """Whether a refusal of a request with a session says that the session is gone."""
    if error.status == 404:
        return True
    text = error.body.decode("utf-8", "replace") if len(error.body) < 2000 else ""
    return error.status == 400 and _LOST.search(text) is not None
