"""``/ui/catalog``: well-known servers. Admins add those with an address; programs are added by command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from fastapi import Request, Response

from toolyard.core.current_config import CurrentConfig
from toolyard.registry.errors import Invalid
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import ServerCatalog, read_pasted_draft
from toolyard.web.ui.account.connect import build_program_words
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.registry.form import OWN_INSTANCE, FormNotice, NewServerFormDep

__all__ = ["router"]

router = Routes()

_VALUE_PREFIX = "value-"
_LABELS = {"text": "URL or entry", "entry": "URL or entry", "url": "URL"}


@router.get("/ui/catalog")
async def show_catalog(
    request: Request,
    me: deps.CurrentUser,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
    q: str = "",
) -> Response:
    """Show the servers that match the search."""
    return await _render_catalog(request, catalog, config, q)


@router.post("/ui/catalog")
async def add_pasted_server(
    request: Request,
    me: deps.AdminUser,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
    new_server: NewServerFormDep,
) -> Response:
    """Add the server of a pasted URL or entry."""
    text = (await forms.read_form(request)).text("text")
    carried = {OWN_INSTANCE: "yes"}
    try:
        found = read_pasted_draft(text)
    except Invalid as error:
        errors = forms.field_errors(error, _LABELS)
        return await _render_catalog(request, catalog, config, "", text, errors)
    if found.notes:
        notice = FormNotice("Check the imported values", "\n".join(found.notes), "")
        return await new_server.show(found.draft, carried, notice=notice)
    return await new_server.submit(found.draft, carried)


async def _render_catalog(
    request: Request,
    catalog: ServerCatalog,
    config: CurrentConfig,
    query: str,
    pasted: str = "",
    errors: Mapping[str, str] | None = None,
) -> Response:
    return responses.render_page(
        request,
        "catalog.html",
        status=422 if errors else 200,
        servers=catalog.search(query),
        query=query,
        # Servers that are there already, by their id in the catalogue.
        added_servers=await catalog.find_added(),
        program=shlex.join(build_program_words(config)),
        pasted=pasted,
        errors=errors or {},
        labels=_LABELS,
    )


@router.post("/ui/catalog/{known_id}")
async def add_known_server(
    request: Request,
    me: deps.AdminUser,
    known_id: str,
    catalog: deps.ServerCatalogDep,
    new_server: NewServerFormDep,
) -> Response:
    """Add a server of the catalogue, with the values that its address needs."""
    form = await forms.read_form(request)
    values = {name.removeprefix(_VALUE_PREFIX): form.text(name) for name in form.names()}
    draft = catalog.build_draft(catalog.get(known_id), values)
    return await new_server.submit(draft, {OWN_INSTANCE: "yes"})
