"""Outermost layer of the web application: checks on every request, and security headers on every response.

Pages of other sites must not reach a local Toolyard. Requests with a foreign Host (DNS rebinding) or a
foreign Origin (cross-site requests) are refused here. ``AllowedHosts`` has the host names that are ours; any
other may be an attacker's that resolves to our address. Following a link to Toolyard, or returning from a
sign-in at a provider, is allowed: that is a navigation with a safe method.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback
from toolyard.config.settings.table import Settings
from toolyard.config.value_checks import HOST_WITH_PORT
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY, RESPONSE_STATUS_KEY, RequestContext
from toolyard.web.http_server.metrics import Metrics
from toolyard.web.problem_details import (
    ErrorPageFor,
    ProblemDetails,
    build_problem,
    build_refusal_response,
    build_unexpected_error_response,
)

__all__ = ["AllowedHosts", "HostHeader", "RequestGuard", "parse_origin"]


_DEFAULT_PORTS = {"http": "80", "https": "443"}
_WILDCARD_ADDRESSES = ("0.0.0.0", "[::]")
_IPV4_MAPPED_PREFIX = "::ffff:"
"""Prefix of IPv4 addresses on a socket that listens for both IP versions."""
_HOST_CACHE_ENTRIES = 256


class HostHeader(NamedTuple):
    """A parsed ``Host`` header: ``name`` in lower case, ``port`` empty if absent."""

    name: str
    port: str

    @classmethod
    def parse(cls, text: str) -> HostHeader | None:
        """Parse a header value. Return None if it is malformed."""
        match = HOST_WITH_PORT.fullmatch(text.lower())
        return None if match is None else cls(match[1], match[2] or "")

    def origin(self, scheme: str) -> str:
        """Return the origin as browsers write it, without the default port of the scheme."""
        implied = not self.port or self.port == _DEFAULT_PORTS.get(scheme)
        return f"{scheme}://{self.name}" if implied else f"{scheme}://{self.name}:{self.port}"


class AllowedHosts:
    """Host names that requests may use: the listening address, the public URL, and ``allowed_hosts``.

    An entry with a port allows only that port.
    """

    def __init__(self, settings: Settings) -> None:
        entries = [*settings.allowed_hosts, _add_ipv6_brackets(settings.host)]
        if settings.public_url is not None:
            entries.append(urlsplit(settings.public_url).hostname or "")
        hosts = (HostHeader.parse(_add_ipv6_brackets(entry)) for entry in entries)
        self._allowed = {host for host in hosts if host is not None} - {
            HostHeader(name, "") for name in _WILDCARD_ADDRESSES
        }
        self._is_on_loopback = is_loopback(settings.host)
        self._public_origin = None if settings.public_url is None else parse_origin(settings.public_url)
        self.find_origin = lru_cache(_HOST_CACHE_ENTRIES)(self._find_origin)
        """Cached, because nearly all requests use one of a few names."""

    def _find_origin(self, host_header: str, scheme: str, local_address: str) -> str | ProblemDetails:
        """Return the origin that a request to this host belongs to, or the refusal of the host."""
        host = HostHeader.parse(host_header)
        if host is None:
            return _BAD_HOST_REFUSAL
        if not self.is_allowed(host, local_address):
            return _build_foreign_host_refusal(host.name)
        return host.origin(scheme)

    def is_allowed(self, host: HostHeader, local_address: str) -> bool:
        """Return True if a request received on ``local_address`` may use this host.

        The local address itself is allowed: health checks use it, and DNS rebinding cannot forge it, because
        it is not a name. Requests over loopback may use any loopback name.
        """
        if host in self._allowed or HostHeader(host.name, "") in self._allowed:
            return True
        if host.name == _add_ipv6_brackets(local_address.removeprefix(_IPV4_MAPPED_PREFIX)):
            return True
        return is_loopback(host.name) and (self._is_on_loopback or is_loopback(local_address))

    def is_own_origin(self, origin: str, request_origin: str) -> bool:
        """Return True if an ``Origin`` is that of the request or of the public URL."""
        return origin == request_origin or origin == self._public_origin


def parse_origin(url: str) -> str:
    """Return the origin of a URL as browsers write it."""
    parts = urlsplit(url)
    host = HostHeader.parse(parts.netloc.rpartition("@")[2])
    return f"{parts.scheme}://{parts.netloc}" if host is None else host.origin(parts.scheme)


def _add_ipv6_brackets(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


_SAFE_METHODS = ("GET", "HEAD")
_BODY_PIECE_BYTES = 1_000_000
_STATIC_PREFIX = "/static/"

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # With no-referrer, browsers would send the forms of our own pages with "Origin: null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}


_NON_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of responses other than pages. The rest has no effect there, and the gateway sends many."""


