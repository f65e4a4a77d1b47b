"""``/ui/mcp/{id}``: one instance, its tools, and the selection of enabled tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request, Response

from toolyard.catalog.lock import Change
from toolyard.types.registry import Instance, InstanceDraft, RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.instances.overview import InstanceRow, InstanceRowsDep
from toolyard.web.ui.tools.server_tools import ServerListing, ServerToolsDep, ToolRow

__all__ = ["router"]

router = Routes()


@dataclass(frozen=True, slots=True)
class InstanceTools:
    """Tools from a fresh listing, and the tool selection."""

    listing: ServerListing
    rows: Sequence[ToolRow] = ()
    gone: Sequence[str] = ()
    """Selected tools that the server no longer offers."""
    changes: Sequence[Change] = ()
    """Changes that are not accepted."""

    @property
    def tokens(self) -> int:
        """Estimated tokens of the usable tools."""
        return sum(row.tokens for row in self.rows if row.verdict in ("allow", "ask"))

    @property
    def usable(self) -> int:
        """Number of usable tools."""
        return sum(row.verdict in ("allow", "ask") for row in self.rows)


@dataclass(frozen=True, slots=True)
class InstancePage:
    """Content of an instance's page. ``tools`` is None if they are loaded separately."""

    row: InstanceRow
    instance: Instance
    server: RegistryServer
    tools: InstanceTools | None = None

    @property
    def filter(self) -> str:
        """Tool selection: ``all``, ``none`` or ``some``."""
        selection = self.instance.tool_filter
        return "all" if selection is None else "some" if selection else "none"

    @property
    def can_list(self) -> bool:
        """True if the instance is enabled and connected, so its tools can be listed."""
        return self.row.record.state not in ("disabled", "pending")


@router.get("/ui/mcp/{instance_id}")
async def show_instance(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    instance_sync: deps.InstanceSyncDep,
    instance_rows: InstanceRowsDep,
) -> Response:
    """Show an instance without its tools, which the page loads separately."""
    instance, server = await instance_sync.find(me, instance_id)
    page = InstancePage(instance_rows.build(instance, server), instance, server)
    return responses.render_page(request, "instance.html", page=page)


@router.get("/ui/mcp/{instance_id}/tools")
async def show_instance_tools(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    instance_rows: InstanceRowsDep,
    server_tools: ServerToolsDep,
) -> Response:
    """Show an instance with a fresh list of its tools, or only the tools as a fragment for the script."""
    instance, server = await instance_sync.find(me, instance_id)
    page = InstancePage(instance_rows.build(instance, server), instance, server)
    if page.can_list:
        fetched = await server_tools.fetch(me.principal, registry.build_instance_server(instance, server))
        # Listing may have changed the state, for example to needs_reauth.
        instance, server = await instance_sync.find(me, instance_id)
        changes = await tool_acceptance.find_changes(me, instance)
        tools = InstanceTools(fetched)
        if fetched.catalogue is not None:
            selection = instance.tool_filter
            rows = await server_tools.build_rows(
                me, fetched.tool_listing, instance.core_id, f"/ui/mcp/{instance.id}", selection
            )
            offered = {row.name for row in rows}
            gone = [name for name in selection or () if name not in offered]
            tools = InstanceTools(fetched, rows, gone, changes)
        page = InstancePage(instance_rows.build(instance, server), instance, server, tools)
    template = "instance_tools.html" if responses.is_fragment_request(request) else "instance.html"
    return await responses.render_large_page(request, template, page=page)


@router.post("/ui/mcp/{instance_id}/tools")
async def save_tool_filter(
    me: deps.CurrentUser,
    instance_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
) -> Response:
    """Save the tool selection."""
    instance, _ = await instance_sync.find(me, instance_id)
    kind = form.text("filter")
    selection = None if kind == "all" else () if kind == "none" else form.all_values("tool")
    try:
        saved = await registry.edit_instance(me.user.id, instance.id, InstanceDraft(tool_filter=selection))
    except forms.FORM_ERRORS as error:
        message = " ".join(forms.field_errors(error, {"tool_filter": "The filter"}).values())
        return responses.redirect_to(f"/ui/mcp/{instance.id}", message, kind="bad")
    await instance_sync.sync(me.principal)
    await audit.record_change(me, "instance.filter", saved.id, slug=saved.slug)
    enabled = "All tools" if selection is None else count(len(selection), "tool") if selection else "No tools"
    return responses.redirect_to(f"/ui/mcp/{saved.id}", f"“{saved.name}”: {enabled} enabled.")
