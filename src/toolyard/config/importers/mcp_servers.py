"""``mcpServers`` as Claude Desktop, Claude Code, Cursor and Windsurf write it, and VS Code's ``servers``."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.importers.translation import ForeignServer, Translation
from toolyard.config.sources.json_document import JsonValue

__all__ = ["flat_server"]

_SAME = (
    *("type", "command", "args", "cwd", "url", "headers", "enabled", "disabled"),
    *("label", "description", "shared", "protocol", "timeouts", "stopWhenIdle", "restart", "cache"),
    *("allowTools", "denyTools", "privateAddresses", "authProviderId"),
)
_TOOLS = (("denyTools", "disabledTools"), ("denyTools", "excludeTools"), ("allowTools", "includeTools"))


def flat_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Nearly our own form; a few keys have other names there."""
    work = Translation(name, raw)
    work.carry(*_SAME)
    work.put("env", _texts(work.take("env")))
    for alias in ("serverUrl", "httpUrl"):
        address = work.take(alias)
        if "url" not in work.entry:
            work.put("url", address)
    for ours, theirs in _TOOLS:
        work.put(ours, work.take(theirs) or None)
    trust = work.take("trust")
    if isinstance(trust, str):
        work.put("trust", trust)
    elif trust is not None:
        work.notes.append("'trust' was left out: there it means that calls need no approval")
    work.put("oauth", _oauth(work))
    work.drop("envFile", "put its variables into 'env'")
    return work.finish()


def _texts(env: JsonValue) -> JsonValue:
    """Some clients take numbers, and null for a variable that is not to be set."""
    if not isinstance(env, dict):
        return env
    return {
        key: str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        for key, value in env.items()
        if value is not None
    }


def _oauth(work: Translation) -> JsonValue:
    oauth, auth = work.take("oauth"), work.take("auth")
    if isinstance(auth, dict):  # Cursor
        names = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scopes": "scopes"}
        return {ours: auth[theirs] for theirs, ours in names.items() if theirs in auth}
    if isinstance(oauth, dict):
        known = ("clientId", "clientSecret", "scopes", "callbackPort", "resource")
        lost = [key for key in oauth if key not in known]
        work.notes += [f"'oauth.{key}' was left out: Toolyard has nothing like it" for key in lost]
        return {key: oauth[key] for key in known if key in oauth}
    return None
