"""The door: what every request must pass, in every mode, on every route; and what every answer carries.

No page elsewhere may reach a local Toolyard: requests that carry a foreign name (a name that an attacker
points at us) or a foreign origin (an attacker's page that sends to us) end here. A person who follows a link
to us, or comes back from a sign-in elsewhere, gets in: that is a navigation that changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard.accounts.proxy_addresses import TrustedProxies
from toolyard.config.settings.table import Settings
from toolyard.web.access.hosts import AllowedHosts
from toolyard.web.access.request_context import RequestContext
from toolyard.web.middleware.refusals import RequestRefusal, build_refusal_response

__all__ = ["RequestGuard"]

_SAFE_METHODS = ("GET", "HEAD")
_STATIC_PREFIX = "/static/"
_CHECKED_HEADERS = frozenset(
    {
        b"host",
        b"origin",
        b"sec-fetch-dest",
        b"sec-fetch-mode",
        b"sec-fetch-site",
        b"x-forwarded-for",
        b"x-forwarded-proto",
    }
)

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with that, browsers send the forms of our own pages with the origin null.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}


_NON_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""For answers that are no pages: nothing of the rest means anything there, and the gateway has many."""


class _HasSettings(Protocol):
    @property
    def settings(self) -> Settings: ...


class RequestGuard:
    """Pure ASGI, around everything else."""

    def __init__(self, app: ASGIApp, site: _HasSettings, *, serves_pages: bool = True) -> None:
        self._app = app
        self._proxies = TrustedProxies(site.settings.trusted_proxies)
        self._hosts = AllowedHosts(site.settings)
        headers = dict(_PAGE_HEADERS if serves_pages else _NON_PAGE_HEADERS)
        if (site.settings.public_url or "").startswith("https://"):
            headers["Strict-Transport-Security"] = "max-age=31536000"
        self._response_headers = tuple(
            (name.lower().encode(), value.encode()) for name, value in headers.items()
        )
        # A policy of the answer's own stays beside ours: browsers obey both, so it can only take away.
        self._replaced_headers = frozenset(name for name, _ in self._response_headers) - {
            b"content-security-policy"
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        passed = self._check_request(scope)
        if scope["type"] != "http":
            if isinstance(passed, RequestRefusal):
                await send({"type": "websocket.close", "code": 1008, "reason": passed.title})
            else:
                passed.attach_to(scope)
                await self._app(scope, receive, send)
            return
        if isinstance(passed, RequestRefusal):
            await build_refusal_response(passed, scope)(scope, receive, self._wrap_send(send, scope, ()))
            return
        passed.attach_to(scope)
        await self._app(scope, receive, self._wrap_send(send, scope, passed.set_cookie_headers))

    def _check_request(self, scope: Scope) -> RequestContext | RequestRefusal:
        said = _collect_headers(scope["headers"])
        peer = scope["client"][0] if scope.get("client") else ""
        our_end = scope["server"][0] if scope.get("server") else ""
        trusted = peer in self._proxies
        named = said.get(b"host", ())
        host = self._hosts.parse(named[0]) if len(named) == 1 else None
        if host is None:
            return _BAD_HOST_REFUSAL
        if not self._hosts.is_allowed(host, our_end):
            return _build_foreign_host_refusal(host.name)
        here = host.origin(_resolve_scheme(scope, said, trusted))
        if any(not self._hosts.is_own_origin(origin.lower(), here) for origin in said.get(b"origin", ())):
            return _build_foreign_origin_refusal(here)
        if not _is_allowed_by_fetch_metadata(scope, said):
            return _CROSS_SITE_REFUSAL
        return RequestContext(
            peer, trusted, self._proxies.client_address(peer, said.get(b"x-forwarded-for", [])), here
        )

    def _wrap_send(self, send: Send, scope: Scope, cookies: Iterable[str]) -> Send:
        kept = scope["path"].startswith(_STATIC_PREFIX)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
                headers = [pair for pair in given if pair[0].lower() not in self._replaced_headers]
                headers += self._response_headers
                if not kept and not any(name.lower() == b"cache-control" for name, _ in given):
                    headers.append((b"cache-control", b"no-store"))
                headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in cookies]
                message = {**message, "headers": headers}
            await send(message)

        return send_with_headers


def _collect_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[str]]:
    """Every value of the headers that are looked at here, read in one go."""
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in _CHECKED_HEADERS:
            found.setdefault(name, []).append(value.decode("latin-1"))
    return found


def _resolve_scheme(scope: Scope, said: Mapping[bytes, list[str]], trusted: bool) -> str:
    if trusted:
        forwarded = said.get(b"x-forwarded-proto", ())
        if len(forwarded) == 1 and forwarded[0] in ("http", "https"):
            return forwarded[0]
    scheme: str = scope["scheme"].replace("ws", "http")
    return scheme


def _is_allowed_by_fetch_metadata(scope: Scope, said: Mapping[bytes, list[str]]) -> bool:
    """What browsers say by themselves (Fetch Metadata): our own pages, the person, or a page that leads here.

    ``same-site`` is not enough: other ports of this machine and other hosts of the domain are somebody else.
    """
    site = said.get(b"sec-fetch-site")
    if site is None or site in (["same-origin"], ["none"]):
        return True
    leads_here = said.get(b"sec-fetch-mode") == ["navigate"]
    in_a_window = said.get(b"sec-fetch-dest", []) in ([], ["document"])
    return leads_here and in_a_window and scope.get("method") in _SAFE_METHODS


# What is told to those who do not get in.

_BAD_HOST_REFUSAL = RequestRefusal(
    400,
    "bad-host",
    "The request names no host",
    "the request has no Host header, more than one, or one that cannot be read",
    "send one Host header, with the name under which Toolyard is reached",
)
_CROSS_SITE_REFUSAL = RequestRefusal(
    403,
    "cross-site",
    "The request comes from another site",
    "the request was sent by a page of another site",
    "open Toolyard itself, and do it there",
)


def _build_foreign_host_refusal(name: str) -> RequestRefusal:
    return RequestRefusal(
        421,
        "foreign-host",
        "Toolyard does not answer under this name",
        f"Toolyard does not answer under the name '{name}'",
        "if it is right, add it to the setting allowed_hosts (TOOLYARD_ALLOWED_HOSTS), or set public_url",
    )


def _build_foreign_origin_refusal(here: str) -> RequestRefusal:
    return RequestRefusal(
        403,
        "foreign-origin",
        "The request comes from another origin",
        f"the request was sent by a page of another origin than {here}",
        "open Toolyard itself, and do it there; behind a proxy, set public_url to the address people use",
    )
