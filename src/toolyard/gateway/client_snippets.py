"""Configuration snippets with which other clients use the gateway."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from toolyard.config.file_edits.text_edits import format_table
from toolyard.config.sources.json_document import JsonValue

__all__ = [
    "CLIENT_FORMATS",
    "ENTRY_NAME",
    "ClientFormat",
    "ConnectionMethod",
    "Snippet",
    "build_snippet",
    "find_program",
    "gateway_url",
]

ENTRY_NAME = "toolyard"
"""Our name in a client's configuration."""
_TOKEN_VARIABLE = "TOOLYARD_TOKEN"


def find_program() -> tuple[str, ...]:
    """Return the command of this program with its path: clients that a desktop starts have another PATH."""
    script = Path(sys.executable).with_name("toolyard")
    return (str(script),) if script.exists() else (sys.executable, "-m", "toolyard")


@dataclass(frozen=True, slots=True)
class ConnectionMethod:
    """Way in which a client reaches the gateway: a program to start, or a URL with or without a token.

    Without ``token`` the snippet contains a placeholder for it.
    """

    command: Sequence[str] = ("toolyard", "stdio")
    url: str | None = None
    needs_token: bool = False
    token: str | None = None

    @property
    def headers(self) -> dict[str, JsonValue]:
        """Return the HTTP headers of the entry."""
        if not self.needs_token and self.token is None:
            return {}
        return {"Authorization": f"Bearer {self.token or 'ty_…'}"}


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text for one client, the file that it belongs to, and a command that does the same, if there is one.

    ``entry`` is the same as data, and ``path`` its position in the file.
    """

    client: str
    title: str
    file: str
    text: str
    command: str | None
    path: tuple[str, ...]
    entry: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ClientFormat:
    """A client: its display name, its project file, the key of its servers, and the function that builds an
    entry."""

    title: str
    file: str
    key: str
    make_entry: Callable[[ConnectionMethod], dict[str, JsonValue]]
    disabling: tuple[str, bool] | None = None
    """Key and value that turn off one of its servers; None if the client has no such key."""


def gateway_url(
    base: str,
    *,
    agent: str | None = None,
    bundle: str | None = None,
    server: str | None = None,
    instance: str | None = None,
) -> str:
    """Return the gateway's URL for an agent, bundle, server or instance, or for everything."""
    given = {"agents": agent, "bundles": bundle, "servers": server, "instances": instance}
    for kind, name in given.items():
        if name is not None:
            return f"{base.rstrip('/')}/mcp/{kind}/{quote(name, safe='')}"
    return f"{base.rstrip('/')}/mcp"


def build_snippet(client: str, method: ConnectionMethod) -> Snippet:
    """Return the snippet for a client of ``CLIENT_FORMATS``. Raises ValueError if the client does not support
    the method."""
    known = CLIENT_FORMATS[client]
    entry, path = known.make_entry(method), (known.key, ENTRY_NAME)
    if known.file.endswith(".toml"):
        text = format_table(path, entry)
    else:
        text = json.dumps({known.key: {ENTRY_NAME: entry}}, indent=2, ensure_ascii=False)
    return Snippet(client, known.title, known.file, text, _build_add_command(client, method), path, entry)


def _build_add_command(client: str, method: ConnectionMethod) -> str | None:
    if client != "claude-code":
        return None
    if method.url is None:
        return f"claude mcp add {ENTRY_NAME} -- {shlex.join(method.command)}"
    headers = "".join(f' --header "{name}: {value}"' for name, value in method.headers.items())
    return f"claude mcp add --transport http {ENTRY_NAME} {shlex.quote(method.url)}{headers}"


def _make_entry(
    method: ConnectionMethod, *, types: tuple[str, str] | None = None, url_key: str = "url"
) -> dict[str, JsonValue]:
    """Build the usual entry. ``types`` are the values of its key ``type``, for a command and for a URL."""
    entry: dict[str, JsonValue] = {} if types is None else {"type": types[method.url is not None]}
    if method.url is None:
        return {**entry, "command": method.command[0], "args": list(method.command[1:])}
    return {**entry, url_key: method.url, **_make_headers(method)}


def _make_headers(method: ConnectionMethod) -> dict[str, JsonValue]:
    return {"headers": method.headers} if method.headers else {}


def _make_claude_desktop_entry(method: ConnectionMethod) -> dict[str, JsonValue]:
    if method.url is not None:
        raise ValueError(
            "Claude Desktop's config file supports local commands only; add the URL in the app's settings"
        )
    return _make_entry(method)


def _make_opencode_entry(method: ConnectionMethod) -> dict[str, JsonValue]:
    if method.url is None:
        return {"type": "local", "command": list(method.command), "enabled": True}
    return {"type": "remote", "url": method.url, "enabled": True, **_make_headers(method)}


def _make_codex_entry(method: ConnectionMethod) -> dict[str, JsonValue]:
    if method.url is None:
        return _make_entry(method)
    if method.token is not None:
        return {"url": method.url, "http_headers": method.headers}
    return {"url": method.url, **({"bearer_token_env_var": _TOKEN_VARIABLE} if method.needs_token else {})}


def _make_copilot_entry(method: ConnectionMethod) -> dict[str, JsonValue]:
    return {**_make_entry(method, types=("local", "http")), "tools": ["*"]}


_make_typed_entry = partial(_make_entry, types=("stdio", "http"))
_make_gemini_entry = partial(_make_entry, url_key="httpUrl")  # There, "url" is for the older transport.

CLIENT_FORMATS: Mapping[str, ClientFormat] = {
    "claude-code": ClientFormat("Claude Code", ".mcp.json", "mcpServers", _make_typed_entry),
    "claude-desktop": ClientFormat(
        "Claude Desktop", "claude_desktop_config.json", "mcpServers", _make_claude_desktop_entry
    ),
    "cline": ClientFormat(
        "cline",
        "~/.cline/data/settings/cline_mcp_settings.json",
        "mcpServers",
        partial(_make_entry, types=("stdio", "streamableHttp")),
        ("disabled", True),
    ),
    "codex": ClientFormat(
        "Codex", "~/.codex/config.toml", "mcp_servers", _make_codex_entry, ("enabled", False)
    ),
    "copilot": ClientFormat("Copilot CLI", "~/.copilot/mcp-config.json", "mcpServers", _make_copilot_entry),
    "cursor": ClientFormat("Cursor", ".cursor/mcp.json", "mcpServers", _make_entry),
    "gemini": ClientFormat("Gemini CLI", ".gemini/settings.json", "mcpServers", _make_gemini_entry),
    "opencode": ClientFormat("opencode", "opencode.json", "mcp", _make_opencode_entry, ("enabled", False)),
    "qwen": ClientFormat("Qwen Code", ".qwen/settings.json", "mcpServers", _make_gemini_entry),
    "vscode": ClientFormat("VS Code", ".vscode/mcp.json", "servers", _make_typed_entry),
    "windsurf": ClientFormat(
        "Windsurf",
        "~/.codeium/windsurf/mcp_config.json",
        "mcpServers",
        partial(_make_entry, url_key="serverUrl"),
        ("disabled", True),
    ),
    "zed": ClientFormat("Zed", ".zed/settings.json", "context_servers", _make_entry, ("enabled", False)),
}
"""Client formats by the name used on the command line."""
