"""The session cookie, CSRF tokens derived from it, and the device cookie.

The session cookie identifies a browser and, if signed in, its user. The device cookie records which user
signed in with this browser before.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from starlette.requests import Request

from toolyard.accounts.browser_sessions import MAX_SESSION_SECONDS, Device, DeviceCookies
from toolyard.accounts.random_secrets import hash_secret, is_secret, new_secret
from toolyard.config.settings.table import Settings
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY
from toolyard.web.service_lookup import get_service

__all__ = [
    "Browser",
    "BrowserCookies",
    "clear_session_cookie",
    "cookie_name",
    "ensure_browser",
    "find_browser",
    "find_device",
    "set_device_cookie",
    "set_session_cookie",
]

_COOKIE_LIFETIME_SECONDS = 365 * 86_400
_CSRF_PROOF_BYTES = 32


def cookie_name(settings: Settings) -> str:
    """Return the name of the session cookie.

    With the prefix ``__Host-``, browsers accept it only from this host and over https.
    """
    return "__Host-toolyard" if _is_https(settings) else "toolyard"


class BrowserCookies:
    """Names of our cookies, and the key of CSRF tokens, the same in all replicas and after a restart."""

    def __init__(self, settings: Settings, csrf_key: bytes) -> None:
        self.name = cookie_name(settings)
        self.device_name = f"{self.name}-device"
        self.is_https = _is_https(settings)
        self.csrf_key = csrf_key


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser, identified by the value of its cookie."""

    text: str
    _csrf_key: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Identifier that pending sign-ins are bound to. It does not reveal the cookie."""
        return hash_secret(f"browser {self.text}")

    @property
    def csrf(self) -> str:
        """CSRF token for the forms of a page, masked differently each time.

        The length of a compressed page reveals whether it repeats a part of the request (BREACH). With a
        random mask, no two pages contain the same token.
        """
        mask = secrets.token_bytes(_CSRF_PROOF_BYTES)
        return (mask + _xor_bytes(mask, self._compute_csrf_proof())).hex()

    def is_valid_csrf(self, csrf: str) -> bool:
        """Return True if the token was issued to this browser."""
        try:
            token = bytes.fromhex(csrf)
        except ValueError:
            return False
        # Tokens without a mask come from pages that were open during an update from an older version.
        if len(token) == 2 * _CSRF_PROOF_BYTES:
            token = _xor_bytes(token[:_CSRF_PROOF_BYTES], token[_CSRF_PROOF_BYTES:])
        return hmac.compare_digest(self._compute_csrf_proof(), token)

    def _compute_csrf_proof(self) -> bytes:
        return hmac.digest(self._csrf_key, self.text.encode(), "sha256")


def find_browser(request: Request) -> Browser | None:
    """Return the browser if the request has a valid cookie."""
    cookies = get_service(request, BrowserCookies)
    text = request.cookies.get(cookies.name, "")
    return Browser(text, cookies.csrf_key) if is_secret(text) else None


def ensure_browser(request: Request) -> Browser:
    """Return the browser; set a new cookie in the response if it has none."""
    browser = find_browser(request) or getattr(request.state, "new_browser", None)
    if browser is None:
        browser = Browser(new_secret(), get_service(request, BrowserCookies).csrf_key)
        request.state.new_browser = browser
        _set_cookie(request, browser.text, _COOKIE_LIFETIME_SECONDS)
    return browser


def set_session_cookie(request: Request, text: str) -> None:
    """Sign this browser in with a fresh cookie value, which prevents session fixation."""
    _set_cookie(request, text, round(MAX_SESSION_SECONDS))


def find_device(request: Request) -> Device | None:
    """Return the device of the browser's device cookie, if it is valid."""
    text = request.cookies.get(get_service(request, BrowserCookies).device_name, "")
    return get_service(request, DeviceCookies).read(text)


def set_device_cookie(request: Request, user_id: str) -> None:
    """Record that this user signed in with this browser, unless the cookie says so already."""
    device = find_device(request)
    if device is None or device.user_id != user_id:
        name = get_service(request, BrowserCookies).device_name
        _set_cookie(
            request, get_service(request, DeviceCookies).issue(user_id), _COOKIE_LIFETIME_SECONDS, name
        )


def clear_session_cookie(request: Request) -> None:
    """Delete the session cookie of this browser."""
    _set_cookie(request, "", 0)


def _set_cookie(request: Request, text: str, seconds: int, name: str | None = None) -> None:
    settings = get_service(request, BrowserCookies)
    name = name or settings.name
    # Lax, not Strict: a user who follows a link, or returns from a provider, must still be signed in.
    parts = [f"{name}={text}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    if settings.is_https:
        parts.append("Secure")
    cookies = request.scope[REQUEST_CONTEXT_KEY].set_cookie_headers
    # A later value replaces an earlier one of the same response.
    cookies[:] = [cookie for cookie in cookies if not cookie.startswith(f"{name}=")]
    cookies.append("; ".join(parts))


def _xor_bytes(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


def _is_https(settings: Settings) -> bool:
    return (settings.public_url or "").startswith("https://")
