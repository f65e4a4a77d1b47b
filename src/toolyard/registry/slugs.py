"""Slugs, the prefixes of an instance's tool names, derived from the server's address."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import urlsplit

__all__ = ["MAX_SLUG_CHARACTERS", "make_slug_unique", "propose"]

MAX_SLUG_CHARACTERS = 24
_FALLBACK_SLUG = "server"
_LOOPBACK_SLUG = "local"
_GENERIC_WORDS = "api apis app apps dev gateway mcp mcps prod remote server sse staging www"
_GENERIC_LABELS = frozenset(_GENERIC_WORDS.split())
"""Host name labels that do not identify a service."""
_SECOND_LEVEL_WORDS = "ac co com edu gob gov gv ltd mil ne net nom or org plc sch"
_SECOND_LEVEL_LABELS = frozenset(_SECOND_LEVEL_WORDS.split())
"""Second-level labels below country domains, such as "co" in example.co.uk."""
_SHARED_HOST_NAMES = (
    "a.run.app azurewebsites.net cloudfront.net fly.dev github.io gitlab.io herokuapp.com hf.space "
    "lambda-url.on.aws modal.run netlify.app ngrok-free.app ngrok.app ngrok.io onrender.com pages.dev "
    "railway.app trycloudflare.com up.railway.app vercel.app web.app workers.dev"
)
_SHARED_HOST_SUFFIXES = frozenset(_SHARED_HOST_NAMES.split())
"""Domains of hosting services, below which each customer has a subdomain."""
_NON_ALPHANUMERIC_PATTERN = re.compile(r"[^A-Za-z0-9]+")


def propose(url: str) -> str:
    """Return a valid slug for a server's URL: ``github`` for ``https://api.github.com/mcp``."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        host = ""
    return _fit_slug(_pick_host_name(host)) or _FALLBACK_SLUG


def make_slug_unique(slug: str, taken: Iterable[str]) -> str:
    """Return the slug, or the first of ``-2``, ``-3`` … appended that is not taken, ignoring case."""
    used = {other.casefold() for other in taken}
    candidate, number = slug, 2
    while candidate.casefold() in used:
        suffix = f"-{number}"
        candidate = slug[: MAX_SLUG_CHARACTERS - len(suffix)].rstrip("-") + suffix
        number += 1
    return candidate


def _pick_host_name(host: str) -> str:
    """Return the part of a host that identifies the service."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if address.is_loopback:
            return _LOOPBACK_SLUG
        return str(address) if address.version == 4 else ""
    if host == "localhost" or host.endswith(".localhost"):
        return host.removesuffix("localhost").rstrip(".") or _LOOPBACK_SLUG
    labels = [label for label in host.split(".") if label]
    return _transliterate_label(_pick_registered_label(labels)) if labels else ""


def _pick_registered_label(labels: list[str]) -> str:
    """Return the registered label, or a neighbouring one if that is generic."""
    # Remove the public suffix: a hosting service's domain, a second-level country domain, or one label.
    shared = [
        size for size in (3, 2) if len(labels) > size and ".".join(labels[-size:]) in _SHARED_HOST_SUFFIXES
    ]
    if shared:
        rest = labels[: -shared[0]]
    elif len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL_LABELS:
        rest = labels[:-2]
    else:
        rest = labels[:-1] or labels
    specific = [label for label in rest if label not in _GENERIC_LABELS]
    return specific[-1] if specific else rest[-1]


def _transliterate_label(label: str) -> str:
    """Return an international label in Latin letters if most of it can be converted, else its IDNA form."""
    try:
        word = label.encode("ascii").decode("idna") if label.startswith("xn--") else label
    except UnicodeError:
        word = label
    plain = unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode()
    # Of a name in another script, few or no letters remain, which would be a meaningless slug.
    return plain if len(plain) * 2 > len(word) else _encode_idna(label)


def _encode_idna(label: str) -> str:
    try:
        return label.encode("idna").decode()
    except UnicodeError:
        return ""


def _fit_slug(word: str) -> str:
    return _NON_ALPHANUMERIC_PATTERN.sub("-", word).strip("-")[:MAX_SLUG_CHARACTERS].rstrip("-")
