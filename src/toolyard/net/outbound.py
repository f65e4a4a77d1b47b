"""HTTP sessions for outgoing requests, created on first use and shared by the whole process."""

from __future__ import annotations

import ssl
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from toolyard.net.address_guard import AddressGuard
from toolyard.tracing.tracer import NO_TRACER, Tracer
from toolyard.types.version import USER_AGENT

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver
    from yarl import URL

    from toolyard.net.http1.pool import OriginPool

__all__ = ["OutboundHttp", "is_same_origin"]

_KEEP_ALIVE_SECONDS = 4.0
"""Seconds for which an idle connection is kept. Common servers close idle connections after five seconds.
Closing first avoids writing a request to a connection that the server is just closing: it would be unknown
whether the server executed it."""


class OutboundHttp:
    """Two aiohttp sessions, one with the address guard and one without. They share a TLS context, but no
    connections.

    No cookies are stored, redirects are left to the caller, and nothing is read from the environment except
    proxies, once per origin. Close it in the event loop that used it.

    ``guard`` checks the addresses of the guarded session. ``resolver`` resolves names for both sessions and
    is not closed by ``close``.
    """

    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        resolver: AbstractResolver | None = None,
        tracer: Tracer = NO_TRACER,
        keep_alive_seconds: float = _KEEP_ALIVE_SECONDS,
    ) -> None:
        self.tracer = tracer
        """Tracer of everything that leaves this process."""
        self._keep_alive_seconds = keep_alive_seconds
        self._guard = guard or AddressGuard()
        self._resolver = resolver
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._pools: WeakValueDictionary[tuple[object, ...], OriginPool] = WeakValueDictionary()
        self._tls: ssl.SSLContext | None = None

    async def load_library(self) -> None:
        """Load aiohttp, in a thread: it takes a fifth of a second. Await this before the first request."""
        # Imported here, because commands that open no connection load this module.
        import asyncio

        if "aiohttp" not in sys.modules:
            await asyncio.to_thread(import_module, "aiohttp")

    def session(self, *, guarded: bool) -> aiohttp.ClientSession:
        """Return the session with the address guard, or the one without."""
        session = self._sessions.get(guarded)
        if session is None or session.closed:
            session = self._sessions[guarded] = self._create_session(guarded)
        return session

    def origin_pool(self, url: URL, *, guarded: bool) -> OriginPool:
        """Return the connection pool for the origin of a URL. Equal origins share one pool."""
        options = self.request_options(url, guarded=guarded)
        tls, proxy = options.get("ssl", True), options.get("proxy")
        key = (guarded, url.scheme, url.user, url.password, url.host, url.port, proxy, tls)
        pool = self._pools.get(key)
        if pool is None:
            from yarl import URL

            from toolyard.net.http1.pool import OriginPool  # Imported late: loads aiohttp.

            get_session = partial(self.session, guarded=guarded)
            pool = self._pools[key] = OriginPool(
                url, get_session, tls, URL(proxy) if proxy else None, self._keep_alive_seconds
            )
        return pool

    def tls_context(self) -> ssl.SSLContext:
        """Return the shared TLS context. Loading the certificate bundle takes tens of milliseconds."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def set_tls_context(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context in place of the default one, e.g. with a company's own CA."""
        self._tls = tls

    def request_options(self, url: URL, *, guarded: bool) -> dict[str, Any]:
        """Return the keyword arguments that a request to this URL needs: TLS, proxy, no redirects."""
        options: dict[str, Any] = {"allow_redirects": False}
        if url.scheme == "https":
            options["ssl"] = self.tls_context()
        # Not for guarded requests: a proxy would connect to addresses that the guard never sees.
        if not guarded and (proxy := _find_proxy(url)) is not None:
            options["proxy"] = proxy
        return options

    async def close(self) -> None:
        """Close all connections. Later requests open new ones."""
        for pool in list(self._pools.values()):
            pool.close()
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    def _create_session(self, guarded: bool) -> aiohttp.ClientSession:
        import aiohttp  # Imported late: programs with stdio servers alone do not need it.

        from toolyard.net.guarded_connector import DaemonThreadResolver, GuardedConnector

        connector_class = GuardedConnector if guarded else aiohttp.TCPConnector
        connector = connector_class(
            limit=0,
            keepalive_timeout=self._keep_alive_seconds,
            resolver=self._resolver or DaemonThreadResolver(),
            socket_factory=self._guard.create_checked_socket if guarded else None,
            # The guard checks the address at connect time, so a cached DNS answer has no benefit, only age.
            use_dns_cache=not guarded,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # aiohttp's default limit of five minutes would end long calls and event streams. Callers have
            # their own limits.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"User-Agent": USER_AGENT},
            trust_env=False,
            raise_for_status=False,
            max_line_size=32 * 1024,
            max_field_size=32 * 1024,
        )


def _find_proxy(url: URL) -> str | None:
    # Imported late: loads http.client and email.
    from urllib.request import getproxies, proxy_bypass

    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)


def is_same_origin(one: URL, other: URL) -> bool:
    """Return True if two URLs have the same scheme, host and port."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
