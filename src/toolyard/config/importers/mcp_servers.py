"""Format ``mcpServers`` of Claude Desktop, Claude Code, Cursor and Windsurf, and ``servers`` of VS Code."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.importers.translation import EntryTranslation, ForeignServer
from toolyard.config.sources.json_document import JsonValue

__all__ = ["translate_flat_server"]

_SHARED_KEYS = (
    *("type", "command", "args", "cwd", "url", "headers", "enabled", "disabled"),
    *("label", "description", "shared", "protocol", "timeouts", "stopWhenIdle", "restart", "cache"),
    *("allowTools", "denyTools", "privateAddresses", "authProviderId"),
)
_TOOL_LIST_KEYS = (
    ("denyTools", "disabledTools"),
    ("denyTools", "excludeTools"),
    ("allowTools", "includeTools"),
)


def translate_flat_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one entry. Most keys are the same as ours; a few have other names."""
    work = EntryTranslation(name, raw)
    work.copy_keys(*_SHARED_KEYS)
    work.put("env", _stringify_env(work.pop("env")))
    for alias in ("serverUrl", "httpUrl"):
        url = work.pop(alias)
        if "url" not in work.entry:
            work.put("url", url)
    for ours, theirs in _TOOL_LIST_KEYS:
        work.put(ours, work.pop(theirs) or None)
    # In files of Gemini, "trust" is a boolean that turns off confirmations; ours is a string.
    trust = work.pop("trust")
    if isinstance(trust, str):
        work.put("trust", trust)
    elif trust is not None:
        work.notes.append("'trust' was dropped: there it means that calls need no approval")
    work.put("oauth", _translate_flat_oauth(work))
    work.drop("envFile", "put its variables into 'env'")
    return work.finish()


def _stringify_env(env: JsonValue) -> JsonValue:
    """Convert numbers to strings, and drop null values, both of which some clients allow."""
    if not isinstance(env, dict):
        return env
    return {
        key: str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        for key, value in env.items()
        if value is not None
    }


def _translate_flat_oauth(work: EntryTranslation) -> JsonValue:
    oauth, auth = work.pop("oauth"), work.pop("auth")
    if isinstance(auth, dict):  # Cursor
        names = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scopes": "scopes"}
        return {ours: auth[theirs] for theirs, ours in names.items() if theirs in auth}
    if isinstance(oauth, dict):
        known = ("clientId", "clientSecret", "scopes", "callbackPort", "resource")
        dropped = [key for key in oauth if key not in known]
        work.notes += [f"'oauth.{key}' was dropped: Toolyard has no equivalent" for key in dropped]
        return {key: oauth[key] for key in known if key in oauth}
    return None
