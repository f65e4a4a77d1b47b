"""Stable hashes of tool definitions (for locks and approvals) and of server entries (for storage keys)."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import Definition

__all__ = ["definition_hash", "entry_hash", "hashed_fields"]


def definition_hash(definition: Definition) -> str:
    """Return the SHA-256 of everything that a model or a person decides by, as 64 hexadecimal digits.

    Covers name, title, description, both schemas and annotations. The order of object keys does not matter,
    the order of arrays does; integers of any size are exact. Equal in every process, version and platform.
    """
    return sha256(_canonical(hashed_fields(definition))).hexdigest()


def hashed_fields(definition: Definition) -> dict[str, Any]:
    """Return the fields of a definition that its hash covers, as servers name them."""
    return {
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "inputSchema": definition.input_schema,
        "outputSchema": definition.output_schema,
        "annotations": definition.annotations,
    }


def entry_hash(server: Server, key: bytes = b"") -> str:
    """Return the HMAC-SHA-256 of the parts of a server's entry that can affect its tools, including secrets.

    Timeouts, labels, filters and trust are excluded: changing them keeps the stored catalogue.
    """
    transport: dict[str, Any]
    if isinstance(server.transport, HttpSpec):
        transport = {
            "url": server.transport.url,
            "headers": dict(server.transport.headers),
            "query": dict(server.transport.query),
            "authProviderId": server.transport.auth_provider_id,
        }
    else:
        transport = {
            "command": server.transport.command,
            "args": list(server.transport.args),
            "env": dict(server.transport.env),
            "cwd": server.transport.cwd,
        }
    oauth = server.oauth
    text = _canonical(
        {
            "id": server.id,
            "type": server.transport.type,
            "transport": transport,
            "protocol": server.protocol,
            "oauth": oauth
            and {
                "clientId": oauth.client_id,
                "scopes": list(oauth.scopes),
                "resource": oauth.resource,
                "grant": oauth.grant,
            },
        }
    )
    return hmac.digest(key, text, "sha256").hex()


def _canonical(value: Mapping[str, Any]) -> bytes:
    # json and not orjson: lock files outlive versions of both, and the standard library writes floats as
    # Python's repr does, while orjson may change its float format in any release.
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode("ascii")
