"""Read the files of other clients. The format is recognised by content, since names and locations vary."""

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
    """Servers in the file of another client. ``client`` is derived from the format."""

    client: str
    path: str
    servers: tuple[ForeignServer, ...]
    notes: tuple[str, ...] = ()


def read_foreign_file(path: Path) -> ForeignFile:
    """Read the file of any known client.

    Raises ConfigError if it is missing, unreadable or of an unknown format.
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
        notes.append("its 'inputs' were dropped: Toolyard does not prompt for them; set variables instead")
    if "mcp" in root and "mcpServers" in root:
        notes.append("its 'mcp' was dropped: permissions of that client do not apply here")
    return ForeignFile(client, str(path), tuple(servers), tuple(notes))


def _parse_root(path: Path, text: str) -> tuple[JsonValue, list[str]]:
    """Return the parsed file, and notes about duplicate keys; as in the client, the last one is used."""
    if path.suffix != ".toml":
        document = read_json(text, file=str(path))
        return document.root, [
            f"{duplicate.path}: duplicate key; the last one, on line {duplicate.line}, was used"
            for duplicate in document.duplicate_keys
        ]
    import tomllib  # only one client uses TOML

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
    # Files of Gemini have both "mcp" and "mcpServers".
    if isinstance(root.get("mcp"), dict) and "mcpServers" not in root:
        return _read_opencode_or_vscode(root["mcp"])
    if isinstance(root.get("servers"), dict):
        if _is_toolyard_dialect(root["servers"]):
            message = "the file already has Toolyard's format, so no import is needed"
            raise ConfigError([Problem(message, file=str(path), hint="use it as the configuration file")])
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
    """Distinguish two formats with ``mcp.servers``: only opencode has the types local and remote."""
    inner = table.get("servers") if isinstance(table, dict) else None
    entries = inner if isinstance(inner, dict) and "type" not in inner else table
    kinds = [entry.get("type") for entry in _table_values(entries) if isinstance(entry, dict)]
    if entries is inner and not any(kind in ("local", "remote") for kind in kinds):
        return "VS Code", list(_translate_servers(entries, translate_flat_server))
    return "opencode", list(_translate_servers(entries, translate_opencode_server))


def _read_project_servers(projects: JsonValue) -> Iterator[ForeignServer]:
    """Yield the servers of each project of Claude Code, which starts them in the folder of the project."""
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
            # A value that is not an object becomes an empty entry, which is skipped with a hint later.
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
    message = "the file does not have the format of a known client"
    known = "Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Zed, opencode and Codex"
    return ConfigError([Problem(message, file=str(path), hint=f"known clients: {known}")])
