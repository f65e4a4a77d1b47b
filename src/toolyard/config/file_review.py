"""Look at a file before it is trusted: what would be run, where it would connect, what it would read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolyard.config.configuration_diff import diff
from toolyard.config.data_dir import default_data_dir
from toolyard.config.environment_review import (
    ReviewedVariable,
    changes_execution,
    escape_line,
    reviewed_environment,
)
from toolyard.config.file_approvals import Approval, digest, read_approvals, remember
from toolyard.config.file_reader import decode, read_bytes
from toolyard.config.sources.layers import layer_from_text
from toolyard.config.sources.merge import assemble
from toolyard.config.sources.variables import names_in
from toolyard.config.value_checks import without_user
from toolyard.errors import ConfigError, Problem
from toolyard.types.config import Configuration
from toolyard.types.server import HttpSpec, Server, StdioSpec

__all__ = ["Review", "ReviewedServer", "approve", "review"]


@dataclass(frozen=True, slots=True)
class ReviewedServer:
    """What one server would do. Texts are as written, variables not filled in, safe to print.

    ``env`` and ``headers`` are names only; ``environment`` has the values too, secrets as stars.
    ``variables`` are those of our own environment that it would read.
    """

    id: str
    enabled: bool
    trust: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    address: str | None = None
    env: tuple[str, ...] = ()
    environment: tuple[ReviewedVariable, ...] = ()
    project_code: tuple[str, ...] = ()
    """Files and folders of the project that it would run code from. They can change after an approval."""
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
    project = _project_of(file)
    if last is None:
        servers = tuple(_reviewed(server, "new", project) for server in configuration.servers.values())
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
            project,
        )
        for server in configuration.servers.values()
    )
    state = "approved" if last.sha256 == found else "changed"
    return Review(str(file), found, state, servers, changes.removed)


def _reviewed(server: Server, change: Literal["new", "changed", "same"], project: Path) -> ReviewedServer:
    spec = server.transport
    # Disabled for want of approval only; one that its entry switches off has no reason.
    enabled = server.enabled or server.disabled_reason is not None
    variables = tuple(dict.fromkeys(name for text in _texts(server) for name in names_in(text)))
    seen = ReviewedServer(server.id, enabled, server.trust.value, variables=variables, change=change)
    if isinstance(spec, HttpSpec):
        key = None if server.oauth is None else server.oauth.private_key_file
        return replace(
            seen,
            address=escape_line(without_user(spec.url)),
            headers=_names(spec.headers),
            key_file=None if key is None else escape_line(key),
        )
    return replace(
        seen,
        command=tuple(map(escape_line, (spec.command, *spec.args))),
        cwd=None if spec.cwd is None else escape_line(spec.cwd),
        env=_names(spec.env),
        environment=reviewed_environment(spec.env),
        project_code=tuple(dict.fromkeys(map(escape_line, _project_code(spec, project)))),
    )


def _project_code(spec: StdioSpec, project: Path) -> Iterator[str]:
    """The paths in a command, its working directory and its environment that are inside the project."""
    start = project if spec.cwd is None else project / os.path.expanduser(spec.cwd)
    if spec.cwd is not None and _is_inside(start, project):
        yield spec.cwd
    for word in (spec.command, *spec.args):
        # "--loader=./hook.mjs" names a file too.
        for text in dict.fromkeys((word, word.partition("=")[2])):
            if text and _is_inside(start / os.path.expanduser(text), project):
                yield text
    for name, value in spec.env.items():
        if changes_execution(name):
            for text in re.split(r"[\s=:;]+", value):
                if text and _is_inside(start / os.path.expanduser(text), project):
                    yield text


def _is_inside(path: Path, project: Path) -> bool:
    try:
        real = os.path.realpath(path)
        return os.path.exists(real) and Path(real).is_relative_to(os.path.realpath(project))
    except (OSError, ValueError):
        return False


def _project_of(file: Path) -> Path:
    """The folder that a configuration file was found in."""
    return file.parent.parent if file.parent.name.startswith(".") else file.parent


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
    return tuple(map(escape_line, texts))
