"""Parse the transport of a server, as an object ``transport`` or as keys of the entry itself."""

from __future__ import annotations

from typing import Literal

from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.suggestions import did_you_mean
from toolyard.types.server import HttpSpec, StdioSpec, TransportSpec

__all__ = ["read_flat_transport", "read_nested_transport"]

_HTTP_TYPE_NAMES = {"streamablehttp", "http"}
_FLAT_TYPE_NAMES = ("streamableHttp", "http", "sse", "stdio")
_URL_ALIASES = ("serverUrl", "httpUrl")
"""Names that some clients use for ``url``."""


def read_nested_transport(entry: CheckedObject) -> TransportSpec | None:
    """Parse the object ``transport`` of an entry. Returns None, with problems reported, if it is invalid."""
    if entry.get("transport") is None:
        flat = "url" in entry.value or "command" in entry.value
        hint = (
            "under 'servers' the transport is a separate object; entries that contain url or command "
            "directly belong under 'mcpServers'"
        )
        entry.report_mismatch("transport", "an object", None, hint=hint if flat else None)
        return None
    inner = entry.child_object("transport")
    if inner is None:
        return None
    kind = inner.choice("type", ("http", "sse", "stdio"), required=True)
    if kind is None:
        return None
    transport = (
        _read_stdio_spec(inner)
        if kind == "stdio"
        else _read_http_spec(inner, "sse" if kind == "sse" else "http")
    )
    inner.report_unknown_keys()
    return transport


def read_flat_transport(entry: CheckedObject) -> TransportSpec | None:
    """Parse the transport's keys from the entry itself, the form of most clients."""
    kind = _read_transport_type(entry)
    if kind is None:
        return None
    return _read_stdio_spec(entry) if kind == "stdio" else _read_http_spec(entry, kind)


def _read_transport_type(entry: CheckedObject) -> Literal["http", "sse", "stdio"] | None:
    # Some clients use the key "transport" for the type; a string there has the same meaning.
    key = "transport" if entry.get("type") is None and entry.get("transport") is not None else "type"
    value = entry.get(key)
    if value is None:
        return _infer_transport_type(entry)
    if isinstance(value, str):
        word = value.casefold().replace("-", "").replace("_", "")
        if word in _HTTP_TYPE_NAMES:
            return "http"
        if word == "sse":
            return "sse"
        if word == "stdio":
            return "stdio"
    expected = " or ".join(f'"{word}"' for word in _FLAT_TYPE_NAMES)
    entry.report_mismatch(key, expected, value, show_value=True, hint=_hint_for_type(value))
    return None


def _infer_transport_type(entry: CheckedObject) -> Literal["http", "stdio"] | None:
    has_url, has_command = entry.get("url") is not None, entry.get("command") is not None
    if has_url and has_command:
        hint = 'add "type": "http" or "type": "stdio"'
        entry.report.problem(entry.path, "both 'url' and 'command' are given", hint=hint)
        return None
    if not has_url and not has_command:
        alias = next((key for key in _URL_ALIASES if entry.get(key) is not None), None)
        hint = "set the URL of the server, or the command that starts it"
        if alias is not None:
            hint = f"rename '{alias}' to 'url', or convert the file with `toolyard import`"
        entry.report.problem(entry.path, "expected 'url' or 'command', found neither", hint=hint)
        return None
    return "http" if has_url else "stdio"


def _hint_for_type(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if value in ("local", "remote"):
        return "this is opencode's format; convert the file with `toolyard import`"
    return did_you_mean(value, _FLAT_TYPE_NAMES, list_known=False)


def _read_http_spec(entry: CheckedObject, kind: Literal["http", "sse"]) -> HttpSpec | None:
    url = entry.text("url", required=True)
    headers = entry.text_map("headers")
    provider = entry.text("authProviderId")
    if url is None:
        return None
    return HttpSpec(url=url, headers=headers, auth_provider_id=provider, type=kind)


def _read_stdio_spec(entry: CheckedObject) -> StdioSpec | None:
    command = entry.text("command", required=True)
    args = entry.texts("args")
    env = entry.text_map("env")
    cwd = entry.text("cwd")
    if command is None:
        return None
    return StdioSpec(command=command, args=args or (), env=env, cwd=cwd)
