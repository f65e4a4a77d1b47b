"""Files for pages. Their addresses name their contents, so browsers may keep them for good."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from toolyard.web.ui.components.assets import STATIC_FOLDER, static_url

__all__ = ["VersionedStaticFiles"]


class VersionedStaticFiles(StaticFiles):
    """The folder of the pages' files."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC_FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code in (200, 304):
            asked = parse_qs(scope["query_string"].decode("latin-1")).get("v")
            named = asked and static_url(path).endswith(f"?v={asked[0]}")
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if named else "no-cache"
        return response
