"""Requests of the auth room: small JSON answers, bounded in time and size, each through the right session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import orjson
from yarl import URL

from toolyard.auth.address_policy import Reach, read_url
from toolyard.auth.errors import AddressNotAllowed, AuthUnavailable
from toolyard.auth.provider import challenge_in
from toolyard.net import Net
from toolyard.results.redaction import redact

__all__ = ["Answer", "Asker", "Document", "one_line"]

_PATIENCE = 20.0
"""Seconds for one request, from the name lookup to the last byte."""
_LARGEST = 256 * 1024
"""Bytes of a document. It is decoded in one step, whatever values it holds."""
_REDIRECTS = 3
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and the JSON object that came with it, or None where it was something else."""

    status: int
    document: Document | None
    challenge: str | None = None


class Asker:
    """Asks on behalf of one server's sign-in."""

    def __init__(self, net: Net, reach: Reach, *, patience: float = _PATIENCE) -> None:
        self.reach = reach
        self._net = net
        self._patience = patience

    async def get(self, address: str, what: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask for a document; a redirect is followed, each hop judged anew. Raises AuthUnavailable or
        AddressNotAllowed."""
        url = read_url(address, what)
        for _ in range(_REDIRECTS + 1):
            answer, location = await self._once("GET", url, what, headers=headers)
            if location is None:
                return answer
            target = _join(url, location, what)
            if url.scheme == "https" and target.scheme != "https":
                raise AddressNotAllowed(f"{what} redirects from https to {target.scheme}")
            url = target
        raise AddressNotAllowed(f"{what} redirects more than {_REDIRECTS} times")

    async def status(self, address: str, what: str, seconds: float) -> int | None:
        """Only whether a page is there; a redirect is not followed. None: it cannot be told in time."""
        try:
            async with asyncio.timeout(seconds):
                answer, _ = await self._once("GET", read_url(address, what), what)
        except (AuthUnavailable, AddressNotAllowed, TimeoutError):
            return None
        return answer.status

    async def post(
        self,
        address: str,
        what: str,
        body: bytes,
        content_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send what may hold secrets; a redirect is never followed. Raises AuthUnavailable or
        AddressNotAllowed."""
        sent = {**(headers or {}), "Content-Type": content_type}
        answer, _ = await self._once("POST", read_url(address, what), what, headers=sent, body=body)
        return answer

    async def _once(
        self,
        method: str,
        url: URL,
        what: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[Answer, str | None]:
        guarded = self.reach.guarded(url)
        session, options = self._net.session(guarded=guarded), self._net.options(url, guarded=guarded)
        merged = {"Accept": "application/json", **(headers or {})}
        try:
            async with (
                asyncio.timeout(self._patience),
                session.request(method, url, headers=merged, data=body, **options) as response,
            ):
                location = response.headers.get("Location") if 300 <= response.status < 400 else None
                answer = await _read(response)
                return answer, location
        except TimeoutError as error:
            raise AuthUnavailable(
                f"{what} at {_place(url)} did not answer within {self._patience:g} s", hint="try again later"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _fault(error, url, what) from error


async def _read(response: aiohttp.ClientResponse) -> Answer:
    challenge = challenge_in(response.headers)
    if response.status == 200 and response.content_type == "text/event-stream":
        # A server of the older kind opens its stream here; it has no end to wait for.
        response.close()
        return Answer(response.status, None, challenge)
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LARGEST:
            response.close()
            return Answer(response.status, None, challenge)
    try:
        value: object = orjson.loads(bytes(body))
    except ValueError:
        value = None
    document = cast("Document", value) if isinstance(value, dict) else None
    return Answer(response.status, document, challenge)


def _join(url: URL, location: str, what: str) -> URL:
    try:
        return read_url(str(url.join(URL(location[:4096]))), what)
    except ValueError:
        raise AddressNotAllowed(f"{what} redirects to something that is no address") from None


def _fault(error: Exception, url: URL, what: str) -> AuthUnavailable | AddressNotAllowed:
    if isinstance(error, aiohttp.ClientConnectorError) and " is private" in str(error.os_error):
        return AddressNotAllowed(
            f"{what} is at {_place(url)}, a private address, which is not allowed for this server",
            hint="allow private addresses for it (privateAddresses) if you trust it",
        )
    if isinstance(error, aiohttp.ClientConnectorError) and " is denied" in str(error.os_error):
        return AddressNotAllowed(
            f"{what} is at {_place(url)}, an address that the operator has denied",
            hint="the setting guard_deny names it",
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        words = f"the host name {url.host} cannot be resolved"
    elif isinstance(error, aiohttp.ClientConnectorError):
        words = f"{_place(url)} cannot be reached"
    else:
        words = f"the connection to {_place(url)} broke"
    return AuthUnavailable(f"{what}: {words}", hint="try again later, or check the network")


def _place(url: URL) -> str:
    return f"{url.host}:{url.port}"


def one_line(words: object, secrets: Iterable[str | None] = (), width: int = 200) -> str:
    """What another side said, fit to stand in a sentence of ours: one line, printable, without secrets."""
    if not isinstance(words, str):
        return ""
    text = redact(words[: width * 4], [secret for secret in secrets if secret])
    line = " ".join(_ESCAPES.sub("", text).split())[:width]
    return "".join(char if char.isprintable() else "\ufffd" for char in line)
