"""Forms to create an instance, in two steps (server, then details), and to edit one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi import Request, Response
from starlette.responses import PlainTextResponse

from toolyard.config.settings.table import Settings
from toolyard.errors import ToolyardError
from toolyard.registry import Registry
from toolyard.registry.field_validation import slug_fault
from toolyard.types.account import RequestUser
from toolyard.types.registry import AuthKind, Instance, InstanceDraft, RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.previews import RegistryIcons
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.lists import paginate

__all__ = ["router"]

router = Routes()

_FIELD_SPECS = forms.form_specs(Instance)
_FIELD_LABELS = {name: spec.label for name, spec in _FIELD_SPECS.items()}
_SERVERS_PER_PAGE = 60


@dataclass(frozen=True, slots=True)
class InstanceForm:
    """Content of the form. Entered credentials are never sent back to the browser."""

    server: RegistryServer
    action: str
    back: str
    slug: str
    name: str
    choice_id: str
    names: str
    """Template of the tool names, with ``{slug}`` and ``{tool}``."""
    instance: Instance | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    labels = _FIELD_LABELS
    specs = _FIELD_SPECS

    def has_value(self, choice_id: str) -> bool:
        """Return True if a value is stored for this sign-in method."""
        return (
            self.instance is not None
            and self.instance.value is not None
            and self.instance.choice_id == choice_id
        )


@router.get("/ui/mcp/new")
async def show_new_instance_form(
    request: Request,
    me: deps.CurrentUser,
    registry: deps.RegistryDep,
    registry_icons: deps.RegistryIconsDep,
    settings: deps.SettingsDep,
    server: str = "",
    q: str = "",
    page: str = "1",
) -> Response:
    """Show the list of servers, or the form if ``server`` is given."""
    if not server:
        return await _render_server_choice(registry, registry_icons, request, me, q, page)
    chosen = await registry.get_server(server)
    if not chosen.enabled:
        return responses.redirect_to(
            "/ui/mcp/new", f"“{chosen.name}” is disabled.", kind="bad", hint="ask an admin to enable it"
        )
    slug = await registry.propose_slug(me.user.id, chosen.url, chosen.name)
    choice_id = chosen.choices[0].id if chosen.choices else None
    form = _build_form(settings, chosen, InstanceDraft(slug=slug, name=chosen.name, choice_id=choice_id))
    return responses.render_page(request, "instance_form.html", page=form)


async def _render_server_choice(
    registry: Registry,
    registry_icons: RegistryIcons,
    request: Request,
    me: RequestUser,
    query: str,
    page: str,
) -> Response:
    offered = [server for server in await registry.list_servers() if server.enabled]
    shown, pages = paginate(
        offered,
        lambda server: f"{server.name}\n{server.url}\n{server.description}",
        "/ui/mcp/new",
        query,
        page,
        per_page=_SERVERS_PER_PAGE,
    )
    return responses.render_page(
        request,
        "instance_new.html",
        servers=shown,
        # Number of the person's instances, by server id.
        counts=Counter(server.id for _, server in await registry.list_instances(me.user.id)),
        icons=await registry_icons.list_paths(me, shown),
        pages=pages,
        query=query,
        any_servers=bool(offered),
    )


@router.post("/ui/mcp/new")
async def create_instance(
    request: Request,
    me: deps.CurrentUser,
    form: forms.FormDep,
    audit: deps.AuditDep,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    settings: deps.SettingsDep,
    server: str = "",
) -> Response:
    """Create an instance and redirect to its page, where it can be connected."""
    chosen = await registry.get_server(server)
    draft = _read_draft(form, chosen, None)
    try:
        created = await registry.create_instance(me.user.id, draft)
    except forms.FORM_ERRORS as error:
        page = _build_form(settings, chosen, draft, error=error)
        return responses.render_page(request, "instance_form.html", status=422, page=page)
    await instance_sync.sync(me.principal)
    await audit.record_change(me, "instance.create", created.id, slug=created.slug, server=chosen.id)
    choice = chosen.find_choice(created.choice_id)
    # For OAuth, the next page shows its own message about the remaining step.
    leaving = choice is not None and choice.kind is AuthKind.OAUTH
    return responses.redirect_to(
        f"/ui/mcp/{created.id}", None if leaving else f"“{created.name}” was created."
    )


@router.get("/ui/mcp/slug")
async def check_slug(
    me: deps.CurrentUser, registry: deps.RegistryDep, slug: str = "", of: str = ""
) -> Response:
    """Validate a slug while it is typed. The response is the error message, or empty."""
    if (fault := slug_fault(slug.strip())) is not None:
        return PlainTextResponse(forms.format_field_error(_FIELD_LABELS["slug"], fault))
    for instance, _ in await registry.list_instances(me.user.id):
        if instance.id != of and instance.slug.casefold() == slug.strip().casefold():
            return PlainTextResponse(f"You have an instance with this slug: “{instance.name}”.")
    return PlainTextResponse("")


@router.get("/ui/mcp/{instance_id}/edit")
async def show_edit_form(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    registry: deps.RegistryDep,
    settings: deps.SettingsDep,
    next: str = "",
) -> Response:
    """Show the form of an existing instance. ``next`` is the page to return to."""
    instance, server = await registry.get_instance(me.user.id, instance_id)
    draft = InstanceDraft(slug=instance.slug, name=instance.name)
    page = _build_form(settings, server, draft, instance, back=next)
    return responses.render_page(request, "instance_form.html", page=page)


@router.post("/ui/mcp/{instance_id}/edit")
async def save_instance(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    settings: deps.SettingsDep,
) -> Response:
    """Save an instance. An empty value keeps the stored one."""
    instance, server = await registry.get_instance(me.user.id, instance_id)
    draft = _read_draft(form, server, instance)
    try:
        saved = await registry.edit_instance(me.user.id, instance_id, draft)
    except forms.FORM_ERRORS as error:
        page = _build_form(settings, server, draft, instance, error, back=form.text("next"))
        return responses.render_page(request, "instance_form.html", status=422, page=page)
    await instance_sync.sync(me.principal)
    await audit.record_change(me, "instance.edit", saved.id, slug=saved.slug)
    back = form.next_path(f"/ui/mcp/{saved.id}")
    return responses.redirect_to(back, f"“{saved.name}” was saved.")


def _build_form(
    settings: Settings,
    server: RegistryServer,
    draft: InstanceDraft,
    instance: Instance | None = None,
    error: ToolyardError | None = None,
    *,
    back: str = "",
) -> InstanceForm:
    """Return the form of a new instance, or of an existing one that leads back to a page."""
    path = "/ui/mcp/new" if instance is None else f"/ui/mcp/{instance.id}"
    return InstanceForm(
        server=server,
        action=f"{path}?server={server.id}" if instance is None else f"{path}/edit",
        back=forms.safe_redirect_path(back, path),
        slug=draft.slug or "",
        name=draft.name or "",
        choice_id=draft.choice_id or ("" if instance is None else instance.choice_id),
        names=settings.instance_naming_template,
        instance=instance,
        errors={} if error is None else _map_field_errors(error, draft),
    )


def _read_draft(form: forms.SubmittedForm, server: RegistryServer, old: Instance | None) -> InstanceDraft:
    choice_id = form.text("choice_id") or None
    # With a single sign-in method, the form has no choice.
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


def _map_field_errors(error: ToolyardError, draft: InstanceDraft) -> dict[str, str]:
    """Return error messages by form field. Each sign-in method has its own field for the value."""
    errors = forms.field_errors(error, _FIELD_LABELS)
    return {f"value-{draft.choice_id}" if name == "value" else name: text for name, text in errors.items()}
