"""Names and origins under which we answer. Any other name is somebody's page that points at us."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from toolyard.accounts.proxy_addresses import is_loopback
from toolyard.config.settings.table import Settings
from toolyard.config.value_checks import HOST

__all__ = ["Host", "Hosts", "origin_of"]

_DEFAULT = {"http": "80", "https": "443"}
_EVERYWHERE = ("0.0.0.0", "[::]")
_MAPPED = "::ffff:"
"""Before an IPv4 address where one socket listens for both kinds."""
_KEPT = 256


class Host:
    """A ``Host`` header, read: ``name`` in small letters, ``port`` empty where it names none."""

    __slots__ = ("name", "port")

    def __init__(self, name: str, port: str) -> None:
        self.name = name
        self.port = port

    @classmethod
    def read(cls, text: str) -> Host | None:
        """None where it cannot be one."""
        found = HOST.fullmatch(text.lower())
        return None if found is None else cls(found[1], found[2] or "")

    def origin(self, scheme: str) -> str:
        """As browsers write it: without the port that the scheme implies."""
        implied = not self.port or self.port == _DEFAULT.get(scheme)
        return f"{scheme}://{self.name}" if implied else f"{scheme}://{self.name}:{self.port}"


class Hosts:
    """Which names requests may carry, from the settings: the address we listen on, the public one, and those
    that the operator adds. An entry with a port allows that port only."""

    def __init__(self, settings: Settings) -> None:
        entries = [*settings.allowed_hosts, _bracketed(settings.host)]
        if settings.public_url is not None:
            entries.append(urlsplit(settings.public_url).hostname or "")
        read = (Host.read(_bracketed(entry)) for entry in entries)
        self._allowed = {(host.name, host.port) for host in read if host is not None} - {
            (name, "") for name in _EVERYWHERE
        }
        self._on_loopback = is_loopback(settings.host)
        self._public = None if settings.public_url is None else origin_of(settings.public_url)
        self.read = lru_cache(_KEPT)(Host.read)
        """As ``Host.read``: nearly all requests carry one of a few names."""
        self.allow = lru_cache(_KEPT)(self._allow)

    def _allow(self, host: Host, our_end: str) -> bool:
        """Whether a request may carry this name. ``our_end`` is the address that it was received on, which no
        name server can make into another's, and by which health checks call us; what came in over loopback
        may call us by any of the names that loopback has."""
        if (host.name, "") in self._allowed or (host.name, host.port) in self._allowed:
            return True
        if host.name == _bracketed(our_end.removeprefix(_MAPPED)):
            return True
        return is_loopback(host.name) and (self._on_loopback or is_loopback(our_end))

    def own(self, origin: str, here: str) -> bool:
        """Whether an ``Origin`` is ours: where the request went to, or the public address."""
        return origin == here or origin == self._public


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, as browsers write them."""
    parts = urlsplit(url)
    host = Host.read(parts.netloc.rpartition("@")[2])
    return f"{parts.scheme}://{parts.netloc}" if host is None else host.origin(parts.scheme)


def _bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
