"""Look at a file before it is trusted: what would be run, where it would connect, what it would read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolyard.config.addresses import without_user
from toolyard.config.approvals import Approval, digest, read_approvals, remember
from toolyard.config.assembling import assemble
from toolyard.config.data_dir import default_data_dir
from toolyard.config.diffing import diff
from toolyard.config.files import decode, read_bytes
from toolyard.config.layers import layer_from_text
from toolyard.config.variables import names_in
from toolyard.errors import ConfigError, Problem
from toolyard.model.config import Configuration
from toolyard.model.server import HttpSpec, Server

__all__ = ["Review", "ReviewedServer", "approve", "review"]


@dataclass(frozen=True, slots=True)
class ReviewedServer:
    """What one server would do. Texts are as written, variables not filled in, safe to print.

    ``env`` and ``headers`` are names only; ``variables`` are those of our own environment that it would read.
    """

    id: str
    enabled: bool
    trust: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    address: str | None = None
    env: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    key_file: str | None = None
    """The file of this machine that it would read, to sign in with the key in it."""
    variables: tuple[str, ...] = ()
    change: Literal["new", "changed", "same"] = "new"
    """Compared with what was approved last."""


@dataclass(frozen=True, slots=True)
class Review:
    """A file and what it would do. ``approve`` takes ``sha256`` to make sure that this is what was seen."""

    path: str
    sha256: str
    state: Literal["new", "changed", "approved"]
    servers: tuple[ReviewedServer, ...]
    removed: tuple[str, ...] = ()
    """Servers that were approved last time and are gone."""


def review(path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None) -> Review:
    """Read a file without using it. Raises ConfigError where it is missing or wrong."""
    file = Path(os.path.abspath(path))
    content = read_bytes(file, missing="check the path that was given")
    configuration = _unexpanded(decode(content, str(file)), str(file))
    last = read_approvals(_folder(data_dir)).of(file)
    return _compare(file, digest(content), configuration, last)


def approve(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, sha256: str | None = None
) -> Review:
    """Remember the content of a file as approved, and return what was approved.

    ``sha256`` is that of the review someone saw: a file that changed meanwhile is refused. Raises ConfigError
    for that and for a file that is missing or wrong, and OSError where the record cannot be written.
    """
    file = Path(os.path.abspath(path))
    content = read_bytes(file, missing="check the path that was given")
    configuration = _unexpanded(decode(content, str(file)), str(file))
    found = digest(content)
    if sha256 is not None and sha256 != found:
        message = "the file changed after it was shown; nothing was approved"
        raise ConfigError([Problem(message, file=str(file), hint="look at it again")])
    remember(file, content, _folder(data_dir))
    return _compare(file, found, configuration, Approval(found, decode(content)))


def _folder(data_dir: str | os.PathLike[str] | None) -> Path:
    return default_data_dir() if data_dir is None else Path(os.path.abspath(data_dir))


def _unexpanded(text: str, name: str) -> Configuration:
    """Checked, with every text as it is written: a layer that is not approved is never expanded."""
    layer = layer_from_text(text, "file", name=name, approved=False)
    return assemble([layer], {}, unapproved="not approved", whole=False)


def _compare(file: Path, found: str, configuration: Configuration, last: Approval | None) -> Review:
    if last is None:
        servers = tuple(_reviewed(server, "new") for server in configuration.servers.values())
        return Review(str(file), found, "new", servers)
    try:
        before = _unexpanded(last.content, str(file))
    except ConfigError:
        before = Configuration()
    changes = diff(before, configuration)
    servers = tuple(
        _reviewed(
            server,
            "new" if server.id in changes.added else "changed" if server.id in changes.changed else "same",
        )
        for server in configuration.servers.values()
    )
    state = "approved" if last.sha256 == found else "changed"
    return Review(str(file), found, state, servers, changes.removed)


def _reviewed(server: Server, change: Literal["new", "changed", "same"]) -> ReviewedServer:
    spec = server.transport
    # Disabled for want of approval only; one that its entry switches off has no reason.
    enabled = server.enabled or server.disabled_reason is not None
    variables = tuple(dict.fromkeys(name for text in _texts(server) for name in names_in(text)))
    seen = ReviewedServer(server.id, enabled, server.trust.value, variables=variables, change=change)
    if isinstance(spec, HttpSpec):
        key = None if server.oauth is None else server.oauth.private_key_file
        return replace(
            seen,
            address=_printable(without_user(spec.url)),
            headers=_names(spec.headers),
            key_file=None if key is None else _printable(key),
        )
    command = tuple(_printable(word) for word in (spec.command, *spec.args))
    cwd = None if spec.cwd is None else _printable(spec.cwd)
    return replace(seen, command=command, cwd=cwd, env=_names(spec.env))


def _texts(server: Server) -> Iterator[str]:
    spec, oauth = server.transport, server.oauth
    if isinstance(spec, HttpSpec):
        yield spec.url
        yield from spec.headers.values()
    else:
        yield from (spec.command, *spec.args, *spec.env.values(), spec.cwd or "")
    if oauth is not None:
        yield from filter(
            None, (oauth.client_id, oauth.client_secret, oauth.resource, oauth.private_key_file)
        )
        yield oauth.issuer or ""


def _names(texts: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_printable(name) for name in texts)


def _printable(text: str) -> str:
    """Escape what could rewrite the screen on which someone decides."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
