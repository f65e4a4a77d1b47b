"""Results for clients of older revisions, which support fewer kinds of content than servers may send.

A client that receives an unknown kind of content loses the whole result. So a resource link becomes text,
audio becomes an embedded resource, and structured content that is not an object is replaced by text, unless
the result has a text already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.gateway.incoming_request import ClientRequest
from toolyard.results.readable_json import to_readable_json
from toolyard.types.json_values import list_or_empty, object_or_empty

__all__ = ["downgrade_prompt", "downgrade_result", "needs_downgrade"]

_AUDIO_SINCE_VERSION = "2025-03-26"
"""The first revision with audio."""


def needs_downgrade(result: Mapping[str, Any], request: ClientRequest) -> bool:
    """Return whether this client may be unable to read the result of a tool; nearly always False."""
    return not request.supports_resource_links or _has_unreadable_structure(result, request)


def downgrade_result(result: dict[str, Any], request: ClientRequest) -> dict[str, Any]:
    """Return the result of a tool as this client can read it. Takes long for a large result."""
    if _has_unreadable_structure(result, request):
        result = _drop_structured_content(result)
    content = result.get("content")
    if not isinstance(content, list) or request.supports_resource_links:
        return result
    return {**result, "content": [_downgrade_block(each, request) for each in cast("list[Any]", content)]}


def downgrade_prompt(result: dict[str, Any], request: ClientRequest) -> dict[str, Any]:
    """Return the messages of a prompt as this client can read them."""
    messages = result.get("messages")
    if request.supports_resource_links or not isinstance(messages, list):
        return result
    return {**result, "messages": [_downgrade_message(each, request) for each in cast("list[Any]", messages)]}


def _has_unreadable_structure(result: Mapping[str, Any], request: ClientRequest) -> bool:
    return request.era.structured_content_is_object and type(result.get("structuredContent", {})) is not dict


def _drop_structured_content(result: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in result.items() if key != "structuredContent"}
    structured, content = result["structuredContent"], rest.get("content")
    blocks = list_or_empty(content)
    if structured is None or any(object_or_empty(each).get("type") == "text" for each in blocks):
        return rest
    return {**rest, "content": [*blocks, {"type": "text", "text": to_readable_json(structured)}]}


def _downgrade_message(message: Any, request: ClientRequest) -> Any:
    found = object_or_empty(message)
    return (
        {**found, "content": _downgrade_block(found["content"], request)} if "content" in found else message
    )


def _downgrade_block(block: Any, request: ClientRequest) -> Any:
    found = object_or_empty(block)
    kind = found.get("type")
    if kind == "resource_link":
        return {"type": "text", "text": to_readable_json(found)}
    if kind == "audio" and request.version < _AUDIO_SINCE_VERSION:
        inner = {"uri": "toolyard://sound", "mimeType": found.get("mimeType"), "blob": found.get("data")}
        return {"type": "resource", "resource": inner}
    return block
