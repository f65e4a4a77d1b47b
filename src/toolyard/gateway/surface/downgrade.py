"""Results for clients of older revisions, which take less than servers may send.

A client that meets a kind of content which its revision does not have loses the whole result. So a link to a
resource is told in words, a sound is a resource, and structured content that is no object is left to the
words beside it, or told in words where there are none.
"""

from __future__ import annotations

from typing import Any, cast

from toolyard.gateway.client_request import Request, as_object
from toolyard.gateway.surface.result_links import takes_links
from toolyard.results.readable_json import readable

__all__ = ["told_prompt", "told_result"]

_SOUND_SINCE = "2025-03-26"
"""The first revision whose contents may be sounds. A client that never said its revision may know them."""


def told_result(result: dict[str, Any], request: Request) -> dict[str, Any]:
    """The result of a tool as this client takes it: the result itself, in nearly all cases."""
    if request.modern:
        return result
    if "structuredContent" in result and type(result["structuredContent"]) is not dict:
        result = _without_structure(result)
    content = result.get("content")
    if takes_links(request) or not isinstance(content, list):
        return result
    return {**result, "content": [_told(each, request) for each in cast("list[Any]", content)]}


def told_prompt(result: dict[str, Any], request: Request) -> dict[str, Any]:
    """The same for the messages of a prompt."""
    messages = result.get("messages")
    if takes_links(request) or not isinstance(messages, list):
        return result
    return {**result, "messages": [_message(each, request) for each in cast("list[Any]", messages)]}


def _without_structure(result: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in result.items() if key != "structuredContent"}
    structured, content = result["structuredContent"], rest.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    if structured is None or any(as_object(each).get("type") == "text" for each in blocks):
        return rest
    return {**rest, "content": [*blocks, {"type": "text", "text": readable(structured)}]}


def _message(message: Any, request: Request) -> Any:
    found = as_object(message)
    return {**found, "content": _told(found["content"], request)} if "content" in found else message


def _told(block: Any, request: Request) -> Any:
    found = as_object(block)
    kind = found.get("type")
    if kind == "resource_link":
        return {"type": "text", "text": readable(found)}
    if kind == "audio" and request.session is not None and request.session.version < _SOUND_SINCE:
        inner = {"uri": "toolyard://sound", "mimeType": found.get("mimeType"), "blob": found.get("data")}
        return {"type": "resource", "resource": inner}
    return block
