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
from functools import partial
from typing import Any, TypeAlias, cast

from yarl import URL

from toolyard.auth.errors import AddressNotAllowed
from toolyard.auth.oauth_http import AddressPolicy, parse_http_url
from toolyard.concurrency.lru_cache import LruCache
from toolyard.concurrency.tasks import SingleFlight
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
_MAX_SIDE_PIXELS = 1024
"""A small file can describe a picture that takes gigabytes in the browser of everyone who sees it."""
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
    found = [cast("Mapping[str, object]", each) for each in entries if isinstance(each, dict)]
    # Pages show icons on a light ground in both themes.
    found.sort(key=lambda each: each.get("theme") == "dark")
    urls = (each.get("src") for each in found)
    return tuple(src for src in urls if isinstance(src, str) and _is_usable_length(src))


def _is_usable_length(src: str) -> bool:
    return len(src) <= (2 * _MAX_ICON_BYTES if src.startswith(_DATA_PREFIX) else _MAX_URL_CHARACTERS)


_IconKey: TypeAlias = tuple[str, str, bool | None, str]


class ServerIcons:
    """Fetches and caches icons."""

    def __init__(self, net: OutboundHttp, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._net = net
        self._clock = clock
        self._cache: LruCache[_IconKey, tuple[float, Icon | None]] = LruCache(_MAX_CACHED_ICONS)
        self._requests: SingleFlight[_IconKey, Icon | None] = SingleFlight(cancel_when_abandoned=True)

    async def fetch(self, server: Server, urls: Sequence[str]) -> Icon | None:
        """Return the first icon that is a PNG, JPEG or WebP picture of acceptable size, or None."""
        for url in urls:
            # The server's address and policy decide whether an icon may be fetched.
            own_url = server.transport.url if isinstance(server.transport, HttpSpec) else ""
            key = (server.id, own_url, server.private_addresses, url)
            cached = self._cache.get(key)
            if cached is None or self._clock() - cached[0] > _CACHE_SECONDS:
                icon = await self._requests.run(key, partial(self._read, server, url))
                cached = self._cache[key] = (self._clock(), icon)
            if cached[1] is not None:
                return cached[1]
        return None

    async def _read(self, server: Server, url: str) -> Icon | None:
        try:
            content = _decode_data_url(url) if url.startswith(_DATA_PREFIX) else await self._get(server, url)
        except (AddressNotAllowed, ValueError, OSError, TimeoutError):
            return None
        media_type = _find_media_type(content)
        if media_type is None or len(content) > _MAX_ICON_BYTES:
            return None
        is_small = all(0 < side <= _MAX_SIDE_PIXELS for side in _find_dimensions(content))
        return Icon(media_type, content) if is_small else None

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


def _find_dimensions(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels, as the header of a picture says; zeros if it has none."""
    if content.startswith(b"\x89PNG"):
        return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    if content.startswith(b"\xff\xd8"):
        return _find_jpeg_dimensions(content)
    kind, body = content[12:16], content[20:30]
    if kind == b"VP8X":
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = int.from_bytes(body[6:8], "little"), int.from_bytes(body[8:10], "little")
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _find_jpeg_dimensions(content: bytes) -> tuple[int, int]:
    position = 2
    while position + 9 <= len(content) and content[position] == 0xFF:
        marker = content[position + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # Start of a frame.
            height, width = content[position + 5 : position + 7], content[position + 7 : position + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
    return 0, 0
