"""``/ui/docs``: the documentation of this version. Strangers may read it: it is the same for all."""

from __future__ import annotations

import asyncio
import posixpath
from functools import cache
from pathlib import Path

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse

import toolyard
from toolyard.web.access.authentication import find_user
from toolyard.web.rendering.documents import RenderedDocument, render_document
from toolyard.web.routes import Routes
from toolyard.web.ui.components import responses

__all__ = ["list_document_files", "render_stored_document", "router"]

router = Routes()

_INDEX = "README"
_URL = "/ui/docs"
_UNPACKAGED_FOLDERS = ("decisions", "screenshots")
"""Folders of the documentation that are not part of the package."""


@router.get("/ui/docs")
async def show_document_index(request: Request) -> Response:
    """Show the list of pages."""
    return await _show(request, _INDEX)


@router.get("/ui/docs/{name:path}")
async def show_document(request: Request, name: str) -> Response:
    """Show one page, or send a picture of one."""
    file = list_document_files().get(name)
    if file is not None and file.suffix == ".svg":
        return FileResponse(file, media_type="image/svg+xml")
    return await _show(request, name)


async def _show(request: Request, name: str) -> Response:
    if name not in list_document_files():
        raise HTTPException(404)
    await find_user(request)
    # Long pages take a tenth of a second, the first time.
    document = await asyncio.to_thread(render_stored_document, name)
    return responses.render_page(request, "document.html", document=document, is_index=name == _INDEX)


@cache
def list_document_files() -> dict[str, Path]:
    """Return the files of the documentation by the rest of their address: pages by their path without the
    suffix, pictures with it. Nothing else can be requested."""
    package = Path(toolyard.__file__).parent
    # A wheel has them in the package, a checkout beside the sources.
    folder = next(each for each in (package / "docs", package.parents[1] / "docs") if each.is_dir())
    paths = [(path, path.relative_to(folder)) for path in (*folder.rglob("*.md"), *folder.rglob("*.svg"))]
    return {
        (relative if path.suffix == ".svg" else relative.with_suffix("")).as_posix(): path
        for path, relative in paths
        if relative.parts[0] not in _UNPACKAGED_FOLDERS
    }


@cache
def render_stored_document(name: str) -> RenderedDocument:
    """Return a page as HTML."""

    def resolve_link(target: str) -> str | None:
        if target.startswith(("https://", "http://", "#")):
            return target
        path, _, anchor = target.partition("#")
        page = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)).removesuffix(".md")
        if page not in list_document_files():
            return None
        return (_URL if page == _INDEX else f"{_URL}/{page}") + (f"#{anchor}" if anchor else "")

    return render_document(list_document_files()[name].read_text("utf-8"), resolve_link)
