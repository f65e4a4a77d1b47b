"""``/ui/catalog``: well-known servers. Admins add those with an address; programs are added by command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fastapi import Request, Response

from toolyard.config.known_servers import KnownServer
from toolyard.registry.errors import Invalid
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import AddedServer, read_pasted_draft
from toolyard.web.ui.account.connect import build_program_words
from toolyard.web.ui.components.forms import field_errors, read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.registry.form import FormNotice
from toolyard.web.ui.registry.new_server import OWN_INSTANCE, NewServerFormDep

__all__ = ["router"]

router = Routes()

_VALUE_PREFIX = "value-"


@dataclass(frozen=True, slots=True)
class CatalogPage:
    """Content of the page."""

    servers: Sequence[KnownServer]
    query: str
    added: Mapping[str, AddedServer]
    """Servers that are there already, by their id in the catalogue."""
    program: str
    """Command that runs this Toolyard."""
    pasted: str = ""
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    labels: ClassVar[Mapping[str, str]] = {"text": "URL or entry", "entry": "URL or entry"}


@router.get("/ui/catalog")
async def show_catalog(
    request: Request,
    me: deps.CurrentUser,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
    q: str = "",
) -> Response:
    """Show the servers that match the search."""
    page = CatalogPage(
        catalog.search(q), q, await catalog.find_added(), shlex.join(build_program_words(config))
    )
    return render_page(request, "catalog.html", page=page)


@router.post("/ui/catalog")
async def add_pasted_server(
    request: Request,
    me: deps.AdminUser,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
    new_server: NewServerFormDep,
) -> Response:
    """Add the server of a pasted URL or entry."""
    text = (await read_submitted_form(request)).text("text")
    carried = {OWN_INSTANCE: "yes"}
    try:
        found = read_pasted_draft(text)
    except Invalid as error:
        page = CatalogPage(
            catalog.search(""),
            "",
            await catalog.find_added(),
            shlex.join(build_program_words(config)),
            text,
            field_errors(error, CatalogPage.labels),
        )
        return render_page(request, "catalog.html", status=422, page=page)
    if found.notes:
        notice = FormNotice("Check the imported values", "\n".join(found.notes), "")
        return await new_server.show(request, found.draft, carried, notice=notice)
    return await new_server.submit(request, me, found.draft, carried)


@router.post("/ui/catalog/{known_id}")
async def add_known_server(
    request: Request,
    me: deps.AdminUser,
    known_id: str,
    catalog: deps.ServerCatalogDep,
    new_server: NewServerFormDep,
) -> Response:
    """Add a server of the catalogue, with the values that its address needs."""
    form = await read_submitted_form(request)
    values = {name.removeprefix(_VALUE_PREFIX): form.text(name) for name in form.names()}
    draft = catalog.build_draft(catalog.get(known_id), values)
    return await new_server.submit(request, me, draft, {OWN_INSTANCE: "yes"})
