"""Slugs: what a user calls an instance in the names of its tools, proposed from the server's address."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import urlsplit

__all__ = ["LONGEST", "propose", "unique"]

LONGEST = 24
_FALLBACK = "server"
_LOCAL = "local"
_GENERIC_WORDS = "api apis app apps dev gateway mcp mcps prod remote server sse staging www"
_GENERIC = frozenset(_GENERIC_WORDS.split())
"""What stands before a name and says nothing about whose it is."""
_SECOND_LEVEL_WORDS = "ac co com edu gob gov gv ltd mil ne net nom or org plc sch"
_SECOND_LEVEL = frozenset(_SECOND_LEVEL_WORDS.split())
"""What countries put between a name and their own domain."""
_SHARED_HOSTS = (
    "a.run.app azurewebsites.net cloudfront.net fly.dev github.io gitlab.io herokuapp.com hf.space "
    "lambda-url.on.aws modal.run netlify.app ngrok-free.app ngrok.app ngrok.io onrender.com pages.dev "
    "railway.app trycloudflare.com up.railway.app vercel.app web.app workers.dev"
)
_SHARED = frozenset(_SHARED_HOSTS.split())
"""Hosts of many people's things, each under a name of its own."""
_OTHER = re.compile(r"[^A-Za-z0-9]+")


def propose(url: str) -> str:
    """A slug for a server's address: ``https://api.github.com/mcp`` gives ``github``. Always a valid one."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        host = ""
    return _fit(_name(host)) or _FALLBACK


def unique(slug: str, taken: Iterable[str]) -> str:
    """The slug, or with ``-2``, ``-3`` … the first that is not taken, without regard to case."""
    used = {other.casefold() for other in taken}
    candidate, number = slug, 2
    while candidate.casefold() in used:
        tail = f"-{number}"
        candidate = slug[: LONGEST - len(tail)].rstrip("-") + tail
        number += 1
    return candidate


def _name(host: str) -> str:
    """The part of a host by which people know it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if address.is_loopback:
            return _LOCAL
        return str(address) if address.version == 4 else ""
    if host == "localhost" or host.endswith(".localhost"):
        return host.removesuffix("localhost").rstrip(".") or _LOCAL
    labels = [label for label in host.split(".") if label]
    return _readable(_registered(labels)) if labels else ""


def _registered(labels: list[str]) -> str:
    """The label that somebody registered; beside a generic one, the more telling neighbour."""
    shared = [size for size in (3, 2) if len(labels) > size and ".".join(labels[-size:]) in _SHARED]
    if shared:
        rest = labels[: -shared[0]]
    elif len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL:
        rest = labels[:-2]
    else:
        rest = labels[:-1] or labels
    telling = [label for label in rest if label not in _GENERIC]
    return telling[-1] if telling else rest[-1]


def _readable(label: str) -> str:
    """An international label in Latin letters as far as that goes, else as it stands in the address."""
    try:
        word = label.encode("ascii").decode("idna") if label.startswith("xn--") else label
    except UnicodeError:
        word = label
    plain = unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode()
    # A name in another script leaves nothing, or crumbs, which would be worse.
    return plain if len(plain) * 2 > len(word) else _ascii(label)


def _ascii(label: str) -> str:
    try:
        return label.encode("idna").decode()
    except UnicodeError:
        return ""


def _fit(word: str) -> str:
    return _OTHER.sub("-", word).strip("-")[:LONGEST].rstrip("-")
