"""Zed: ``context_servers`` in its settings, where the command may be an object."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.importers.translation import ForeignServer, Translation
from toolyard.config.sources.json_document import JsonValue

__all__ = ["zed_server"]


def zed_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """An entry of either form."""
    work = Translation(name, raw)
    command = work.take("command")
    if isinstance(command, dict):
        work.put("command", command.get("path"))
        work.put("args", command.get("args"))
        work.put("env", command.get("env"))
    else:
        work.put("command", command)
        work.carry("args", "env")
    work.carry("url", "headers", "enabled")
    work.take("source")
    work.drop("settings", "an extension of Zed reads it")
    return work.finish()
