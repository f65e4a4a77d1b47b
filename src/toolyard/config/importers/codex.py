"""Codex: TOML tables ``mcp_servers.<name>``, where headers and tokens may come from named variables."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.importers.translation import ForeignServer, Translation, literal
from toolyard.config.sources.json_document import JsonValue

__all__ = ["codex_server"]


def codex_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """One table."""
    work = Translation(name, {key: literal(value) for key, value in raw.items()})
    work.carry("command", "args", "cwd", "url", "enabled")
    work.put("env", work.take("env"))
    work.merge("env", _forwarded(work.take("env_vars")))
    work.put("headers", work.take("http_headers"))
    named = work.take("env_http_headers")
    if isinstance(named, dict):
        work.merge("headers", {key: f"${{{value}}}" for key, value in named.items()})
    token = work.take("bearer_token_env_var")
    if isinstance(token, str):
        work.merge("headers", {"Authorization": f"Bearer ${{{token}}}"})
    work.seconds("startup_timeout_ms", "connect", scale=1000)
    work.seconds("startup_timeout_sec", "connect")
    # There the limit is for the whole call, so silence alone must not end it sooner.
    work.seconds("tool_timeout_sec", "silence", "call")
    work.put("allowTools", work.take("enabled_tools"))
    work.put("denyTools", work.take("disabled_tools"))
    _oauth(work)
    for key in ("tools", "default_tools_approval_mode"):
        work.drop(key, "approvals are a setting of the whole platform")
    work.drop("bearer_token", "Codex does not take it either; name a variable")
    return work.finish()


def _forwarded(names: JsonValue) -> dict[str, JsonValue]:
    """Variables that are passed on where they are set."""
    forwarded: dict[str, JsonValue] = {}
    for item in names if isinstance(names, list) else []:
        name = item.get("name") if isinstance(item, dict) else item
        if isinstance(name, str):
            forwarded[name] = f"${{{name}:-}}"
    return forwarded


def _oauth(work: Translation) -> None:
    oauth = work.take("oauth")
    client_id = oauth.get("client_id") if isinstance(oauth, dict) else None
    found: dict[str, JsonValue] = {
        "clientId": client_id,
        "scopes": work.take("scopes"),
        "resource": work.take("oauth_resource"),
    }
    work.merge("oauth", {key: value for key, value in found.items() if value is not None})
