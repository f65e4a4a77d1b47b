"""Read the files of other clients, and translate their entries into ours. The format is recognised by
content, since names and locations vary.

Formats: ``mcpServers`` of Claude Desktop, Claude Code, Cursor, Windsurf, Gemini CLI, Qwen Code, Copilot CLI
and cline, and ``servers`` of VS Code;
``context_servers`` of Zed, where the command may be an object; opencode, with the command in one list and
time limits in milliseconds, directly under ``mcp`` (version 1) or under ``mcp.servers`` (version 2); and
Codex, TOML tables ``mcp_servers.<name>`` with headers and tokens from named variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

from toolyard.config.file_io import MAX_CLIENT_FILE_BYTES, read_text_file
from toolyard.config.sources.json_document import JsonValue, map_texts, read_json
from toolyard.errors import ConfigError, Problem

__all__ = [
    "EntryTranslation",
    "ForeignFile",
    "ForeignServer",
    "escape_variables",
    "read_foreign_file",
    "read_pasted_servers",
    "translate_codex_server",
    "translate_flat_server",
    "translate_opencode_server",
    "translate_zed_server",
]

_INPUT_VARIABLE = re.compile(r"\$\{input:([^{}]+)\}")
_EDITOR_VARIABLE = re.compile(
    r"\$\{(?:workspaceFolder|workspaceFolderBasename|workspaceRoot|cwd|file|pathSeparator|/)[^{}]*\}"
)
_INVALID_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9_]+")
_NO_EQUIVALENT = "Toolyard has no equivalent"
_EXPANDABLE_KEYS = ("command", "args", "env", "cwd", "url", "headers")


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A server of another client, as an entry of ``mcpServers``, with notes about dropped keys."""

    name: str
    entry: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


