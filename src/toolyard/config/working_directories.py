"""Working directories of stdio servers whose entries name none.

A server of a file that was discovered in a project runs in that project. Any other runs in a folder of its
own, wherever its client is, so that clients in twenty folders share one process of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from toolyard.errors import Problem
from toolyard.types.server import Configuration, Server, StdioSpec

__all__ = ["CLIENT_DIR_VARIABLE", "set_working_directories"]

CLIENT_DIR_VARIABLE = "TOOLYARD_CLIENT_DIR"
"""Variable for entries of the configuration: the working directory of the client."""
_SERVER_FOLDERS = "servers"
"""Folder in the data directory with a working directory for each server that has none configured."""


def set_working_directories(
    configuration: Configuration, data_dir: Path, env: Mapping[str, str], cwd: Path
) -> Configuration:
    """Return the configuration with the folders of its servers, and notes about arguments that need one.

    Relative paths of entries count from the client's folder, which is read from ``env`` only if there are
    some, and is ``cwd`` if it is not there.
    """

    def resolve(path: str) -> str:
        return path if os.path.isabs(path) else os.path.join(env.get(CLIENT_DIR_VARIABLE) or cwd, path)

    servers = {id: _place_server(server, data_dir, resolve) for id, server in configuration.servers.items()}
    notes = [note for server in servers.values() for note in _find_relative_arguments(server)]
    return replace(configuration, servers=MappingProxyType(servers), hints=(*configuration.hints, *notes))


def _place_server(server: Server, data_dir: Path, resolve: Callable[[str], str]) -> Server:
    spec = server.transport
    if not isinstance(spec, StdioSpec):
        return server
    if spec.cwd is not None:
        # A relative command counts from that folder.
        return replace(server, transport=replace(spec, cwd=resolve(spec.cwd)))
    command = resolve(spec.command) if "/" in spec.command else spec.command
    folder = str(data_dir / _SERVER_FOLDERS / server.id)
    return replace(server, transport=replace(spec, command=command, folder=folder))


def _find_relative_arguments(server: Server) -> Iterator[Problem]:
    spec = server.transport
    if not isinstance(spec, StdioSpec) or spec.cwd is not None or not server.enabled:
        return
    for word in spec.args:
        # Names of packages may contain slashes, too, but have no such beginning or end.
        is_path = word.startswith(("./", "../")) or word.endswith((".py", ".js", ".mjs", ".ts", ".sh"))
        if is_path and not os.path.isabs(word):
            yield Problem(
                f"the argument '{word}' is a relative path, but the server runs in its own working directory",
                file=server.provenance.file,
                line=server.provenance.line,
                path=f"mcpServers.{server.id}.args",
                hint='write the full path, or set "cwd" in its entry',
            )
