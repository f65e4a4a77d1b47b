"""What to put into a client's own configuration so that it uses the gateway."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from toolyard.config.exporters.toml_tables import table_text
from toolyard.config.sources.json_document import JsonValue

__all__ = ["CLIENTS", "NAME", "Client", "Snippet", "Way", "address", "snippet"]

NAME = "toolyard"
"""What we are called in the configuration of a client."""
_TOKEN = "TOOLYARD_TOKEN"


@dataclass(frozen=True, slots=True)
class Way:
    """How a client reaches the gateway: by starting a program, or at an address with or without a token.

    ``token`` is written down where it is given; else something stands there for the one that its owner has.
    """

    command: Sequence[str] = ("toolyard", "stdio")
    url: str | None = None
    needs_token: bool = False
    token: str | None = None

    @property
    def headers(self) -> dict[str, JsonValue]:
        """What is sent along."""
        if not self.needs_token and self.token is None:
            return {}
        return {"Authorization": f"Bearer {self.token or 'ty_…'}"}


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text for one client: the file that it belongs into, and what to run instead, if there is something.

    ``entry`` is the same as data, and ``path`` where in the file it stands.
    """

    client: str
    title: str
    file: str
    text: str
    command: str | None
    path: tuple[str, ...]
    entry: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Client:
    """A client: what people call it, the file of a project that it reads, the key that its servers stand
    under, and how an entry of it is made."""

    title: str
    file: str
    key: str
    make: Callable[[Way], dict[str, JsonValue]]


def address(
    base: str,
    *,
    agent: str | None = None,
    bundle: str | None = None,
    server: str | None = None,
    instance: str | None = None,
) -> str:
    """The gateway's address for one of these, or for everything."""
    given = {"agents": agent, "bundles": bundle, "servers": server, "instances": instance}
    for kind, name in given.items():
        if name is not None:
            return f"{base.rstrip('/')}/mcp/{kind}/{quote(name, safe='')}"
    return f"{base.rstrip('/')}/mcp"


def snippet(client: str, way: Way) -> Snippet:
    """The snippet for a client of ``CLIENTS``. Raises ValueError for a client that cannot go that way."""
    known = CLIENTS[client]
    entry, path = known.make(way), (known.key, NAME)
    if known.file.endswith(".toml"):
        text = table_text(path, entry)
    else:
        text = json.dumps({known.key: {NAME: entry}}, indent=2, ensure_ascii=False)
    return Snippet(client, known.title, known.file, text, _command(client, way), path, entry)


def _command(client: str, way: Way) -> str | None:
    if client != "claude-code":
        return None
    if way.url is None:
        return f"claude mcp add {NAME} -- {shlex.join(way.command)}"
    headers = "".join(f' --header "{name}: {value}"' for name, value in way.headers.items())
    return f"claude mcp add --transport http {NAME} {shlex.quote(way.url)}{headers}"


def _entry(way: Way) -> dict[str, JsonValue]:
    if way.url is None:
        return {"command": way.command[0], "args": list(way.command[1:])}
    headers: dict[str, JsonValue] = {"headers": way.headers} if way.headers else {}
    return {"url": way.url, **headers}


def _typed(way: Way) -> dict[str, JsonValue]:
    return {"type": "stdio" if way.url is None else "http", **_entry(way)}


def _claude_desktop(way: Way) -> dict[str, JsonValue]:
    if way.url is not None:
        raise ValueError("Claude Desktop's file knows programs only; add the address in its settings")
    return _entry(way)


def _opencode(way: Way) -> dict[str, JsonValue]:
    if way.url is None:
        return {"type": "local", "command": list(way.command), "enabled": True}
    headers: dict[str, JsonValue] = {"headers": way.headers} if way.headers else {}
    return {"type": "remote", "url": way.url, "enabled": True, **headers}


def _codex(way: Way) -> dict[str, JsonValue]:
    if way.url is None:
        return _entry(way)
    if way.token is not None:
        return {"url": way.url, "http_headers": way.headers}
    return {"url": way.url, **({"bearer_token_env_var": _TOKEN} if way.needs_token else {})}


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client("Claude Code", ".mcp.json", "mcpServers", _typed),
    "claude-desktop": Client("Claude Desktop", "claude_desktop_config.json", "mcpServers", _claude_desktop),
    "codex": Client("Codex", "~/.codex/config.toml", "mcp_servers", _codex),
    "cursor": Client("Cursor", ".cursor/mcp.json", "mcpServers", _entry),
    "opencode": Client("opencode", "opencode.json", "mcp", _opencode),
    "vscode": Client("VS Code", ".vscode/mcp.json", "servers", _typed),
}
"""By the word that names a client."""