class RequestGuard:
    """Outermost ASGI middleware: validates requests, adds headers and cookies to responses, counts both in
    the metrics, and answers requests that failed unexpectedly."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        error_page_for: ErrorPageFor,
        *,
        serves_pages: bool = True,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._error_page_for = error_page_for
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._is_proxy = lru_cache(_HOST_CACHE_ENTRIES)(self._proxies.__contains__)
        self._hosts = AllowedHosts(settings)
        headers = dict(_PAGE_HEADERS if serves_pages else _NON_PAGE_HEADERS)
        if (settings.public_url or "").startswith("https://"):
            headers["Strict-Transport-Security"] = "max-age=31536000"
        self._response_headers = tuple(
            (name.lower().encode(), value.encode()) for name, value in headers.items()
        )
        # A response may add its own policy. Browsers enforce both, so it can only restrict further.
        self._replaced_headers = frozenset(name for name, _ in self._response_headers) - {
            b"content-security-policy"
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # The server offers none, and no route accepts one.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        self._metrics.open_requests += 1
        try:
            result = self._check_request(scope)
            if isinstance(result, ProblemDetails):
                await build_refusal_response(result, scope)(scope, receive, self._wrap_send(send, scope, ()))
                return
            scope[REQUEST_CONTEXT_KEY] = result
            send = self._wrap_send(send, scope, result.set_cookie_headers)
            try:
                await self._app(scope, receive, send)
            except Exception as error:
                response = await build_unexpected_error_response(error, scope, self._error_page_for)
                if response is None:
                    raise
                await response(scope, receive, send)
        finally:
            self._metrics.record_response(scope, time.perf_counter() - started)

    def _check_request(self, scope: Scope) -> RequestContext | ProblemDetails:
        headers = _decode_headers(scope["headers"])
        peer = scope["client"][0] if scope.get("client") else ""
        local_address = scope["server"][0] if scope.get("server") else ""
        trusted = self._is_proxy(peer)
        # Any client could send the forwarded scheme; only a trusted proxy is believed.
        scheme: str = scope["scheme"].replace("ws", "http")
        if trusted and (forwarded := headers.get("x-forwarded-proto")) in _DEFAULT_PORTS:
            scheme = forwarded
        # Several Host headers are no valid name: a proxy may have checked another one than we would use.
        own_origin = self._hosts.find_origin(headers.get("host", ""), scheme, local_address)
        if isinstance(own_origin, ProblemDetails):
            return own_origin
        origin = headers.get("origin")
        if origin is not None and not self._hosts.is_own_origin(origin.lower(), own_origin):
            return _build_foreign_origin_refusal(own_origin)
        if "sec-fetch-site" in headers and not _is_allowed_by_fetch_metadata(scope, headers):
            return _CROSS_SITE_REFUSAL
        address = peer
        if trusted:
            address = self._proxies.client_address(peer, headers.get("x-forwarded-for", ""))
        return RequestContext(peer, trusted, address, own_origin, headers)

    def _wrap_send(self, send: Send, scope: Scope, cookies: Iterable[str]) -> Send:
        is_static = scope["path"].startswith(_STATIC_PREFIX)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                # For the metrics, and for the middleware inside of this one.
                scope[RESPONSE_STATUS_KEY] = message["status"]
                headers: list[tuple[bytes, bytes]] = []
                has_cache_control = is_static
                for pair in message.get("headers", ()):
                    name = pair[0].lower()
                    if name not in self._replaced_headers:
                        headers.append(pair)
                        has_cache_control = has_cache_control or name == b"cache-control"
                headers += self._response_headers
                if not has_cache_control:
                    headers.append((b"cache-control", b"no-store"))
                headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in cookies]
                message = {**message, "headers": headers}
            elif len(message.get("body", b"")) > _BODY_PIECE_BYTES:
                await _send_in_pieces(message, send)
                return
            await send(message)

        return send_with_headers


def _decode_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers of a request by their names in lower case.

    The values of a repeated header are joined, so they match no valid value of a header that may not be
    repeated.
    """
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    if len(headers) < len(raw):
        values: dict[bytes, list[bytes]] = {}
        for name, value in raw:
            values.setdefault(name, []).append(value)
        headers = {
            name.decode("latin-1"): b", ".join(each).decode("latin-1") for name, each in values.items()
        }
    return headers


async def _send_in_pieces(message: Message, send: Send) -> None:
    """Send a long body in pieces, so that other tasks run while it is copied to the socket."""
    body = memoryview(message["body"])
    for start in range(0, len(body), _BODY_PIECE_BYTES):
        end = start + _BODY_PIECE_BYTES
        more = end < len(body) or message.get("more_body", False)
        await send({**message, "body": bytes(body[start:end]), "more_body": more})
        # A reader that is fast enough never makes ``send`` wait.
        await asyncio.sleep(0)


def _is_allowed_by_fetch_metadata(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Check the Fetch Metadata that browsers send: same origin, a user action, or a top-level navigation.

    ``same-site`` is not enough: other ports of this machine and other hosts of the domain are not trusted.
    """
    if headers["sec-fetch-site"] in ("same-origin", "none"):
        return True
    is_navigation = headers.get("sec-fetch-mode") == "navigate"
    is_top_level = headers.get("sec-fetch-dest") in (None, "document")
    return is_navigation and is_top_level and scope.get("method") in _SAFE_METHODS


# Refusals.

_BAD_HOST_REFUSAL = build_problem(
    400,
    "bad-host",
    "The request has no valid Host header",
    "the Host header is missing, repeated, or malformed",
    "send exactly one Host header, with the host name of Toolyard",
)
_CROSS_SITE_REFUSAL = build_problem(
    403,
    "cross-site",
    "The request comes from another site",
    "the request was sent by a page of another site",
    "open Toolyard directly, and repeat the action there",
)


def _build_foreign_host_refusal(name: str) -> ProblemDetails:
    return build_problem(
        421,
        "foreign-host",
        "This host name is not allowed",
        f"'{name}' is not a host name of this Toolyard",
        "if it is correct, add it to the setting allowed_hosts (TOOLYARD_ALLOWED_HOSTS), or set public_url",
    )


def _build_foreign_origin_refusal(own_origin: str) -> ProblemDetails:
    return build_problem(
        403,
        "foreign-origin",
        "The request comes from another origin",
        f"the request was sent by a page of an origin other than {own_origin}",
        "open Toolyard directly and repeat the action there; behind a proxy, set public_url",
    )
