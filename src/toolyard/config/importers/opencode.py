"""Format of opencode: ``type`` is local or remote, the command is one list, time limits are in milliseconds.

Version 1 has the servers directly under ``mcp``, version 2 under ``mcp.servers``; ``{env:NAME}`` is a
variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolyard.config.importers.translation import EntryTranslation, ForeignServer, escape_variables
from toolyard.config.sources.json_document import JsonValue

__all__ = ["translate_opencode_server"]

_OPENCODE_VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def translate_opencode_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one entry of either version."""
    work = EntryTranslation(name, {key: escape_variables(value) for key, value in raw.items()})
    kind = work.pop("type")
    work.copy_keys("enabled", "disabled", "cwd", "url", "headers")
    command = work.pop("command")
    if isinstance(command, list) and command:
        work.put("command", command[0])
        work.put("args", command[1:] or None)
    else:
        work.put("command", command)
    work.put("env", work.pop("environment"))
    work.put("type", {"local": "stdio", "remote": "http"}.get(kind) if isinstance(kind, str) else None)
    work.seconds("timeout", "connect", scale=1000)
    work.put("oauth", _translate_opencode_oauth(work))
    work.entry = {key: _rewrite_variables(value) for key, value in work.entry.items()}
    if "{file:" in str(work.entry):
        work.notes.append("{file:...} cannot be read: put the content into a variable")
    return work.finish()


def _translate_opencode_oauth(work: EntryTranslation) -> JsonValue:
    oauth = work.pop("oauth")
    if oauth is False:
        work.notes.append("'oauth' was off there; Toolyard signs in only if the server requires it")
    if not isinstance(oauth, dict):
        return None
    scope = oauth.get("scope")
    entry: dict[str, JsonValue] = {
        "clientId": oauth.get("clientId") or oauth.get("client_id"),
        "clientSecret": oauth.get("clientSecret") or oauth.get("client_secret"),
        "scopes": list(scope.split()) if isinstance(scope, str) else None,
        "callbackPort": oauth.get("callback_port"),
    }
    return {key: value for key, value in entry.items() if value is not None}


def _rewrite_variables(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _OPENCODE_VARIABLE.sub(r"${\1}", value)
    if isinstance(value, list):
        return [_rewrite_variables(item) for item in value]
    if isinstance(value, dict):
        return {key: _rewrite_variables(item) for key, item in value.items()}
    return value
