"""``/ui/catalog``: well-known servers. Admins add those with an address; programs are added by command.

Admins can search a public registry as well, by a button: a page that is opened contacts nobody.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import Request, Response

from toolyard.config.known_servers import KnownServer
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import ServerError
from toolyard.registry.errors import Invalid
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import ServerCatalog, read_pasted_draft
from toolyard.web.ui.account.connect import build_program_words
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import one_line, sentence
from toolyard.web.ui.registry.form import (
    OWN_INSTANCE,
    PASTED_TEXT_LABELS,
    FormNotice,
    NewServerFormDep,
    pasted_text_errors,
)

__all__ = ["router"]

router = Routes()

_VALUE_PREFIX = "value-"
_MAX_QUERY_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class PublicSearch:
    """Result of a search of the public registry."""

    servers: Sequence[KnownServer] = ()
    failure: ServerError | None = None


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
    form: forms.FormDep,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
    new_server: NewServerFormDep,
) -> Response:
    """Add the server of a pasted URL or entry."""
    text, carried = form.text("text"), {OWN_INSTANCE: "yes"}
    try:
        found = read_pasted_draft(text)
    except Invalid as error:
        return await _render_catalog(request, catalog, config, "", text, pasted_text_errors(error))
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
    public: PublicSearch | None = None,
) -> Response:
    return responses.render_page(
        request,
        "catalog.html",
        servers=catalog.search(query),
        query=query,
        # Servers that are there already, by their id in the catalogue.
        added_servers=await catalog.find_added(),
        add_command=partial(_build_add_command, build_program_words(config)),
        pasted=pasted,
        errors=errors,
        labels=PASTED_TEXT_LABELS,
        has_public_registry=catalog.public_registry is not None,
        public=public,
    )


def _build_add_command(program: Sequence[str], known_id: str) -> str:
    return shlex.join([*program, "add", known_id])


# No server of the catalogue has an id with an underscore at its start.


@router.post("/ui/catalog/_public")
async def search_public_registry(
    request: Request,
    me: deps.AdminUser,
    form: forms.FormDep,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
) -> Response:
    """Show the servers that match the search, with those of the public registry."""
    query = form.text("q")[:_MAX_QUERY_CHARACTERS].strip()
    public = PublicSearch()
    if catalog.public_registry is not None and query:
        try:
            public = PublicSearch(await catalog.public_registry.search(query))
        except ServerError as error:
            public = PublicSearch(failure=error)
    return await _render_catalog(request, catalog, config, query, public=public)


@router.post("/ui/catalog/_public/add")
async def show_public_server(
    request: Request,
    me: deps.AdminUser,
    form: forms.FormDep,
    catalog: deps.ServerCatalogDep,
    config: deps.ConfigDep,
    new_server: NewServerFormDep,
) -> Response:
    """Show the form of a new server, filled with what the public registry says about one."""
    name = form.text("name")
    try:
        found = await catalog.find_public_server(name)
    except ServerError as error:
        return await _render_catalog(request, catalog, config, name, public=PublicSearch(failure=error))
    variables = found.address_variables
    draft = catalog.build_draft(found, {each.name: each.name for each in variables})
    text = "Anyone can publish in a public registry. Make sure that the URL belongs to the right service."
    hint = " ".join(f"In the URL, replace {each.name}: {sentence(each.purpose)}" for each in variables)
    notice = FormNotice("Toolyard has not checked this server", text, one_line(hint, 500))
    return await new_server.show(draft, {OWN_INSTANCE: "yes"}, notice=notice)


@router.post("/ui/catalog/{known_id}")
async def add_known_server(
    me: deps.AdminUser,
    known_id: str,
    form: forms.FormDep,
    catalog: deps.ServerCatalogDep,
    new_server: NewServerFormDep,
) -> Response:
    """Add a server of the catalogue, with the values that its address needs."""
    values = {name.removeprefix(_VALUE_PREFIX): form.text(name) for name in form.names()}
    draft = catalog.build_draft(catalog.get(known_id), values)
    return await new_server.submit(draft, {OWN_INSTANCE: "yes"})
