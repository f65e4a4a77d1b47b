"""Which addresses may be asked while signing in, and through which session."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from yarl import URL

from toolyard.auth.errors import AddressNotAllowed
from toolyard.net import is_private, is_same_origin

__all__ = ["AddressPolicy", "is_local", "parse_http_url"]

_MAX_URL_CHARACTERS = 4096
"""Characters of an address."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """What the operator allows for one server: its own address, and those that its words name.

    ``private_addresses``: None: the configured address may be private, and what the server names only if the
    configured host is loopback or a private literal. True: all may. False: none.
    """

    server_url: str
    private_addresses: bool | None = None

    def is_guarded(self, url: URL) -> bool:
        """Whether a request there goes through the address guard."""
        if self.private_addresses is not None:
            return not self.private_addresses
        configured = parse_http_url(self.server_url, "the server's URL")
        return not (is_same_origin(configured, url) or is_local(configured.host or ""))

    def check_endpoint(self, address: str, label: str) -> str:
        """The address of an authorization server's endpoint, or AddressNotAllowed.

        Secrets go there and browsers are sent there, so it is https, except where it is on this machine or
        network, or the operator allows private addresses.
        """
        url = parse_http_url(address, label)
        if is_local(url.host or "") and self.is_guarded(url):
            # Whoever signs in would be sent to an address of their own network by a stranger's words.
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
    """A web address, or AddressNotAllowed."""
    hint = "ask those who run the server to correct its metadata"
    try:
        url = URL(address if len(address) <= _MAX_URL_CHARACTERS else "")
        host = url.host or ""
        # Browsers read %31 in a host as a letter, and we do not; of an IPv6 address it parts the zone.
        hidden = "%" in host and ":" not in host
        wrong = url.scheme not in ("http", "https") or not host or hidden or url.user is not None
    except ValueError:
        wrong, url = True, URL()
    if wrong or " " in address or not address.isprintable():
        raise AddressNotAllowed(f"{label} is not a web address", hint=hint)
    return url


def is_local(host: str) -> bool:
    """Whether a host is this machine, or a private address written out, in whichever way browsers read."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _is_legacy_private_ipv4(host)
    return is_private(host)


def _is_legacy_private_ipv4(host: str) -> bool:
    """Numbers that are no address to us, but to browsers: ``2130706433``, ``0x7f.1``, ``0177.0.0.1``."""
    try:
        return bool(host) and is_private(socket.inet_ntoa(socket.inet_aton(host)))
    except (OSError, ValueError):
        return False
