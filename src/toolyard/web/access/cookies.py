"""The cookie that tells browsers apart, says who is signed in, and proves that a form is of our pages; and
the device cookie, which says who signed in with this browser before."""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from toolyard.accounts.browser_sessions import MAX_SESSION_SECONDS
from toolyard.accounts.device_cookies import Device, DeviceCookies
from toolyard.accounts.random_secrets import hash_secret, is_secret, new_secret
from toolyard.config.settings.table import Settings
from toolyard.web.access.request_context import get_request_context

if TYPE_CHECKING:
    from toolyard.web.services import Services

__all__ = [
    "Browser",
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
    """With ``__Host-`` browsers take it from this very host only, over https only."""
    return "__Host-toolyard" if _is_https(settings) else "toolyard"


class Browser:
    """A browser, by the text of its cookie."""

    __slots__ = ("_csrf_key", "text")

    def __init__(self, text: str, key: bytes) -> None:
        self.text = text
        self._csrf_key = key

    @property
    def id(self) -> str:
        """What pending things are bound to. It does not give the cookie away."""
        return hash_secret(f"browser {self.text}")

    @property
    def csrf(self) -> str:
        """What every form of a page of ours carries, and no other page can know; masked anew each time.

        The length of a compressed page tells whether it repeats a part of the request (BREACH). With a mask
        of its own no page has anything in common with the next.
        """
        mask = secrets.token_bytes(_CSRF_PROOF_BYTES)
        return (mask + _xor_bytes(mask, self._compute_csrf_proof())).hex()

    def is_valid_csrf(self, csrf: str) -> bool:
        """Whether a form that carries this is of a page that we gave to this browser."""
        try:
            given = bytes.fromhex(csrf)
        except ValueError:
            return False
        if len(given) == 2 * _CSRF_PROOF_BYTES:
            given = _xor_bytes(given[:_CSRF_PROOF_BYTES], given[_CSRF_PROOF_BYTES:])
        # Without a mask it is of a page that was open when Toolyard was updated to this version.
        return hmac.compare_digest(self._compute_csrf_proof(), given)

    def _compute_csrf_proof(self) -> bytes:
        return hmac.digest(self._csrf_key, self.text.encode(), "sha256")


def find_browser(request: Request) -> Browser | None:
    """The browser, where it has a cookie."""
    site: Services = request.app.state.site
    text = request.cookies.get(cookie_name(site.settings), "")
    return Browser(text, _get_csrf_key(request.app.state)) if is_secret(text) else None


def ensure_browser(request: Request) -> Browser:
    """The browser; one without a cookie gets one with the answer."""
    found = find_browser(request) or getattr(request.state, "new_browser", None)
    if found is None:
        found = Browser(new_secret(), _get_csrf_key(request.app.state))
        request.state.new_browser = found
        _set_cookie(request, found.text, _COOKIE_LIFETIME_SECONDS)
    return found


def set_session_cookie(request: Request, text: str) -> None:
    """Sign this browser in: from now on it has a cookie that it had never before."""
    _set_cookie(request, text, round(MAX_SESSION_SECONDS))


def find_device(request: Request) -> Device | None:
    """Return the device that this browser's device cookie names."""
    text = request.cookies.get(_device_cookie_name(request.app.state.site.settings), "")
    return _get_device_cookies(request).read(text)


def set_device_cookie(request: Request, user_id: str) -> None:
    """Remember that this user signed in with this browser, unless it is known already."""
    device = find_device(request)
    if device is None or device.user_id != user_id:
        name = _device_cookie_name(request.app.state.site.settings)
        _set_cookie(request, _get_device_cookies(request).issue(user_id), _COOKIE_LIFETIME_SECONDS, name)


def clear_session_cookie(request: Request) -> None:
    """This browser is nobody's from now on."""
    _set_cookie(request, "", 0)


def _set_cookie(request: Request, text: str, seconds: int, name: str | None = None) -> None:
    settings: Settings = request.app.state.site.settings
    name = name or cookie_name(settings)
    parts = [f"{name}={text}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    if _is_https(settings):
        parts.append("Secure")
    cookies = get_request_context(request.scope).set_cookie_headers
    cookies[:] = [cookie for cookie in cookies if not cookie.startswith(f"{name}=")]
    cookies.append("; ".join(parts))


def _device_cookie_name(settings: Settings) -> str:
    return f"{cookie_name(settings)}-device"


def _get_device_cookies(request: Request) -> DeviceCookies:
    state = request.app.state
    known = getattr(state, "devices", None)
    if known is None:
        site: Services = state.site
        known = state.devices = DeviceCookies(site.database.cipher.derive_key("device cookies"))
    return known


def _xor_bytes(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _is_https(settings: Settings) -> bool:
    return (settings.public_url or "").startswith("https://")


def _get_csrf_key(state: Any) -> bytes:
    """The same in every replica, and after a restart."""
    key = getattr(state, "csrf_key", None)
    if key is None:
        site: Services = state.site
        key = state.csrf_key = site.database.cipher.derive_key("csrf")
    return key
