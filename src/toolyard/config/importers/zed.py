"""Format of Zed: ``context_servers`` in its settings, where the command may be an object."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.importers.translation import EntryTranslation, ForeignServer
from toolyard.config.sources.json_document import JsonValue

__all__ = ["translate_zed_server"]


def translate_zed_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one entry, with the command as an object or a string."""
    work = EntryTranslation(name, raw)
    command = work.pop("command")
    if isinstance(command, dict):
        work.put("command", command.get("path"))
        work.put("args", command.get("args"))
        work.put("env", command.get("env"))
    else:
        work.put("command", command)
        work.copy_keys("args", "env")
    work.copy_keys("url", "headers", "enabled")
    work.pop("source")
    work.drop("settings", "only an extension of Zed uses it")
    return work.finish()
