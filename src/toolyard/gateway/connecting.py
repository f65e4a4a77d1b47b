"""What to put into a client's own configuration so that it uses the gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

__all__ = ["CLIENTS", "Snippet", "Way", "address", "snippet"]

_NAME = "toolyard"
_TOKEN = "TOOLYARD_TOKEN"


@dataclass(frozen=True, slots=True)
class Way:
    """How a client reaches the gateway: by starting a program, or at an address with or without a token."""

    command: Sequence[str] = ("toolyard", "stdio")
    url: str | None = None
    needs_token: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """What is sent along; the token stands for the one that its owner puts there."""
        return {"Authorization": "Bearer ty_…"} if self.needs_token else {}


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text for one client: the file that it belongs into, and what to run instead, if there is something."""

    client: str
    title: str
    file: str
    text: str
    command: str | None = None


def address(
    base: str, *, agent: str | None = None, bundle: str | None = None, server: str | None = None
) -> str:
    """The gateway's address for one of these, or for everything."""
    for kind, name in (("agents", agent), ("bundles", bundle), ("servers", server)):
        if name is not None:
            return f"{base.rstrip('/')}/mcp/{kind}/{quote(name, safe='')}"
    return f"{base.rstrip('/')}/mcp"


def snippet(client: str, way: Way) -> Snippet:
    """The snippet for a client of ``CLIENTS``. Raises ValueError for a client that cannot go that way."""
    title, file, make = CLIENTS[client]
    return Snippet(client, title, file, make(way), _command(client, way))


def _command(client: str, way: Way) -> str | None:
    if client != "claude-code":
        return None
    if way.url is None:
        return f"claude mcp add {_NAME} -- {' '.join(way.command)}"
    headers = "".join(f' --header "{name}: {value}"' for name, value in way.headers.items())
    return f"claude mcp add --transport http {_NAME} {way.url}{headers}"


def _entry(way: Way, *, typed: bool) -> dict[str, Any]:
    if way.url is None:
        entry: dict[str, Any] = {"command": way.command[0], "args": list(way.command[1:])}
        return {"type": "stdio", **entry} if typed else entry
    entry = {"url": way.url}
    if way.headers:
        entry["headers"] = way.headers
    return {"type": "http", **entry} if typed else entry


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)


def _servers(key: str, *, typed: bool) -> Callable[[Way], str]:
    return lambda way: _json({key: {_NAME: _entry(way, typed=typed)}})


def _claude_desktop(way: Way) -> str:
    if way.url is not None:
        raise ValueError("Claude Desktop's file knows programs only; add the address in its settings")
    return _json({"mcpServers": {_NAME: _entry(way, typed=False)}})


def _opencode(way: Way) -> str:
    if way.url is None:
        entry: dict[str, Any] = {"type": "local", "command": list(way.command), "enabled": True}
    else:
        entry = {"type": "remote", "url": way.url, "enabled": True}
        if way.headers:
            entry["headers"] = way.headers
    return _json({"mcp": {_NAME: entry}})


def _codex(way: Way) -> str:
    lines = [f"[mcp_servers.{_NAME}]"]
    if way.url is None:
        lines += [f"command = {json.dumps(way.command[0])}", f"args = {json.dumps(list(way.command[1:]))}"]
    else:
        lines.append(f"url = {json.dumps(way.url)}")
        if way.needs_token:
            lines.append(f'bearer_token_env_var = "{_TOKEN}"')
    return "\n".join(lines)


CLIENTS: Mapping[str, tuple[str, str, Callable[[Way], str]]] = {
    "claude-code": ("Claude Code", ".mcp.json", _servers("mcpServers", typed=True)),
    "claude-desktop": ("Claude Desktop", "claude_desktop_config.json", _claude_desktop),
    "codex": ("Codex", "~/.codex/config.toml", _codex),
    "cursor": ("Cursor", ".cursor/mcp.json", _servers("mcpServers", typed=False)),
    "opencode": ("opencode", "opencode.json", _opencode),
    "vscode": ("VS Code", ".vscode/mcp.json", _servers("servers", typed=True)),
}
"""By the word that names a client: what people call it, its file, and how its entry is made."""