class EntryTranslation:
    """Translation in progress. Keys are taken one by one; ``finish`` adds a note for each remaining key."""

    def __init__(self, name: str, raw: Mapping[str, JsonValue]) -> None:
        self.name = name
        self.entry: dict[str, JsonValue] = {}
        self.notes: list[str] = []
        self._remaining = dict(raw)

    def pop(self, key: str) -> JsonValue:
        """Remove a key of the original entry and return its value, or None."""
        return self._remaining.pop(key, None)

    def pop_object(self, key: str, *members: str) -> dict[str, JsonValue] | None:
        """Remove an object of the original entry and return these members of it, with notes for others.

        Returns None, with a note if there is a value, if it is not an object.
        """
        value = self.pop(key)
        if isinstance(value, dict):
            self.note_members(key, (name for name in value if name not in members), _NO_EQUIVALENT)
            return {name: value[name] for name in members if value.get(name) is not None}
        if value is not None:
            self.notes.append(f"'{key}' was dropped: it is not an object")
        return None

    def note_members(self, key: str, members: Iterable[str], reason: str) -> None:
        """Add a note for each dropped member of an object."""
        self.notes += [f"'{key}.{name}' was dropped: {reason}" for name in members]

    def copy_keys(self, *keys: str) -> None:
        """Copy keys that have the same meaning in both formats."""
        for key in keys:
            self.put(key, self.pop(key))

    def put(self, key: str, value: JsonValue) -> None:
        """Set a key of the new entry, unless the value is None."""
        if value is not None:
            self.entry[key] = value

    def merge(self, key: str, values: Mapping[str, JsonValue]) -> None:
        """Add members to an object of the new entry."""
        if values:
            current = self.entry.get(key)
            self.entry[key] = {**(current if isinstance(current, dict) else {}), **values}

    def set_timeouts(self, key: str, *targets: str, scale: float = 1) -> None:
        """Translate a time limit into one or more ``timeouts``, divided by ``scale``."""
        value = self.pop(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            self.merge("timeouts", dict.fromkeys(targets, value / scale))
        elif value is not None:
            self.notes.append(f"'{key}' was dropped: it is not a positive number")

    def drop(self, key: str, reason: str) -> None:
        """Drop a key and add a note with the reason."""
        if self.pop(key) is not None:
            self.notes.append(f"'{key}' was dropped: {reason}")

    def finish(self) -> ForeignServer:
        """Return the new entry."""
        self.notes += [f"'{key}' was dropped: {_NO_EQUIVALENT}" for key in self._remaining]
        for key in _EXPANDABLE_KEYS:
            if key in self.entry:
                self.entry[key] = map_texts(self.entry[key], self._rewrite_variables)
        return ForeignServer(self.name, self.entry, tuple(dict.fromkeys(self.notes)))

    def _rewrite_variables(self, text: str) -> str:
        """Replace references that only an editor can resolve by variables, or add a note."""
        text = _INPUT_VARIABLE.sub(self._replace_input, text.replace("${userHome}", "${HOME}"))
        for match in _EDITOR_VARIABLE.finditer(text):
            self.notes.append(f"only an editor can resolve {match[0]}: replace it with the path")
        return text

    def _replace_input(self, match: re.Match[str]) -> str:
        variable = _INVALID_NAME_CHARACTERS.sub("_", match[1]).strip("_").upper() or "INPUT"
        variable = f"_{variable}" if variable[0].isdigit() else variable
        self.notes.append(f"the editor prompts for {match[0]}: set the variable {variable} instead")
        return f"${{{variable}}}"


def escape_variables(raw: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Escape ``${`` in an entry of a client that does not expand ``${NAME}``: it may be meant for a shell."""
    return {key: map_texts(value, lambda text: text.replace("${", "$${")) for key, value in raw.items()}


_SHARED_KEYS = (
    *("type", "command", "args", "cwd", "url", "headers", "enabled", "disabled"),
    *(
        "label",
        "description",
        "shared",
        "protocol",
        "timeouts",
        "stopWhenIdle",
        "restart",
        "sessions",
        "cache",
    ),
    *("allowTools", "denyTools", "privateAddresses", "authProviderId"),
)
_URL_ALIASES = ("serverUrl", "httpUrl")
_TOOL_LIST_KEYS = (
    ("denyTools", "disabledTools"),
    ("denyTools", "excludeTools"),
    ("allowTools", "includeTools"),
)


def translate_flat_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one entry. Most keys are the same as ours; a few have other names."""
    work = EntryTranslation(name, raw)
    work.copy_keys(*_SHARED_KEYS)
    if work.entry.get("type") == "local":  # Copilot CLI
        work.entry["type"] = "stdio"
    tools = work.pop("tools")
    if tools != ["*"]:
        work.put("allowTools", tools)
    work.put("env", _stringify_env(work))
    for alias in _URL_ALIASES:
        if "url" in work.entry:
            work.drop(alias, "another key has the address")
        else:
            work.put("url", work.pop(alias))
    for ours, theirs in _TOOL_LIST_KEYS:
        work.put(ours, _join_lists(work.entry.get(ours), work.pop(theirs)))
    # In files of Gemini, "trust" is a boolean that turns off confirmations; ours is a string.
    trust = work.pop("trust")
    if isinstance(trust, str):
        work.put("trust", trust)
    elif trust is not None:
        work.notes.append("'trust' was dropped: there it means that calls need no approval")
    work.put("oauth", _translate_flat_oauth(work))
    work.drop("envFile", "put its variables into 'env'")
    return work.finish()


def _join_lists(first: JsonValue, second: JsonValue) -> JsonValue:
    """Return the items of both, since clients have two names for one list."""
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(item for item in second if item not in first)]
    return second or first


def _stringify_env(work: EntryTranslation) -> JsonValue:
    """Convert numbers to strings, and drop null values, both of which some clients allow."""
    env = work.pop("env")
    if not isinstance(env, dict):
        return env
    work.note_members("env", (key for key, value in env.items() if value is None), "it is null")
    return {
        key: str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        for key, value in env.items()
        if value is not None
    }


def _translate_flat_oauth(work: EntryTranslation) -> JsonValue:
    names = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scopes": "scopes"}  # Cursor
    auth = work.pop_object("auth", *names)
    if auth is not None:
        work.drop("oauth", "'auth' is used")
        return {names[key]: value for key, value in auth.items()}
    return work.pop_object("oauth", "clientId", "clientSecret", "scopes", "callbackPort", "resource")


def translate_zed_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one entry, with the command as an object or a string."""
    work = EntryTranslation(name, raw)
    if isinstance(raw.get("command"), dict):
        command = work.pop_object("command", "path", "args", "env") or {}
        work.put("command", command.get("path"))
        work.put("args", command.get("args"))
        work.put("env", command.get("env"))
    else:
        work.copy_keys("command", "args", "env")
    work.copy_keys("url", "headers", "enabled")
    work.pop("source")
    work.drop("settings", "only an extension of Zed uses it")
    return work.finish()


_OPENCODE_VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def translate_opencode_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one entry of either version."""
    work = EntryTranslation(name, escape_variables(raw))
    kind = work.pop("type")
    work.copy_keys("enabled", "disabled", "cwd", "url", "headers")
    command = work.pop("command")
    if isinstance(command, list) and command:
        work.put("command", command[0])
        work.put("args", command[1:] or None)
    else:
        work.put("command", command)
    work.put("env", work.pop("environment"))
    work.put("type", {"local": "stdio", "remote": "http"}.get(kind) if isinstance(kind, str) else None)
    work.set_timeouts("timeout", "connect", scale=1000)
    work.put("oauth", _translate_opencode_oauth(work, raw))
    # After ``escape_variables``: what is ``${`` in the file is for a shell, and our own references are added.
    for key, value in work.entry.items():
        work.entry[key] = map_texts(value, lambda text: _OPENCODE_VARIABLE.sub(r"${\1}", text))
    if "{file:" in str(work.entry):
        work.notes.append("{file:...} cannot be read: put the content into a variable")
    return work.finish()


def _translate_opencode_oauth(work: EntryTranslation, raw: Mapping[str, JsonValue]) -> JsonValue:
    if raw.get("oauth") is False:
        work.drop("oauth", "it was off there; Toolyard signs in only if the server requires it")
    oauth = work.pop_object(
        *("oauth", "clientId", "client_id", "clientSecret", "client_secret", "scope", "callback_port")
    )
    if oauth is None:
        return None
    scope = oauth.get("scope")
    entry: dict[str, JsonValue] = {
        "clientId": oauth.get("clientId") or oauth.get("client_id"),
        "clientSecret": oauth.get("clientSecret") or oauth.get("client_secret"),
        "scopes": list(scope.split()) if isinstance(scope, str) else None,
        "callbackPort": oauth.get("callback_port"),
    }
    return {key: value for key, value in entry.items() if value is not None}


def translate_codex_server(name: str, raw: Mapping[str, JsonValue]) -> ForeignServer:
    """Translate one table ``mcp_servers.<name>``."""
    work = EntryTranslation(name, escape_variables(raw))
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
    work.set_timeouts("startup_timeout_ms", "connect", scale=1000)
    work.set_timeouts("startup_timeout_sec", "connect")
    # Codex limits the whole call, so a shorter limit for silence must not end it sooner.
    work.set_timeouts("tool_timeout_sec", "silence", "call")
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
    options: dict[str, JsonValue] = {
        "clientId": (work.pop_object("oauth", "client_id") or {}).get("client_id"),
        "scopes": work.pop("scopes"),
        "resource": work.pop("oauth_resource"),
    }
    work.merge("oauth", {key: value for key, value in options.items() if value is not None})


ServerTranslator = Callable[[str, Mapping[str, JsonValue]], ForeignServer]
_CLIENT_BY_FILE_NAME = {
    "claude_desktop_config.json": "Claude Desktop",
    ".claude.json": "Claude Code",
    ".mcp.json": "Claude Code",
    "mcp_config.json": "Windsurf",
    "mcp-config.json": "Copilot CLI",
    "cline_mcp_settings.json": "cline",
}
_CLIENT_BY_FOLDER = {
    ".cursor": "Cursor",
    ".vscode": "VS Code",
    ".gemini": "Gemini CLI",
    ".qwen": "Qwen Code",
    ".zed": "Zed",
    "zed": "Zed",
}
_NO_CLIENT = "mcpServers"


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
    root, notes = _parse_root(path, read_text_file(path, max_bytes=MAX_CLIENT_FILE_BYTES))
    if not isinstance(root, dict):
        raise _unknown_format_error(path)
    client, servers = _recognise_client(path, root)
    if "inputs" in root:
        notes.append("'inputs' was dropped: Toolyard does not prompt for them; set variables instead")
    if "mcp" in root and "mcpServers" in root:
        notes.append("'mcp' was dropped: permissions of that client do not apply here")
    return ForeignFile(client, str(path), tuple(servers), tuple(notes))


_ENTRY_KEYS = ("command", "url", *_URL_ALIASES, "transport")
_FILE_KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp")


def read_pasted_servers(text: str, name: str | None = None) -> tuple[ForeignServer, ...]:
    """Read servers from a text: the content of any client's file, entries by name, or one entry.

    Braces around a single ``"name": {…}`` may be missing. An entry alone needs ``name``. Raises ConfigError.
    """
    text = text.strip().rstrip(",")
    toml = text.startswith("[")
    path = Path("pasted.toml" if toml else "pasted.json")
    try:
        root, _ = _parse_root(path, f"{{{text}}}" if text.startswith('"') else text)
    except ConfigError as error:
        raise ConfigError([replace(problem, file="the pasted text") for problem in error.problems]) from None
    if not isinstance(root, dict) or not root:
        raise _pasted_text_error("expected an object with one or more servers")
    if any(key in root for key in _ENTRY_KEYS):
        if name is None:
            raise _pasted_text_error("the entry has no name", "put a name before it: toolyard add NAME …")
        return (_translate_pasted(name, root),)
    key = next((key for key in _FILE_KEYS if isinstance(root.get(key), dict)), None)
    is_file = key is not None and not any(word in _as_object(root[key]) for word in _ENTRY_KEYS)
    if is_file:
        return tuple(_recognise_client(path, root)[1])
    if not all(isinstance(entry, dict) for entry in root.values()):
        raise _pasted_text_error("expected servers by name, or an entry with a command or a URL")
    return tuple(_translate_pasted(key, _as_object(entry)) for key, entry in root.items())


def _translate_pasted(name: str, raw: dict[str, JsonValue]) -> ForeignServer:
    """Translate an entry whose client is not known, by its form."""
    command = raw.get("command")
    if raw.get("type") in ("local", "remote") or isinstance(command, list):
        return translate_opencode_server(name, raw)
    if isinstance(command, dict):
        return translate_zed_server(name, raw)
    return translate_flat_server(name, raw)


def _as_object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _pasted_text_error(message: str, hint: str | None = None) -> ConfigError:
    return ConfigError([Problem(message, file="the pasted text", hint=hint)])


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
    client = _guess_client(path)
    if client != _NO_CLIENT:  # settings of a client that has no servers
        return client, []
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
    by_folder = _CLIENT_BY_FOLDER.get(path.parent.name)
    return by_folder or _CLIENT_BY_FILE_NAME.get(path.name, _NO_CLIENT)


def _unknown_format_error(path: Path) -> ConfigError:
    message = "the file does not have the format of a known client"
    known = (
        "Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Zed, opencode, Codex, Gemini CLI, "
        "Qwen Code, Copilot CLI and cline"
    )
    return ConfigError([Problem(message, file=str(path), hint=f"known clients: {known}")])
