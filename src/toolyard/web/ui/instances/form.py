"""Creating an instance, in two steps (which server, then how), and editing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from toolyard.errors import ToolyardError
from toolyard.registry.field_validation import slug_fault
from toolyard.registry.form_input import InstanceDraft
from toolyard.types.registry import AuthKind, Instance, RegistryServer
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.services import Site
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.forms import FORM_ERRORS, Posted, field_errors, posted
from toolyard.web.ui.components.paging import Pages, page_of
from toolyard.web.ui.components.render import render

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(visitor)]

_LABELS = {
    "slug": "Slug",
    "name": "Name",
    "choice_id": "Way to sign in",
    "value": "Value",
    "tool_filter": "Tools",
}
_PER_PAGE = 60


@dataclass(frozen=True, slots=True)
class ServersPage:
    """The first step: which server?"""

    servers: Sequence[RegistryServer]
    counts: Mapping[str, int]
    """How many instances this person has of each."""
    pages: Pages
    query: str
    any_servers: bool


@dataclass(frozen=True, slots=True)
class InstanceForm:
    """The form. ``errors`` by field; a value that was given is never sent back."""

    server: RegistryServer
    action: str
    back: str
    slug: str
    name: str
    choice_id: str
    names: str
    """What tools are called, with ``{slug}`` where the slug stands."""
    instance: Instance | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    labels = _LABELS

    def has_value(self, choice_id: str) -> bool:
        """Whether a value is stored for this choice."""
        return (
            self.instance is not None
            and self.instance.value is not None
            and self.instance.choice_id == choice_id
        )


@router.get("/ui/mcp/new")
async def new_instance(request: Request, me: Me, server: str = "", q: str = "", page: str = "1") -> Response:
    """Choose a server, then fill in the form."""
    site: Site = request.app.state.site
    if not server:
        return await _choose(request, site, me, q, page)
    chosen = await site.registry.server(server)
    if not chosen.enabled:
        return go(
            "/ui/mcp/new", f"“{chosen.name}” is disabled.", kind="bad", hint="ask an admin to enable it"
        )
    slug = await site.registry.propose_slug(me.user.id, chosen.url)
    form = InstanceForm(
        server=chosen,
        action=f"/ui/mcp/new?server={chosen.id}",
        back="/ui/mcp/new",
        slug=slug,
        name=chosen.name,
        choice_id=chosen.choices[0].id if chosen.choices else "",
        names=site.settings.instance_naming_template,
    )
    return render(request, "instance_form.html", page=form)


async def _choose(request: Request, site: Site, me: Visitor, query: str, page: str) -> Response:
    words = query.casefold().split()
    offered = [server for server in await site.registry.servers() if server.enabled]
    found = [
        server
        for server in offered
        if all(word in f"{server.name}\n{server.url}\n{server.description}".casefold() for word in words)
    ]
    counts: dict[str, int] = {}
    for _, server in await site.registry.instances(me.user.id):
        counts[server.id] = counts.get(server.id, 0) + 1
    shown, pages = page_of(found, page, "/ui/mcp/new", {"q": query}, per_page=_PER_PAGE)
    return render(request, "instance_new.html", page=ServersPage(shown, counts, pages, query, bool(offered)))


@router.post("/ui/mcp/new")
async def create_instance(request: Request, me: Me, server: str = "") -> Response:
    """Create it; the page that follows connects."""
    site: Site = request.app.state.site
    form = await posted(request)
    chosen = await site.registry.server(server)
    draft = _draft(form, chosen, None)
    try:
        made = await site.registry.create_instance(me.user.id, draft)
    except FORM_ERRORS as error:
        page = InstanceForm(
            server=chosen,
            action=f"/ui/mcp/new?server={chosen.id}",
            back="/ui/mcp/new",
            slug=draft.slug or "",
            name=draft.name or "",
            choice_id=draft.choice_id or "",
            names=site.settings.instance_naming_template,
            errors=_errors(error, draft),
        )
        return render(request, "instance_form.html", status=422, page=page)
    await site.enter(me)
    await site.changed(me, "instance.create", made.id, slug=made.slug, server=chosen.id)
    choice = chosen.choice(made.choice_id)
    leaving = choice is not None and choice.kind is AuthKind.OAUTH
    return go(f"/ui/mcp/{made.id}", None if leaving else f"“{made.name}” is created.")


@router.get("/ui/mcp/slug")
async def check_slug(request: Request, me: Me, slug: str = "", of: str = "") -> Response:
    """What is wrong with a slug, while it is typed; nothing where it is fine."""
    site: Site = request.app.state.site
    if (fault := slug_fault(slug.strip())) is not None:
        return PlainTextResponse(f"Slug {fault}.")
    for instance, _ in await site.registry.instances(me.user.id):
        if instance.id != of and instance.slug.casefold() == slug.strip().casefold():
            return PlainTextResponse(f"You have an instance with this slug: “{instance.name}”.")
    return PlainTextResponse("")


@router.get("/ui/mcp/{instance_id}/edit")
async def edit_instance(request: Request, me: Me, instance_id: str) -> Response:
    """The form of one that there is."""
    site: Site = request.app.state.site
    instance, server = await site.registry.instance(me.user.id, instance_id)
    page = _edit_form(site, instance, server, InstanceDraft(slug=instance.slug, name=instance.name))
    return render(request, "instance_form.html", page=page)


@router.post("/ui/mcp/{instance_id}/edit")
async def save_instance(request: Request, me: Me, instance_id: str) -> Response:
    """Save it. An empty value keeps the one that is stored."""
    site: Site = request.app.state.site
    form = await posted(request)
    instance, server = await site.registry.instance(me.user.id, instance_id)
    draft = _draft(form, server, instance)
    try:
        saved = await site.registry.edit_instance(me.user.id, instance_id, draft)
    except FORM_ERRORS as error:
        page = _edit_form(site, instance, server, draft, _errors(error, draft))
        return render(request, "instance_form.html", status=422, page=page)
    await site.enter(me)
    await site.changed(me, "instance.edit", saved.id, slug=saved.slug)
    return go(f"/ui/mcp/{saved.id}", f"“{saved.name}” is saved.")


def _edit_form(
    site: Site,
    instance: Instance,
    server: RegistryServer,
    draft: InstanceDraft,
    errors: Mapping[str, str] | None = None,
) -> InstanceForm:
    return InstanceForm(
        server=server,
        action=f"/ui/mcp/{instance.id}/edit",
        back=f"/ui/mcp/{instance.id}",
        slug=draft.slug or "",
        name=draft.name or "",
        choice_id=draft.choice_id or instance.choice_id,
        names=site.settings.instance_naming_template,
        instance=instance,
        errors=errors or {},
    )


def _draft(form: Posted, server: RegistryServer, old: Instance | None) -> InstanceDraft:
    choice_id = form.text("choice_id") or None
    if choice_id is None and len(server.choices) == 1:
        choice_id = server.choices[0].id
    value = form.text(f"value-{choice_id}") or None
    return InstanceDraft(
        server_id=server.id,
        choice_id=choice_id,
        slug=form.text("slug").strip(),
        name=form.text("name").strip(),
        tool_filter=old.tool_filter if old is not None else None,
        value=value,
    )


def _errors(error: ToolyardError, draft: InstanceDraft) -> dict[str, str]:
    """The field of the value is the one of the choice that was made."""
    found = field_errors(error, _LABELS)
    return {f"value-{draft.choice_id}" if name == "value" else name: text for name, text in found.items()}
