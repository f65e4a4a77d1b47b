"""Entries that start Toolyard itself, such as those that ``toolyard connect`` writes into clients."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from toolyard.config.data_dir import default_data_dir
from toolyard.types.server import Configuration, Server, StdioSpec

__all__ = ["disable_self_references", "starts_toolyard"]

_PROGRAM = "toolyard"
_REASON = "it starts this Toolyard itself, which would start it again: remove the entry"


def starts_toolyard(server: Server) -> bool:
    """Return whether the command of a server is ``toolyard stdio``, in any of the usual forms."""
    spec = server.transport
    return isinstance(spec, StdioSpec) and _find_stdio_arguments(spec) is not None


def disable_self_references(configuration: Configuration, data_dir: Path) -> Configuration:
    """Disable the servers that are ``toolyard stdio`` on the same data directory."""
    found = {
        id: replace(server, enabled=False, disabled_reason=_REASON)
        for id, server in configuration.servers.items()
        if server.enabled and _starts_on(server, data_dir)
    }
    if not found:
        return configuration
    return replace(configuration, servers=MappingProxyType({**configuration.servers, **found}))


def _starts_on(server: Server, data_dir: Path) -> bool:
    spec = server.transport
    arguments = _find_stdio_arguments(spec) if isinstance(spec, StdioSpec) else None
    if arguments is None or not isinstance(spec, StdioSpec):
        return False
    # A child gets the variable only from its entry.
    named = _find_option(arguments) or spec.env.get("TOOLYARD_DATA_DIR")
    started = Path(os.path.expanduser(named)) if named else default_data_dir({})
    return os.path.realpath(started) == os.path.realpath(data_dir)


def _find_stdio_arguments(spec: StdioSpec) -> tuple[str, ...] | None:
    """Return the arguments of ``toolyard``, if ``stdio`` is among them. The program may be started by another
    one: ``uvx toolyard stdio``, ``python -m toolyard stdio``."""
    words = (spec.command, *spec.args)
    for position, word in enumerate(words):
        if os.path.basename(word) == _PROGRAM and "stdio" in words[position + 1 :]:
            return words[position + 1 :]
    return None


def _find_option(arguments: tuple[str, ...]) -> str | None:
    for position, word in enumerate(arguments):
        if word.startswith("--data-dir="):
            return word.partition("=")[2]
        if word == "--data-dir" and position + 1 < len(arguments):
            return arguments[position + 1]
    return None
