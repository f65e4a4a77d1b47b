"""Where other clients keep their servers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "known_places", "project_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A file that a client would use, whether or not it is there."""

    client: str
    path: Path


def known_places(home: str | os.PathLike[str], platform: str = sys.platform) -> tuple[Place, ...]:
    """The files of a user, below the home directory."""
    root = Path(home)
    config = {
        "darwin": root / "Library" / "Application Support",
        "win32": root / "AppData" / "Roaming",
    }.get(platform, root / ".config")
    zed = root / "AppData" / "Roaming" / "Zed" if platform == "win32" else root / ".config" / "zed"
    return (
        Place("Claude Desktop", config / "Claude" / "claude_desktop_config.json"),
        Place("Claude Code", root / ".claude.json"),
        Place("Cursor", root / ".cursor" / "mcp.json"),
        Place("VS Code", config / "Code" / "User" / "mcp.json"),
        Place("opencode", root / ".config" / "opencode" / "opencode.json"),
        Place("opencode", root / ".config" / "opencode" / "opencode.jsonc"),
        Place("Codex", root / ".codex" / "config.toml"),
        Place("Windsurf", root / ".codeium" / "windsurf" / "mcp_config.json"),
        Place("Zed", zed / "settings.json"),
    )


def project_places(folder: str | os.PathLike[str]) -> tuple[Place, ...]:
    """The files that stand in a project."""
    root = Path(folder)
    return (
        Place("Claude Code", root / ".mcp.json"),
        Place("Cursor", root / ".cursor" / "mcp.json"),
        Place("VS Code", root / ".vscode" / "mcp.json"),
        Place("opencode", root / "opencode.json"),
        Place("opencode", root / "opencode.jsonc"),
        Place("Codex", root / ".codex" / "config.toml"),
        Place("Zed", root / ".zed" / "settings.json"),
    )
