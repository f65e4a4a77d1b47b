"""Format of Codex: TOML tables ``mcp_servers.<name>``, with headers and tokens from named variables."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.importers.translation import EntryTranslation, ForeignServer, escape_variables
from toolyard.config.sources.json_document import JsonValue

__all__ = ["translate_codex_server"]


def translate_codex_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one table ``mcp_servers.<name>``."""
    work = EntryTranslation(name, {key: escape_variables(value) for key, value in raw.items()})
    work.copy_keys("command", "args", "cwd", "url", "enabled")
    work.put("env", work.pop("env"))
    work.merge("env", _forward_variables(work.pop("env_vars")))
    work.put("headers", work.pop("http_headers"))
    variables = work.pop("env_http_headers")
    if isinstance(variables, dict):
        work.merge("headers", {key: f"${{{value}}}" for key, value in variables.items()})
    token = work.pop("bearer_token_env_var")
    if isinstance(token, str):
        work.merge("headers", {"Authorization": f"Bearer ${{{token}}}"})
    work.seconds("startup_timeout_ms", "connect", scale=1000)
    work.seconds("startup_timeout_sec", "connect")
    # Codex limits the whole call, so a shorter limit for silence must not end it sooner.
    work.seconds("tool_timeout_sec", "silence", "call")
    work.put("allowTools", work.pop("enabled_tools"))
    work.put("denyTools", work.pop("disabled_tools"))
    _translate_codex_oauth(work)
    for key in ("tools", "default_tools_approval_mode"):
        work.drop(key, "approvals are set for the whole platform")
    work.drop("bearer_token", "Codex does not accept it either; use a variable")
    return work.finish()


def _forward_variables(names: JsonValue) -> dict[str, JsonValue]:
    """Return references to variables that are passed on if they are set."""
    forwarded: dict[str, JsonValue] = {}
    for item in names if isinstance(names, list) else []:
        name = item.get("name") if isinstance(item, dict) else item
        if isinstance(name, str):
            forwarded[name] = f"${{{name}:-}}"
    return forwarded


def _translate_codex_oauth(work: EntryTranslation) -> None:
    oauth = work.pop("oauth")
    client_id = oauth.get("client_id") if isinstance(oauth, dict) else None
    options: dict[str, JsonValue] = {
        "clientId": client_id,
        "scopes": work.pop("scopes"),
        "resource": work.pop("oauth_resource"),
    }
    work.merge("oauth", {key: value for key, value in options.items() if value is not None})
