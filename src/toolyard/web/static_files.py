"""Static files of the pages: scripts, style sheets, fonts and icons."""

from __future__ import annotations

import gzip
import hashlib
from mimetypes import guess_type

from fastapi import Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from toolyard.web.middleware.response_body import accepts_gzip
from toolyard.web.ui.components import responses

__all__ = ["VersionedStaticFiles"]

_MAX_CACHED_FILES = 100
_CACHED_FOR_A_YEAR = "public, max-age=31536000, immutable"


class VersionedStaticFiles(StaticFiles):
    """Static files of the pages, cached for a year if the URL names the current version.

    Such a file is sent from memory, compressed once: a page waits for several of them. Files requested
    without the right ``?v=`` are revalidated each time, so that an old page never pins an old script.
    """

    def __init__(self) -> None:
        super().__init__(directory=responses.STATIC_FOLDER)
        self._responses: dict[str, Response] = {}

    @property
    def cached_count(self) -> int:
        """Number of files in memory."""
        return len(self._responses)

    async def get_response(self, path: str, scope: Scope) -> Response:
        query, headers = scope["query_string"].decode("latin-1"), Headers(scope=scope)
        url = f"{path}?{query}"
        is_plain_get = scope["method"] == "GET" and not set(headers) & {"range", "if-none-match"}
        if url in self._responses and is_plain_get and accepts_gzip(headers):
            return self._responses[url]
        if "-" in path:
            return self._join_files(path, url)
        response = await super().get_response(path, scope)
        if response.status_code in (200, 304):
            is_current = responses.static_url(path).endswith(f"/{url}")
            response.headers["Cache-Control"] = _CACHED_FOR_A_YEAR if is_current else "no-cache"
            if is_current and response.status_code == 200:
                self._cache(path, url, response)
        return response

    def _join_files(self, path: str, url: str) -> Response:
        """Return several files as one, which the pages request together."""
        try:
            content = responses.read_static_files(path)
        except FileNotFoundError:
            raise HTTPException(404) from None
        is_current = url.endswith(f"?v={hashlib.sha256(content).hexdigest()[:12]}")
        headers = {"cache-control": _CACHED_FOR_A_YEAR if is_current else "no-cache"}
        response = Response(content, headers=headers, media_type=guess_type(path)[0])
        if is_current:
            self._cache(path, url, response)
        return response

    def _cache(self, path: str, url: str, response: Response) -> None:
        # Anybody can join the files in any order.
        if len(self._responses) < _MAX_CACHED_FILES:
            self._responses[url] = _compress_file(path, response)


def _compress_file(path: str, response: Response) -> Response:
    headers = {name: response.headers[name] for name in ("content-type", "cache-control")}
    headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
    return Response(gzip.compress(responses.read_static_files(path), mtime=0), headers=headers)
