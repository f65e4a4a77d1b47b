"""Results that are kept, as resources: ``toolyard://results/{handle}``, whole or in parts.

They are in no list: each is named by the result that it belongs to, is of use to that conversation alone, and
would make every list another one with every long result. A URI that names nothing of the caller's is left to
the servers, among which may be another Toolyard; so one that was made up gets the answer of any unknown one.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from toolyard.gateway.caller_view import Offering
from toolyard.gateway.client_request import Request, as_object
from toolyard.results.partial_read import read_range
from toolyard.results.result_store import Kept
from toolyard.types.result import Media, Result

__all__ = ["link", "media_link", "meta_links", "read_kept", "takes_links", "where"]

TEXT = "text/plain"
_SINCE = "2025-06-18"
"""The first revision whose results hold links to resources."""
_URI = re.compile(
    r"toolyard://results/(?P<handle>r[0-9a-f]{20})"
    r"(?:\?offset=(?P<offset>[0-9]{1,12}))?(?:[?&]length=(?P<length>[0-9]{1,12}))?"
)
_MOST = 8_000_000
"""Characters, or bytes, of one answer. What is longer is read in parts."""
_NEXT, _TOTAL = "toolyard/next", "toolyard/total"


def takes_links(request: Request) -> bool:
    """Whether the client's revision knows links; one without a session says nothing of its revision."""
    return request.modern or (request.session is not None and request.session.version >= _SINCE)


def where(handle: str, *, tool: bool) -> str:
    """How what has a handle is read; ``tool``: the client has ``result_read``."""
    uri = _uri(handle)
    other = f', and so does result_read with handle "{handle}"' if tool else ""
    return f"resources/read of {uri} reads all, of {uri}?offset=0&length=64000 a part{other}"


def link(handle: str, tool: str, mime: str = TEXT, size: int | None = None) -> dict[str, Any]:
    """The content block that names it; ``size`` in bytes."""
    found = {"type": "resource_link", "uri": _uri(handle), "name": f"result of {tool}", "mimeType": mime}
    return found if size is None else {**found, "size": size}


def media_link(media: Media, tool: str) -> dict[str, Any]:
    """The same for media that are kept."""
    return link(media.handle or "", tool, media.mime, media.size)


def meta_links(result: Result, request: Request) -> list[dict[str, Any]]:
    """Those to what is kept of a call through the meta tools."""
    if not takes_links(request):
        return []
    name = str(as_object(request.params.get("arguments")).get("name"))
    handle = as_object(result.structured).get("handle")
    links = [link(handle, name)] if isinstance(handle, str) else []
    return [*links, *(media_link(each, name) for each in result.media if each.handle is not None)]


async def read_kept(uri: object, offering: Offering) -> dict[str, Any] | None:
    """The answer to ``resources/read``; None for what is no result that this caller may read."""
    found = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if found is None:
        return None
    kept = await offering.parts.calls.handles(offering.principal).read(found["handle"])
    if kept is None or not offering.parts.calls.covers(kept.server, offering.caller):
        return None
    length = min(int(found["length"] or _MOST), _MOST)
    return {
        "contents": [{"uri": found[0], **_contents(found["handle"], kept, int(found["offset"] or 0), length)}]
    }


def _contents(handle: str, kept: Kept, offset: int, length: int) -> dict[str, Any]:
    """Text as text, fenced where its server is not trusted; bytes as they came."""
    if isinstance(kept.body, str):
        part = read_range(kept, offset, length)
        found: dict[str, Any] = {"mimeType": TEXT, "text": part.text}
        total, after = part.total, part.next_offset
    else:
        data = kept.body[offset : offset + length]
        found = {"mimeType": kept.mime, "blob": base64.b64encode(data).decode()}
        total = len(kept.body)
        after = offset + len(data) if offset + len(data) < total else None
    if after is not None:
        found["_meta"] = {_NEXT: f"{_uri(handle)}?offset={after}&length={length}", _TOTAL: total}
    return found


def _uri(handle: str) -> str:
    return f"toolyard://results/{handle}"
