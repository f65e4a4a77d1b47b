"""What the Messages API asks of an input schema beyond being an object of draft 2020-12."""

from __future__ import annotations

import re

from toolyard.catalog.schemas.schema_merge import Schema, printable_excerpt

__all__ = ["anthropic_schema"]

_ALLOWED_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def anthropic_schema(root: Schema) -> tuple[Schema, list[str]]:
    """The schema without the arguments whose names the API refuses, together with the whole request."""
    refused = [name for name in root["properties"] if not _ALLOWED_PROPERTY_NAME.fullmatch(name)]
    if not refused:
        return root, []
    properties = {name: schema for name, schema in root["properties"].items() if name not in refused}
    result = {**root, "properties": properties}
    if "required" in root:
        result["required"] = [name for name in root["required"] if name not in refused]
    return result, [
        f"the argument '{printable_excerpt(name)}' was left out: its name is refused" for name in refused
    ]
