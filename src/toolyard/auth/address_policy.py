"""Policy for the addresses contacted during a sign-in, and validation of http(s) URLs."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from yarl import URL

from toolyard.auth.errors import AddressNotAllowed
from toolyard.net import is_private, is_same_origin

__all__ = ["AddressPolicy", "is_local", "parse_http_url"]

_MAX_URL_CHARACTERS = 4096
"""Maximum length of a URL."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Addresses that are allowed for one server: its configured URL, and URLs from its metadata.

    ``private_addresses`` True allows all private addresses, False allows none. None allows the configured
    URL to be private; URLs from metadata may be private only if the configured host is loopback or a private
    IP address.
    """

    server_url: str
    private_addresses: bool | None = None

    def is_guarded(self, url: URL) -> bool:
        """Return whether a request to this URL must use the address guard."""
        if self.private_addresses is not None:
            return not self.private_addresses
        configured = parse_http_url(self.server_url, "the server's URL")
        return not (is_same_origin(configured, url) or is_local(configured.host or ""))

    def is_private_page(self, url: URL) -> bool:
        """Return whether a page is in a private network to which the server must not send a browser."""
        return is_local(url.host or "") and self.is_guarded(url)

    def check_endpoint(self, address: str, label: str) -> str:
        """Return the address of an authorization server's endpoint unchanged, or raise AddressNotAllowed.

        Endpoints receive secrets and browser redirects, so they need https, except on this machine or
        network, or if the operator allows private addresses.
        """
        url = parse_http_url(address, label)
        if self.is_private_page(url):
            # A remote server's metadata must not send the user's browser into the user's own network.
            raise AddressNotAllowed(
                f"{label} is at {url.host}, a private address, which is not allowed for this server",
                hint="allow private addresses for it (privateAddresses) if you trust it",
            )
        if url.scheme != "https" and not is_local(url.host or "") and not self.private_addresses:
            raise AddressNotAllowed(
                f"{label} {url.with_query(None)} is not encrypted",
                hint="only https is accepted, except on this machine",
            )
        return address


def parse_http_url(address: str, label: str) -> URL:
    """Parse an http(s) URL, or raise AddressNotAllowed."""
    hint = "ask the server's operator to correct its metadata"
    try:
        url = URL(address if len(address) <= _MAX_URL_CHARACTERS else "")
        host = url.host or ""
        # Browsers decode percent escapes in a host name and we do not, so the two could see different
        # hosts. In an IPv6 address "%" starts the zone.
        is_escaped = "%" in host and ":" not in host
        is_invalid = url.scheme not in ("http", "https") or not host or is_escaped or url.user is not None
    except ValueError:
        is_invalid, url = True, URL()
    if is_invalid or " " in address or not address.isprintable():
        raise AddressNotAllowed(f"{label} is not a valid http(s) URL", hint=hint)
    return url


def is_local(host: str) -> bool:
    """Return whether a host is this machine or a private IP address, in any notation that browsers accept."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _is_legacy_private_ipv4(host)
    return is_private(host)


def _is_legacy_private_ipv4(host: str) -> bool:
    """Return whether a host is private in a notation only browsers accept: ``2130706433``, ``0x7f.1``."""
    try:
        return bool(host) and is_private(socket.inet_ntoa(socket.inet_aton(host)))
    except (OSError, ValueError):
        return False
