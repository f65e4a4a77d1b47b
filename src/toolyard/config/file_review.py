"""Look at a file before it is trusted: what would be run, where it would connect, what it would read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolyard.config.configuration_diff import diff_configurations
from toolyard.config.data_dir import default_data_dir
from toolyard.config.environment_review import (
    ReviewedVariable,
    escape_line,
    is_execution_variable,
    review_environment,
)
from toolyard.config.file_approvals import FileApproval, hash_content, read_approvals, record_approval
from toolyard.config.file_reader import decode_utf8, read_regular_file
from toolyard.config.sources.layers import layer_from_text
from toolyard.config.sources.merge import merge_layers
from toolyard.config.sources.variables import find_variable_names
from toolyard.config.value_checks import mask_user_info
from toolyard.errors import ConfigError, Problem
from toolyard.types.config import Configuration
from toolyard.types.server import HttpSpec, Server, StdioSpec

__all__ = ["Review", "ReviewedServer", "approve_file", "review_file"]


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


def review_file(path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None) -> Review:
    """Read a file without using it. Raises ConfigError where it is missing or wrong."""
    file = Path(os.path.abspath(path))
    content = read_regular_file(file, missing_hint="check the path that was given")
    configuration = _parse_unexpanded(decode_utf8(content, str(file)), str(file))
    last = read_approvals(_resolve_review_data_dir(data_dir)).find(file)
    return _build_review(file, hash_content(content), configuration, last)


def approve_file(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, sha256: str | None = None
) -> Review:
    """Remember the content of a file as approved, and return what was approved.

    ``sha256`` is that of the review someone saw: a file that changed meanwhile is refused. Raises ConfigError
    for that and for a file that is missing or wrong, and OSError where the record cannot be written.
    """
    file = Path(os.path.abspath(path))
    content = read_regular_file(file, missing_hint="check the path that was given")
    configuration = _parse_unexpanded(decode_utf8(content, str(file)), str(file))
    found = hash_content(content)
    if sha256 is not None and sha256 != found:
        message = "the file changed after it was shown; nothing was approved"
        raise ConfigError([Problem(message, file=str(file), hint="look at it again")])
    record_approval(file, content, _resolve_review_data_dir(data_dir))
    return _build_review(file, found, configuration, FileApproval(found, decode_utf8(content)))


def _resolve_review_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    return default_data_dir() if data_dir is None else Path(os.path.abspath(data_dir))


def _parse_unexpanded(text: str, name: str) -> Configuration:
    """Checked, with every text as it is written: a layer that is not approved is never expanded."""
    layer = layer_from_text(text, "file", name=name, approved=False)
    return merge_layers([layer], {}, unapproved_reason="not approved", complete=False)


def _build_review(
    file: Path, sha256: str, configuration: Configuration, last_approval: FileApproval | None
) -> Review:
    project = _project_folder(file)
    if last_approval is None:
        servers = tuple(_review_server(server, "new", project) for server in configuration.servers.values())
        return Review(str(file), sha256, "new", servers)
    try:
        before = _parse_unexpanded(last_approval.content, str(file))
    except ConfigError:
        before = Configuration()
    changes = diff_configurations(before, configuration)
    servers = tuple(
        _review_server(
            server,
            "new" if server.id in changes.added else "changed" if server.id in changes.changed else "same",
            project,
        )
        for server in configuration.servers.values()
    )
    state = "approved" if last_approval.sha256 == sha256 else "changed"
    return Review(str(file), sha256, state, servers, changes.removed)


def _review_server(
    server: Server, change: Literal["new", "changed", "same"], project: Path
) -> ReviewedServer:
    spec = server.transport
    # Disabled for want of approval only; one that its entry switches off has no reason.
    enabled = server.enabled or server.disabled_reason is not None
    variables = tuple(
        dict.fromkeys(name for text in _expandable_texts(server) for name in find_variable_names(text))
    )
    seen = ReviewedServer(server.id, enabled, server.trust.value, variables=variables, change=change)
    if isinstance(spec, HttpSpec):
        key = None if server.oauth is None else server.oauth.private_key_file
        return replace(
            seen,
            address=escape_line(mask_user_info(spec.url)),
            headers=_escape_names(spec.headers),
            key_file=None if key is None else escape_line(key),
        )
    return replace(
        seen,
        command=tuple(map(escape_line, (spec.command, *spec.args))),
        cwd=None if spec.cwd is None else escape_line(spec.cwd),
        env=_escape_names(spec.env),
        environment=review_environment(spec.env),
        project_code=tuple(dict.fromkeys(map(escape_line, _find_project_code(spec, project)))),
    )


def _find_project_code(spec: StdioSpec, project: Path) -> Iterator[str]:
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
        if is_execution_variable(name):
            for text in re.split(r"[\s=:;]+", value):
                if text and _is_inside(start / os.path.expanduser(text), project):
                    yield text


def _is_inside(path: Path, project: Path) -> bool:
    try:
        real = os.path.realpath(path)
        return os.path.exists(real) and Path(real).is_relative_to(os.path.realpath(project))
    except (OSError, ValueError):
        return False


def _project_folder(file: Path) -> Path:
    """The folder that a configuration file was found in."""
    return file.parent.parent if file.parent.name.startswith(".") else file.parent


def _expandable_texts(server: Server) -> Iterator[str]:
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


def _escape_names(texts: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(map(escape_line, texts))
