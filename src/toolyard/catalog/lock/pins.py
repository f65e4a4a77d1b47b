"""Pins: accepted tool definitions as locks store them, and their JSON and packed forms.

Complete definitions are stored, not only hashes, so that every change can be shown as a diff (decision 0015).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, repeat
from typing import Any, NoReturn, TypeAlias, cast

from toolyard.catalog.hashes import definition_hash, hashed_fields
from toolyard.errors import ConfigError, Problem
from toolyard.types.tool import Definition, JsonObject

__all__ = [
    "RESTORE_HINT",
    "Pin",
    "PinsByServer",
    "ServerPins",
    "load_strict_json",
    "pack_pins",
    "pins_from_json",
    "pins_to_json",
    "raise_broken_lock",
    "require_object",
    "text_hash",
    "unpack_pins",
]


@dataclass(frozen=True, slots=True)
class Pin:
    """One accepted tool. ``definition`` has the hashed fields, without those that are absent."""

    hash: str
    definition: JsonObject

    @classmethod
    def from_definition(cls, definition: Definition) -> Pin:
        """Return the pin of a definition."""
        fields = {**hashed_fields(definition), "annotations": definition.annotations or None}
        return cls(
            definition_hash(definition), {key: value for key, value in fields.items() if value is not None}
        )

    @property
    def is_intact(self) -> bool:
        """True if the hash matches the definition."""
        return self.hash == definition_hash(_definition_from_fields(self.definition))

    @property
    def body_hash(self) -> str:
        """Hash of all fields except the name; it stays the same when a tool is only renamed."""
        return definition_hash(_definition_from_fields({**self.definition, "name": ""}))

    @property
    def schema_hash(self) -> str:
        """Hash of the input schema."""
        return definition_hash(_definition_from_fields({"inputSchema": self.definition.get("inputSchema")}))


def _definition_from_fields(fields: JsonObject) -> Definition:
    def text(key: str) -> str | None:
        value: object = fields.get(key)
        return value if isinstance(value, str) else None

    def mapping(key: str) -> dict[str, Any] | None:
        value: object = fields.get(key)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    return Definition(
        "",
        text("name") or "",
        text("title"),
        text("description") or "",
        mapping("inputSchema") or {},
        mapping("outputSchema"),
        mapping("annotations") or {},
    )


@dataclass(frozen=True, slots=True)
class ServerPins:
    """Accepted tools and instructions of one server, and the package that its command downloads, if any."""

    tools: Mapping[str, Pin] = field(default_factory=dict[str, Pin])
    instructions: str | None = None
    package: str | None = None


PinsByServer: TypeAlias = Mapping[str, ServerPins]
"""Pins by server id."""


def text_hash(text: str) -> str:
    """Return the hash of a server's instructions."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


RESTORE_HINT = "restore the file, or remove it and run `toolyard lock`"
_MAX_UNPACKED_BYTES = 256 * 1024 * 1024
"""Maximum size of one server's unpacked pins, larger than any accepted listing. Stops decompression bombs."""


def pins_to_json(pins: ServerPins) -> dict[str, Any]:
    """Return the pins as a JSON object."""
    return {
        "instructions": pins.instructions
        and {"hash": text_hash(pins.instructions), "text": pins.instructions},
        "package": pins.package,
        "tools": {name: {"definition": pin.definition, "hash": pin.hash} for name, pin in pins.tools.items()},
    }


def pins_from_json(file: str, value: object, place: str) -> ServerPins:
    """Parse the pins at ``place``, a path within the file. Raise ConfigError if they are invalid."""
    fields = require_object(file, value, place)
    tools = require_object(file, fields.get("tools"), f"{place}.tools")
    package = fields.get("package")
    if package is not None and not isinstance(package, str):
        raise_broken_lock(file, "expected a string", f"{place}.package")
    return ServerPins(
        {name: _parse_pin(file, name, tool, f"{place}.tools.{name}") for name, tool in tools.items()},
        _parse_instructions(file, fields.get("instructions"), f"{place}.instructions"),
        package,
    )


def pack_pins(pins: ServerPins) -> bytes:
    """Return the pins as compressed JSON, for storage in a database."""
    compressor = zlib.compressobj(6)
    packed = [compressor.compress(piece.encode("ascii")) for piece in _iter_json_pieces(pins)]
    return b"".join([*packed, compressor.flush()])


def _iter_json_pieces(pins: ServerPins) -> Iterator[str]:
    """Yield the JSON of the pins, one tool at a time: encoding all at once would hold the GIL for long."""
    fields = pins_to_json(pins)
    tools = fields.pop("tools")
    yield f'{_dump_compact(fields)[:-1]},"tools":{{'
    for separator, name in zip(chain([""], repeat(",")), sorted(tools), strict=False):
        yield f"{separator}{_dump_compact(name)}:{_dump_compact(tools[name])}"
    yield "}}"


def _dump_compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def unpack_pins(body: bytes, where: str) -> ServerPins:
    """Return the pins packed by ``pack_pins``. Raise ConfigError, with ``where`` as file, if invalid."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(body, _MAX_UNPACKED_BYTES).decode("ascii")
    except (zlib.error, UnicodeDecodeError) as error:
        raise_broken_lock(where, f"the stored bytes cannot be read: {error}", hint=None)
    return pins_from_json(where, load_strict_json(where, text), "server")


def load_strict_json(file: str, text: str) -> object:
    """Parse JSON and reject duplicate keys. Raise ConfigError.

    After a careless merge, one of two entries with the same key would silently win.
    """
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError as error:
        raise_broken_lock(file, f"not valid JSON: {error.msg}", line=error.lineno)
    except (ValueError, RecursionError) as error:
        raise_broken_lock(file, str(error))


def require_object(file: str, value: object, place: str) -> dict[str, Any]:
    """Return ``value`` if it is an object. Raise ConfigError otherwise."""
    if not isinstance(value, dict):
        raise_broken_lock(file, "expected an object", place)
    return cast("dict[str, Any]", value)


def raise_broken_lock(
    file: str, message: str, place: str = "", *, line: int | None = None, hint: str | None = RESTORE_HINT
) -> NoReturn:
    """Raise ConfigError for a problem at ``place`` in a lock."""
    raise ConfigError([Problem(message, file=file, line=line, path=place, hint=hint)])


def _parse_pin(file: str, name: str, value: object, place: str) -> Pin:
    fields = require_object(file, value, place)
    hash = fields.get("hash")
    pin = Pin(hash if isinstance(hash, str) else "", require_object(file, fields.get("definition"), place))
    if pin.definition.get("name") != name or not pin.is_intact:
        raise_broken_lock(
            file,
            "the hash does not match the definition: the file was edited by hand",
            place,
            hint=(
                "restore the file, or remove this entry and run `toolyard lock --accept "
                f"{_tool_id_at(place)}`"
            ),
        )
    return pin


def _parse_instructions(file: str, value: object, place: str) -> str | None:
    if value is None:
        return None
    fields = require_object(file, value, place)
    text = fields.get("text")
    if not isinstance(text, str) or fields.get("hash") != text_hash(text):
        raise_broken_lock(file, "the hash does not match the text: the file was edited by hand", place)
    return text


def _tool_id_at(place: str) -> str:
    _, server, _, tool = place.split(".", 3) if place.count(".") >= 3 else ("", place, "", "")
    return f"{server}/{tool}"


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {json.dumps(duplicate)} appears twice in one object")
    return value
