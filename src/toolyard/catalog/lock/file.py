"""``mcp.lock``: read with care, because people merge it by hand; written the same way every time.

Anything that is not exactly what was written counts as broken, and then nothing is accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn, cast

from toolyard.catalog.lock.pins import Lock, Pin, ServerPins, text_hash
from toolyard.config.atomic import write_whole
from toolyard.errors import ConfigError, Problem

__all__ = ["FILE_NAME", "VERSION", "lock_path", "read_lock", "write_lock"]

FILE_NAME = "mcp.lock"
VERSION = 1
_MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")
_HINT = "restore the file, or remove it and run `toolyard lock`"


def lock_path(config_file: str | None, data_dir: Path) -> Path:
    """Where the lock is, if there is one: beside the configuration file, else in the data directory."""
    return (data_dir if config_file is None else Path(config_file).parent) / FILE_NAME


def read_lock(path: Path) -> Lock | None:
    """What the file says; None where there is none. Raises ConfigError for one that cannot be believed."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        _broken(path, f"the lock cannot be read: {error}")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_MARKERS):
            _broken(path, "a conflict marker: the file was merged halfway", line=number)
    try:
        value: object = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        _broken(path, f"no JSON: {error.msg}", line=error.lineno)
    except (ValueError, RecursionError) as error:
        _broken(path, str(error))
    root = _object(path, value, "")
    version: object = root.get("version")
    if version is True or version != VERSION:
        _broken(path, f"version {json.dumps(version)} of the lock, where {VERSION} is expected", "version")
    servers = _object(path, root.get("servers"), "servers")
    return {server_id: _server(path, one, f"servers.{server_id}") for server_id, one in servers.items()}


def write_lock(path: Path, lock: Lock) -> None:
    """Write the file as one step. The same lock is the same bytes. Raises OSError."""
    servers = {
        server_id: {
            "instructions": pins.instructions
            and {"hash": text_hash(pins.instructions), "text": pins.instructions},
            "package": pins.package,
            "tools": {
                name: {"definition": pin.definition, "hash": pin.hash} for name, pin in pins.tools.items()
            },
        }
        for server_id, pins in lock.items()
    }
    value = {"servers": servers, "version": VERSION}
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    # For everyone to read, unlike the configuration: it goes into repositories and holds no secrets.
    write_whole(path, text.encode("ascii"))


def _server(path: Path, value: object, place: str) -> ServerPins:
    fields = _object(path, value, place)
    tools = _object(path, fields.get("tools"), f"{place}.tools")
    package = fields.get("package")
    if package is not None and not isinstance(package, str):
        _broken(path, "expected a string", f"{place}.package")
    return ServerPins(
        {name: _pin(path, name, one, f"{place}.tools.{name}") for name, one in tools.items()},
        _instructions(path, fields.get("instructions"), f"{place}.instructions"),
        package,
    )


def _pin(path: Path, name: str, value: object, place: str) -> Pin:
    fields = _object(path, value, place)
    said = fields.get("hash")
    pin = Pin(said if isinstance(said, str) else "", _object(path, fields.get("definition"), place))
    if pin.definition.get("name") != name or not pin.fits:
        _broken(
            path,
            "the hash does not fit the definition: the file was edited by hand",
            place,
            hint=f"restore the file, or remove this entry and run `toolyard lock --accept {_name(place)}`",
        )
    return pin


def _instructions(path: Path, value: object, place: str) -> str | None:
    if value is None:
        return None
    fields = _object(path, value, place)
    text = fields.get("text")
    if not isinstance(text, str) or fields.get("hash") != text_hash(text):
        _broken(path, "the hash does not fit the text: the file was edited by hand", place)
    return text


def _name(place: str) -> str:
    _, server, _, tool = place.split(".", 3) if place.count(".") >= 3 else ("", place, "", "")
    return f"{server}/{tool}"


def _object(path: Path, value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _broken(path, "expected an object", place)
    return cast("dict[str, Any]", value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {json.dumps(twice)} stands twice in one object")
    return found


def _broken(
    path: Path, message: str, place: str = "", *, line: int | None = None, hint: str = _HINT
) -> NoReturn:
    raise ConfigError([Problem(message, file=str(path), line=line, path=place, hint=hint)])
