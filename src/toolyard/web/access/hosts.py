"""Allowed host names and origins. Any other name may be an attacker's that resolves to our address."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from toolyard.accounts.proxy_addresses import is_loopback
from toolyard.config.settings.table import Settings
from toolyard.config.value_checks import HOST_WITH_PORT

__all__ = ["AllowedHosts", "HostHeader", "parse_origin"]

_DEFAULT_PORTS = {"http": "80", "https": "443"}
_WILDCARD_ADDRESSES = ("0.0.0.0", "[::]")
_IPV4_MAPPED_PREFIX = "::ffff:"
"""Prefix of IPv4 addresses on a socket that listens for both IP versions."""
_HOST_CACHE_ENTRIES = 256


class HostHeader:
    """A parsed ``Host`` header: ``name`` in lower case, ``port`` empty if absent."""

    __slots__ = ("name", "port")

    def __init__(self, name: str, port: str) -> None:
        self.name = name
        self.port = port

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
        self._allowed = {(host.name, host.port) for host in hosts if host is not None} - {
            (name, "") for name in _WILDCARD_ADDRESSES
        }
        self._is_on_loopback = is_loopback(settings.host)
        self._public_origin = None if settings.public_url is None else parse_origin(settings.public_url)
        self.parse = lru_cache(_HOST_CACHE_ENTRIES)(HostHeader.parse)
        """Cached ``HostHeader.parse``: nearly all requests use one of a few names."""
        self.is_allowed = lru_cache(_HOST_CACHE_ENTRIES)(self._check_allowed)

    def _check_allowed(self, host: HostHeader, local_address: str) -> bool:
        """Return True if a request received on ``local_address`` may use this host.

        The local address itself is allowed: health checks use it, and DNS rebinding cannot forge it, because
        it is not a name. Requests over loopback may use any loopback name.
        """
        if (host.name, "") in self._allowed or (host.name, host.port) in self._allowed:
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
