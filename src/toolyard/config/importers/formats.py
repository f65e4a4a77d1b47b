"""Which client wrote this file? Told by its shape, since names and places vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

from toolyard.config.file_reader import MAX_CLIENT_FILE_BYTES, decode_utf8, read_regular_file
from toolyard.config.importers.codex import translate_codex_server
from toolyard.config.importers.mcp_servers import translate_flat_server
from toolyard.config.importers.opencode import translate_opencode_server
from toolyard.config.importers.translation import ForeignServer
from toolyard.config.importers.zed import translate_zed_server
from toolyard.config.sources.json_document import JsonValue
from toolyard.config.sources.json_reader import read_json
from toolyard.errors import ConfigError, Problem

__all__ = ["ForeignFile", "read_foreign_file"]

ServerTranslator = Callable[[str, Mapping[str, JsonValue]], ForeignServer]
_CLIENT_BY_FILE_NAME = {
    "claude_desktop_config.json": "Claude Desktop",
    ".claude.json": "Claude Code",
    ".mcp.json": "Claude Code",
    "mcp_config.json": "Windsurf",
}


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """The servers of a file of another client. ``client`` is what its shape says."""

    client: str
    path: str
    servers: tuple[ForeignServer, ...]
    notes: tuple[str, ...] = ()


def read_foreign_file(path: Path) -> ForeignFile:
    """Read a file of any known client.

    Raises ConfigError where it is missing, unreadable or of no known shape.
    """
    if path.suffix in (".yaml", ".yml"):
        raise _unknown_format_error(path)
    root, notes = _parse_root(
        path, decode_utf8(read_regular_file(path, max_bytes=MAX_CLIENT_FILE_BYTES), str(path))
    )
    if not isinstance(root, dict):
        raise _unknown_format_error(path)
    client, servers = _recognise_client(path, root)
    if "inputs" in root:
        notes.append("its 'inputs' were left out: Toolyard asks for nothing, set variables instead")
    if "mcp" in root and "mcpServers" in root:
        notes.append("its 'mcp' was left out: what is allowed there does not count here")
    return ForeignFile(client, str(path), tuple(servers), tuple(notes))


def _parse_root(path: Path, text: str) -> tuple[JsonValue, list[str]]:
    """What the file says, and what is said twice in it; there too the last one counts."""
    if path.suffix != ".toml":
        document = read_json(text, file=str(path))
        return document.root, [
            f"{twice.path}: stands twice, the last one, on line {twice.line}, was taken"
            for twice in document.duplicate_keys
        ]
    import tomllib  # only one client writes TOML

    try:
        return tomllib.loads(text), []
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([Problem(f"not valid TOML: {error}", file=str(path))]) from error


def _recognise_client(path: Path, root: dict[str, JsonValue]) -> tuple[str, list[ForeignServer]]:
    for key in ("mcp_servers", "context_servers", "mcpServers"):
        if not isinstance(root.get(key, {}), (dict, NoneType)):
            message = "expected an object of servers by name, found something else"
            raise ConfigError([Problem(message, file=str(path), path=key)])
    if "mcp_servers" in root:
        return "Codex", list(_translate_servers(root["mcp_servers"], translate_codex_server))
    if "context_servers" in root:
        return "Zed", list(_translate_servers(root["context_servers"], translate_zed_server))
    if isinstance(root.get("mcp"), dict) and "mcpServers" not in root:  # Gemini has both
        return _read_opencode_or_vscode(root["mcp"])
    if isinstance(root.get("servers"), dict):
        if _is_toolyard_dialect(root["servers"]):
            message = "this is a file of Toolyard's own dialect; nothing has to be imported"
            raise ConfigError([Problem(message, file=str(path), hint="name it as the configuration")])
        return "VS Code", list(_translate_servers(root["servers"], translate_flat_server))
    if "mcpServers" in root or "projects" in root:
        servers = [
            *_translate_servers(root.get("mcpServers"), translate_flat_server),
            *_read_project_servers(root.get("projects")),
        ]
        client = "Claude Code" if "projects" in root else _guess_client(path)
        return client, servers
    raise _unknown_format_error(path)


def _read_opencode_or_vscode(table: JsonValue) -> tuple[str, list[ForeignServer]]:
    """Both have ``mcp.servers``; only opencode speaks of local and remote."""
    inner = table.get("servers") if isinstance(table, dict) else None
    entries = inner if isinstance(inner, dict) and "type" not in inner else table
    kinds = [entry.get("type") for entry in _table_values(entries) if isinstance(entry, dict)]
    if entries is inner and not any(kind in ("local", "remote") for kind in kinds):
        return "VS Code", list(_translate_servers(entries, translate_flat_server))
    return "opencode", list(_translate_servers(entries, translate_opencode_server))


def _read_project_servers(projects: JsonValue) -> Iterator[ForeignServer]:
    """Claude Code keeps servers per project too, and starts them in the project's folder."""
    if not isinstance(projects, dict):
        return
    for folder, project in projects.items():
        table = project.get("mcpServers") if isinstance(project, dict) else None
        for server in _translate_servers(table, translate_flat_server):
            entry = server.entry
            if "command" in entry and "cwd" not in entry:
                entry = {**entry, "cwd": folder}
            yield replace(server, entry=entry, notes=(*server.notes, f"it belonged to the project {folder}"))


def _translate_servers(table: JsonValue, translate: ServerTranslator) -> Iterator[ForeignServer]:
    if isinstance(table, dict):
        for name, raw in table.items():
            # What is no object becomes an entry with nothing in it, which is skipped and told.
            yield translate(name, raw if isinstance(raw, dict) else {})


def _table_values(table: JsonValue) -> list[JsonValue]:
    return list(table.values()) if isinstance(table, dict) else []


def _is_toolyard_dialect(table: JsonValue) -> bool:
    return any(isinstance(entry, dict) and "transport" in entry for entry in _table_values(table))


def _guess_client(path: Path) -> str:
    if path.parent.name in (".cursor", ".vscode"):
        return {".cursor": "Cursor", ".vscode": "VS Code"}[path.parent.name]
    return _CLIENT_BY_FILE_NAME.get(path.name, "mcpServers")


def _unknown_format_error(path: Path) -> ConfigError:
    message = "no servers of a known client stand in this file"
    known = "Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Zed, opencode and Codex"
    return ConfigError([Problem(message, file=str(path), hint=f"known are {known}")])
