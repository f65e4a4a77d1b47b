"""Requests, reports and errors as JSON, for the connection to the background process.

Both ends have the same version of this program. Each message is preceded by its length; an empty one only
says that the work goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from importlib import import_module
from typing import Any, cast

from toolyard.cli.backends.backend import (
    EarlyServersReport,
    PartialTools,
    SearchReport,
    ServersReport,
    ToolsReport,
)
from toolyard.cli.output.console import Notice
from toolyard.cli.output.servers import ServerSummary
from toolyard.errors import AgentsError, ConfigError, HttpStatus, Problem, ToolyardError
from toolyard.types.call import HiddenTool
from toolyard.types.server import ServerProcess
from toolyard.types.tool import Media, ResourceLink, Result, TextBlock, TextResource, Tool

__all__ = [
    "decode_error",
    "decode_report",
    "encode_error",
    "encode_record",
    "find_report_kind",
    "read_message",
    "write_message",
]

_LENGTH_BYTES = 4
_MAX_MESSAGE_BYTES = 1024 * 1024 * 1024
_PACKAGE_PREFIX = "toolyard."
_BLOCK_TYPES = {each.__name__: each for each in (TextBlock, Media, TextResource, ResourceLink)}


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next message; it is empty for a heartbeat.

    Raises IncompleteReadError at the end of the connection, and ValueError.
    """
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if length > _MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return cast("dict[str, Any]", json.loads(await reader.readexactly(length))) if length else {}


def write_message(writer: asyncio.StreamWriter, body: bytes = b"") -> None:
    """Send a message. Its body is encoded by the caller, in a thread if it may be long."""
    writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)


def encode_record(value: Any) -> Any:
    """Return a dataclass and those within it as JSON objects. Other values stay as they are."""
    if is_dataclass(value):
        found = {each.name: encode_record(getattr(value, each.name)) for each in fields(value)}
        if type(value).__name__ in _BLOCK_TYPES:
            found["type"] = type(value).__name__
        return found
    if isinstance(value, list | tuple):
        return [encode_record(each) for each in cast("list[Any]", value)]
    return value


def find_report_kind(report: object) -> str:
    """Return the name of a record's class in messages."""
    return _REPORT_KINDS[type(report)]


def decode_report(kind: str, found: dict[str, Any]) -> Any:
    """Return the record of this kind that ``encode_record`` made a JSON object of."""
    for name, decode in _FIELD_DECODERS.items():
        if name in found:
            found[name] = decode(found[name])
    return _REPORT_TYPES[kind](**found)


def _decode_process(found: dict[str, Any]) -> ServerProcess:
    return ServerProcess(found["pid"], tuple(found["users"]), found["launch"])


_REPORT_TYPES: dict[str, type[Any]] = {
    "ToolsReport": ToolsReport,
    "SearchReport": SearchReport,
    "ServersReport": ServersReport,
    "EarlyTools": PartialTools,
    "EarlyServers": EarlyServersReport,
    "ServerSummary": ServerSummary,
    "Result": Result,
}
"""Records by their names in messages, which stay: the two processes may be of different versions."""
_REPORT_KINDS = {each: kind for kind, each in _REPORT_TYPES.items()}
_FIELD_DECODERS: dict[str, Callable[[Any], Any]] = {
    "tools": lambda items: [Tool(**each) for each in items],
    "hidden": lambda items: [HiddenTool(**each) for each in items],
    "notices": lambda items: [Notice(**each) for each in items],
    "servers": lambda items: [decode_report("ServerSummary", each) for each in items],
    "processes": lambda items: tuple(map(_decode_process, items)),
    "blocks": lambda items: tuple(_BLOCK_TYPES[each.pop("type")](**each) for each in items),
    "warnings": tuple,
    "quarantined_tools": tuple,
    "stderr_lines": tuple,
}
"""Decoders of the fields of records, by name. A name means the same in all records."""


def encode_error(error: ToolyardError) -> dict[str, Any]:
    """Return an error as a JSON object, from which the other process raises the same."""
    found: dict[str, Any] = {
        name: value
        for name, value in vars(error).items()
        if value is None or isinstance(value, str | int | float | list | dict)
    }
    if isinstance(error, ConfigError | AgentsError):
        found["problems"] = [asdict(problem) for problem in error.problems]
    elif isinstance(error, HttpStatus):
        found["body"] = error.body.decode("utf-8", "replace")
    return {"module": type(error).__module__, "name": type(error).__qualname__, "fields": found}


def decode_error(found: dict[str, Any]) -> ToolyardError:
    """Return the error that ``encode_error`` made a JSON object of. Raises ValueError."""
    module, values = str(found["module"]), cast("dict[str, Any]", found["fields"])
    kind = getattr(import_module(module), found["name"], None) if module.startswith(_PACKAGE_PREFIX) else None
    if not (isinstance(kind, type) and issubclass(kind, ToolyardError)):
        raise ValueError(f"{module}.{found['name']} is not an error of Toolyard")
    if "problems" in values:
        values["problems"] = tuple(Problem(**each) for each in values["problems"])
    if "body" in values:
        values["body"] = values["body"].encode()
    # Classes have constructors of their own, which would build the cause again.
    error = kind.__new__(kind, values["cause"])
    vars(error).update(values)
    return error
