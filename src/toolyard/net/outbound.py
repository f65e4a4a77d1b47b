"""Sessions for outgoing HTTP, made when first needed and shared by everything in a process."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from toolyard.net.address_guard import AddressGuard

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver
    from yarl import URL

    from toolyard.net.http1.pool import OriginPool

__all__ = ["OutboundHttp", "is_same_origin"]


class OutboundHttp:
    """Two sessions that share one TLS context and no connections: one guarded, one not.

    No cookies are kept, redirects are left to the caller, and nothing is read from the environment
    except proxies, once for each address. Must be closed in the loop that used it.

    ``guard`` judges the addresses of the guarded session; ``resolver`` looks names up for both, and is left
    open by ``close``.
    """

    def __init__(
        self, guard: AddressGuard | None = None, *, resolver: AbstractResolver | None = None
    ) -> None:
        self._guard = guard or AddressGuard()
        self._resolver = resolver
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._pools: WeakValueDictionary[tuple[object, ...], OriginPool] = WeakValueDictionary()
        self._tls: ssl.SSLContext | None = None

    def session(self, *, guarded: bool) -> aiohttp.ClientSession:
        """The session whose sockets are checked by the address guard, or the one without."""
        session = self._sessions.get(guarded)
        if session is None or session.closed:
            session = self._sessions[guarded] = self._create_session(guarded)
        return session

    def origin_pool(self, url: URL, *, guarded: bool) -> OriginPool:
        """Where requests to this address go: the same for all who ask for the same origin."""
        options = self.options(url, guarded=guarded)
        tls, proxy = options.get("ssl", True), options.get("proxy")
        key = (guarded, url.scheme, url.user, url.password, url.host, url.port, proxy, tls)
        origin = self._pools.get(key)
        if origin is None:
            from yarl import URL

            from toolyard.net.http1.pool import OriginPool  # aiohttp, which only servers behind a URL need

            session = partial(self.session, guarded=guarded)
            origin = self._pools[key] = OriginPool(url, session, tls, URL(proxy) if proxy else None)
        return origin

    def tls_context(self) -> ssl.SSLContext:
        """The one TLS context. Loading the certificate bundle costs tens of milliseconds, so once."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def trust(self, tls: ssl.SSLContext) -> None:
        """Use this context instead of the default one, e.g. with a company's own authority."""
        self._tls = tls

    def options(self, url: URL, *, guarded: bool) -> dict[str, Any]:
        """What a request to this address must be given besides its own words."""
        options: dict[str, Any] = {"allow_redirects": False}
        if url.scheme == "https":
            options["ssl"] = self.tls_context()
        # A proxy would connect on our behalf, out of the guard's sight.
        if not guarded and (proxy := _find_proxy(url)) is not None:
            options["proxy"] = proxy
        return options

    async def close(self) -> None:
        """Close every connection. Later requests make new ones."""
        for origin in list(self._pools.values()):
            origin.close()
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    def _create_session(self, guarded: bool) -> aiohttp.ClientSession:
        import aiohttp  # only servers behind a URL need it

        from toolyard.net.http1.pool import KEEP_ALIVE_SECONDS
        from toolyard.net.resolver import DaemonThreadResolver

        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            resolver=self._resolver or DaemonThreadResolver(),
            socket_factory=self._guard.create_checked_socket if guarded else None,
            # The guard decides on the address that is dialled; a cached name would only add staleness.
            use_dns_cache=not guarded,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            trust_env=False,
            raise_for_status=False,
            max_line_size=32 * 1024,
            max_field_size=32 * 1024,
        )


def _find_proxy(url: URL) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # http.client and email, which programs do without

    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)


def is_same_origin(one: URL, other: URL) -> bool:
    """Whether two addresses have scheme, host and port in common."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
