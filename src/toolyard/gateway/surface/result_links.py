"""Stored results as resources: ``toolyard://results/{handle}``, in full or in parts.

They are not listed: each is named by its result, is useful in that conversation only, and would change every
list. A URI that is not a result of the caller is left to the servers, one of which may be another Toolyard.
An invented handle therefore gets the answer of any unknown URI.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.client_request import ClientRequest
from toolyard.protocol.jsonrpc import as_object
from toolyard.results.partial_read import read_range
from toolyard.results.result_store import StoredResult
from toolyard.types.tool import Media, Result

__all__ = [
    "describe_read",
    "make_media_link",
    "make_meta_tool_links",
    "make_result_link",
    "read_stored_result",
]

TEXT_MEDIA_TYPE = "text/plain"
_RESULT_URI = re.compile(
    r"toolyard://results/(?P<handle>r[0-9a-f]{20})"
    r"(?:\?offset=(?P<offset>[0-9]{1,12}))?(?:[?&]length=(?P<length>[0-9]{1,12}))?"
)
_MAX_READ_LENGTH = 8_000_000
"""Maximum characters or bytes of one answer. Longer content is read in parts."""
_NEXT_META_KEY, _TOTAL_META_KEY = "toolyard/next", "toolyard/total"


def describe_read(handle: str, *, has_result_read: bool) -> str:
    """Return how to read a stored result; ``has_result_read``: the client has the meta tool for it."""
    uri = _result_uri(handle)
    other = f', and so does result_read with handle "{handle}"' if has_result_read else ""
    return f"resources/read of {uri} reads all, of {uri}?offset=0&length=64000 a part{other}"


def make_result_link(
    handle: str, tool: str, mime: str = TEXT_MEDIA_TYPE, size: int | None = None
) -> dict[str, Any]:
    """Return the content block with the link; ``size`` in bytes."""
    found = {
        "type": "resource_link",
        "uri": _result_uri(handle),
        "name": f"result of {tool}",
        "mimeType": mime,
    }
    return found if size is None else {**found, "size": size}


def make_media_link(media: Media, tool: str) -> dict[str, Any]:
    """Return the link to stored media."""
    return make_result_link(media.handle or "", tool, media.mime, media.size)


def make_meta_tool_links(result: Result, request: ClientRequest) -> list[dict[str, Any]]:
    """Return the links to stored parts of a call through the meta tools."""
    if not request.supports_resource_links:
        return []
    name = str(as_object(request.params.get("arguments")).get("name"))
    handle = as_object(result.structured).get("handle")
    links = [make_result_link(handle, name)] if isinstance(handle, str) else []
    return [*links, *(make_media_link(each, name) for each in result.media if each.handle is not None)]


async def read_stored_result(uri: object, view: CallerView) -> dict[str, Any] | None:
    """Return the answer to ``resources/read``, or None if the URI is not a result of this caller."""
    found = _RESULT_URI.fullmatch(uri) if isinstance(uri, str) else None
    if found is None:
        return None
    kept = await view.gateway.call_path.result_store(view.principal).read(found["handle"])
    if kept is None or not view.gateway.call_path.is_in_token_scope(kept.server, view.caller):
        return None
    length = min(int(found["length"] or _MAX_READ_LENGTH), _MAX_READ_LENGTH)
    return {
        "contents": [
            {"uri": found[0], **_build_contents(found["handle"], kept, int(found["offset"] or 0), length)}
        ]
    }


def _build_contents(handle: str, kept: StoredResult, offset: int, length: int) -> dict[str, Any]:
    """Return the contents: text as text, marked if its server is untrusted, and bytes as a blob."""
    if isinstance(kept.body, str):
        part = read_range(kept, offset, length)
        found: dict[str, Any] = {"mimeType": TEXT_MEDIA_TYPE, "text": part.text}
        total, after = part.total, part.next_offset
    else:
        data = kept.body[offset : offset + length]
        found = {"mimeType": kept.mime, "blob": base64.b64encode(data).decode()}
        total = len(kept.body)
        after = offset + len(data) if offset + len(data) < total else None
    if after is not None:
        found["_meta"] = {
            _NEXT_META_KEY: f"{_result_uri(handle)}?offset={after}&length={length}",
            _TOTAL_META_KEY: total,
        }
    return found


def _result_uri(handle: str) -> str:
    return f"toolyard://results/{handle}"
