"""Stable hashes: of a definition, for locks and approvals; of a server's entry, for storage."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import Definition

__all__ = ["definition_hash", "entry_hash"]


def definition_hash(definition: Definition) -> str:
    """SHA-256 over what a model or a person decides by, as 64 hexadecimal digits.

    Covers name, title, description, both schemas and annotations. The order of keys does not matter, that of
    arrays does; integers of any size are exact. The same in every process, version and platform.
    """
    return _hash_json(
        {
            "name": definition.name,
            "title": definition.title,
            "description": definition.description,
            "inputSchema": definition.input_schema,
            "outputSchema": definition.output_schema,
            "annotations": definition.annotations,
        }
    )


def entry_hash(server: Server, key: bytes = b"") -> str:
    """HMAC-SHA-256 over the part of a server's entry that can change which tools it has, secrets included.

    Timeouts, labels, filters and trust are not in it: changing them keeps the stored catalogue.
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


def _hash_json(value: Mapping[str, Any]) -> str:
    return sha256(_canonical(value)).hexdigest()


def _canonical(value: Mapping[str, Any]) -> bytes:
    # The standard library and not orjson: lock files outlive versions, and the way a float is written by
    # orjson is its own affair, while the standard library's is that of Python itself.
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode("ascii")
