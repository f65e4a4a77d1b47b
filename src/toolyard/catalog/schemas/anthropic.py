"""Requirements of Anthropic's Messages API for input schemas, beyond JSON Schema draft 2020-12."""

from __future__ import annotations

import re

from toolyard.catalog.schemas.schema_merge import Schema, printable_excerpt

__all__ = ["anthropic_schema"]

_ALLOWED_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def anthropic_schema(root: Schema) -> tuple[Schema, list[str]]:
    """Return the schema without properties whose names make the API refuse the whole request."""
    refused = [name for name in root["properties"] if not _ALLOWED_PROPERTY_NAME.fullmatch(name)]
    if not refused:
        return root, []
    properties = {name: schema for name, schema in root["properties"].items() if name not in refused}
    result = {**root, "properties": properties}
    if "required" in root:
        result["required"] = [name for name in root["required"] if name not in refused]
    return result, [
        f"the argument '{printable_excerpt(name)}' was left out: the API refuses its name" for name in refused
    ]
