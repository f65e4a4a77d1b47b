"""Icons that servers publish, fetched here and served from our own origin.

An address in a server's words is fetched under the address policy of that server, and a picture is accepted
by its content. Browsers of users therefore never contact the server, and the content security policy stays.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from yarl import URL

from toolyard.auth.address_policy import AddressPolicy, parse_http_url
from toolyard.auth.errors import AddressNotAllowed
from toolyard.concurrency.lru_cache import LruCache
from toolyard.net import OutboundHttp
from toolyard.types.server import HttpSpec, Server

__all__ = ["Icon", "ServerIcons", "find_icon_urls"]

_MAX_ICON_BYTES = 64 * 1024
_MAX_ICONS_TRIED = 3
_MAX_URL_CHARACTERS = 2048
_MAX_CACHED_ICONS = 256
_CACHE_SECONDS = 3600.0
"""Time after which an icon, or a failure to fetch it, is fetched again."""
_FETCH_TIMEOUT_SECONDS = 5.0
_DATA_PREFIX = "data:"


@dataclass(frozen=True, slots=True)
class Icon:
    """A picture, with the media type that its content has."""

    media_type: str
    content: bytes


def find_icon_urls(server_info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the addresses of the icons that a server names (``icons`` of its ``Implementation``)."""
    icons: object = server_info.get("icons")
    entries = cast("Sequence[object]", icons)[:_MAX_ICONS_TRIED] if isinstance(icons, list) else ()
    found = [cast("Mapping[str, object]", each).get("src") for each in entries if isinstance(each, dict)]
    return tuple(src for src in found if isinstance(src, str) and _is_usable_length(src))


def _is_usable_length(src: str) -> bool:
    return len(src) <= (2 * _MAX_ICON_BYTES if src.startswith(_DATA_PREFIX) else _MAX_URL_CHARACTERS)


class ServerIcons:
    """Fetches and caches icons."""

    def __init__(self, net: OutboundHttp, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._net = net
        self._clock = clock
        # Keyed by server, too: an address that one server may use can be refused for another.
        self._cache: LruCache[tuple[str, str], tuple[float, Icon | None]] = LruCache(_MAX_CACHED_ICONS)

    async def fetch(self, server: Server, urls: Sequence[str]) -> Icon | None:
        """Return the first icon that is a PNG, JPEG or WebP picture of at most 64 KB, or None."""
        for url in urls:
            key = (server.id, url)
            cached = self._cache.get(key)
            if cached is None or self._clock() - cached[0] > _CACHE_SECONDS:
                cached = self._cache[key] = (self._clock(), await self._read(server, url))
            if cached[1] is not None:
                return cached[1]
        return None

    async def _read(self, server: Server, url: str) -> Icon | None:
        try:
            content = _decode_data_url(url) if url.startswith(_DATA_PREFIX) else await self._get(server, url)
        except (AddressNotAllowed, ValueError, OSError, TimeoutError):
            return None
        media_type = _find_media_type(content)
        return None if media_type is None or len(content) > _MAX_ICON_BYTES else Icon(media_type, content)

    async def _get(self, server: Server, address: str) -> bytes:
        """Return the body of a response, at most a byte more than is allowed. Redirects are not followed."""
        await self._net.load_library()
        import aiohttp  # Loaded by now.

        url = parse_http_url(address, "the icon")
        guarded = _is_guarded(server, url)
        session, options = self._net.session(guarded=guarded), self._net.request_options(url, guarded=guarded)
        headers = {"Accept": "image/png, image/jpeg, image/webp", "Accept-Encoding": "identity"}
        body = bytearray()
        try:
            async with (
                asyncio.timeout(_FETCH_TIMEOUT_SECONDS),
                session.get(url, headers=headers, **options) as response,
            ):
                if (
                    response.status != 200
                    or response.headers.get("Content-Encoding", "identity") != "identity"
                ):
                    return b""
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _MAX_ICON_BYTES:
                        response.close()
                        break
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error
        return bytes(body)


def _is_guarded(server: Server, url: URL) -> bool:
    if not isinstance(server.transport, HttpSpec):
        return True
    return AddressPolicy(server.transport.url, server.private_addresses).is_guarded(url)


def _decode_data_url(url: str) -> bytes:
    head, _, data = url.partition(",")
    if not head.endswith(";base64"):
        return b""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return b""


def _find_media_type(content: bytes) -> str | None:
    """Return the type of a picture by its first bytes. SVG is not accepted, since it may contain scripts."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None
