"""Names and origins under which we answer. Any other name is somebody's page that points at us."""

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
"""Before an IPv4 address where one socket listens for both kinds."""
_HOST_CACHE_ENTRIES = 256


class HostHeader:
    """A ``Host`` header, read: ``name`` in small letters, ``port`` empty where it names none."""

    __slots__ = ("name", "port")

    def __init__(self, name: str, port: str) -> None:
        self.name = name
        self.port = port

    @classmethod
    def parse(cls, text: str) -> HostHeader | None:
        """None where it cannot be one."""
        found = HOST_WITH_PORT.fullmatch(text.lower())
        return None if found is None else cls(found[1], found[2] or "")

    def origin(self, scheme: str) -> str:
        """As browsers write it: without the port that the scheme implies."""
        implied = not self.port or self.port == _DEFAULT_PORTS.get(scheme)
        return f"{scheme}://{self.name}" if implied else f"{scheme}://{self.name}:{self.port}"


class AllowedHosts:
    """Which names requests may carry, from the settings: the address we listen on, the public one, and those
    that the operator adds. An entry with a port allows that port only."""

    def __init__(self, settings: Settings) -> None:
        entries = [*settings.allowed_hosts, _add_ipv6_brackets(settings.host)]
        if settings.public_url is not None:
            entries.append(urlsplit(settings.public_url).hostname or "")
        read = (HostHeader.parse(_add_ipv6_brackets(entry)) for entry in entries)
        self._allowed = {(host.name, host.port) for host in read if host is not None} - {
            (name, "") for name in _WILDCARD_ADDRESSES
        }
        self._is_on_loopback = is_loopback(settings.host)
        self._public_origin = None if settings.public_url is None else parse_origin(settings.public_url)
        self.parse = lru_cache(_HOST_CACHE_ENTRIES)(HostHeader.parse)
        """As ``Host.read``: nearly all requests carry one of a few names."""
        self.is_allowed = lru_cache(_HOST_CACHE_ENTRIES)(self._check_allowed)

    def _check_allowed(self, host: HostHeader, local_address: str) -> bool:
        """Whether a request may carry this name. ``our_end`` is the address that it was received on, which no
        name server can make into another's, and by which health checks call us; what came in over loopback
        may call us by any of the names that loopback has."""
        if (host.name, "") in self._allowed or (host.name, host.port) in self._allowed:
            return True
        if host.name == _add_ipv6_brackets(local_address.removeprefix(_IPV4_MAPPED_PREFIX)):
            return True
        return is_loopback(host.name) and (self._is_on_loopback or is_loopback(local_address))

    def is_own_origin(self, origin: str, request_origin: str) -> bool:
        """Whether an ``Origin`` is ours: where the request went to, or the public address."""
        return origin == request_origin or origin == self._public_origin


def parse_origin(url: str) -> str:
    """Scheme, host and port of a URL, as browsers write them."""
    parts = urlsplit(url)
    host = HostHeader.parse(parts.netloc.rpartition("@")[2])
    return f"{parts.scheme}://{parts.netloc}" if host is None else host.origin(parts.scheme)


def _add_ipv6_brackets(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
