"""Locations of the configuration files of other clients."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

__all__ = ["ClientFile", "find_target_file", "find_user_files", "project_client_files", "user_client_files"]


@dataclass(frozen=True, slots=True)
class ClientFile:
    """Possible configuration file of a client; it need not exist."""

    client: str
    path: Path


def user_client_files(
    home: str | os.PathLike[str],
    platform: str = sys.platform,
    env: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ClientFile, ...]:
    """Return the possible files of a user: below the home directory, and in the folders that
    ``XDG_CONFIG_HOME``, ``CLAUDE_CONFIG_DIR`` and ``CODEX_HOME`` of ``env`` name."""
    root = Path(home)
    xdg = root / ".config"
    # The specification ignores relative paths.
    if (named := env.get("XDG_CONFIG_HOME", "")) and Path(named).is_absolute():
        xdg = Path(named)
    config = {
        "darwin": root / "Library" / "Application Support",
        "win32": root / "AppData" / "Roaming",
    }.get(platform, xdg)
    zed = root / "AppData" / "Roaming" / "Zed" if platform == "win32" else xdg / "zed"
    claude = Path(env.get("CLAUDE_CONFIG_DIR") or root)
    codex = Path(env.get("CODEX_HOME") or root / ".codex")
    return (
        ClientFile("Claude Desktop", config / "Claude" / "claude_desktop_config.json"),
        ClientFile("Claude Code", claude / ".claude.json"),
        ClientFile("Cursor", root / ".cursor" / "mcp.json"),
        ClientFile("VS Code", config / "Code" / "User" / "mcp.json"),
        ClientFile("opencode", xdg / "opencode" / "opencode.json"),
        ClientFile("opencode", xdg / "opencode" / "opencode.jsonc"),
        ClientFile("Codex", codex / "config.toml"),
        ClientFile("Windsurf", root / ".codeium" / "windsurf" / "mcp_config.json"),
        ClientFile("Zed", zed / "settings.json"),
        ClientFile("Gemini CLI", root / ".gemini" / "settings.json"),
        ClientFile("Qwen Code", root / ".qwen" / "settings.json"),
        ClientFile("Copilot CLI", root / ".copilot" / "mcp-config.json"),
        ClientFile("cline", root / ".cline" / "data" / "settings" / "cline_mcp_settings.json"),
    )


def project_client_files(folder: str | os.PathLike[str]) -> tuple[ClientFile, ...]:
    """Return the possible files in a project folder."""
    root = Path(folder)
    return (
        ClientFile("Claude Code", root / ".mcp.json"),
        ClientFile("Cursor", root / ".cursor" / "mcp.json"),
        ClientFile("VS Code", root / ".vscode" / "mcp.json"),
        ClientFile("opencode", root / "opencode.json"),
        ClientFile("opencode", root / "opencode.jsonc"),
        ClientFile("Codex", root / ".codex" / "config.toml"),
        ClientFile("Zed", root / ".zed" / "settings.json"),
        ClientFile("Gemini CLI", root / ".gemini" / "settings.json"),
        ClientFile("Qwen Code", root / ".qwen" / "settings.json"),
    )


def find_user_files(home: str | os.PathLike[str], *, env: Mapping[str, str]) -> tuple[ClientFile, ...]:
    """Return the file of each client that is found on this machine: the file or its folder exists."""
    root, found = Path(home), dict[str, ClientFile]()
    for place in user_client_files(root, env=env):
        earlier, folder = found.get(place.client), place.path.parent
        is_better = place.path.is_file() and not (earlier and earlier.path.is_file())
        if is_better or (earlier is None and folder != root and folder.is_dir()):
            found[place.client] = place
    return tuple(found.values())


def find_target_file(client: str, places: Iterable[ClientFile]) -> Path | None:
    """Return the existing file of a client, else its first possible location; None for an unknown client."""
    paths = [place.path for place in places if place.client == client]
    return next((path for path in paths if path.is_file()), paths[0] if paths else None)
