"""``/ui/mcp``: a person's instances with their status, and the buttons that act on them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fastapi import Request, Response

from toolyard.config.settings.table import Settings
from toolyard.core.audit import AuditRecorder
from toolyard.core.callers import CallerCache
from toolyard.registry import Registry
from toolyard.types.account import RequestUser
from toolyard.types.registry import AuthKind, Instance, RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord, ServerRecords
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.forms import ConfirmPage, read_submitted_form, render_confirm_page
from toolyard.web.ui.components.paging import Pagination, paginate
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.components.safe_redirect import safe_redirect_path

__all__ = ["InstanceRow", "build_instance_row", "router"]

router = Routes()


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """An instance in a list."""

    record: ServerRecord
    server: str
    way: str
    """Label of its sign-in method."""
    names: str
    """Names of its tools as models see them, with “…” for the tool."""
    oauth: bool
    """True if it signs in with OAuth, at the provider's site."""
    enabled: bool
    changed: int = 0
    """Number of tools in quarantine."""

    @property
    def id(self) -> str:
        """Id of the instance."""
        return self.record.id

    @property
    def sign_in(self) -> str:
        """Text of the sign-in button; empty if there is none."""
        if not self.oauth or self.record.state == "disabled":
            return ""
        return "Connect" if self.record.state == "pending" else "Reconnect"

    @property
    def wants_value(self) -> bool:
        """True if it needs a key from the person."""
        return not self.oauth and self.record.state in ("pending", "needs_reauth")


@dataclass(frozen=True, slots=True)
class InstancesPage:
    """Content of the page."""

    rows: list[InstanceRow]
    pages: Pagination
    query: str
    any_instances: bool
    any_servers: bool


def build_instance_row(
    callers: CallerCache,
    settings: Settings,
    server_records: ServerRecords,
    me: RequestUser,
    instance: Instance,
    server: RegistryServer,
    changed: int = 0,
) -> InstanceRow:
    """Return an instance as a row. ``changed`` is the number of its tools in quarantine."""
    choice = server.find_choice(instance.choice_id)
    record = server_records.build_instance_record(callers.get(me), instance, server)
    template = settings.instance_naming_template
    return InstanceRow(
        record=record,
        server=server.name,
        way=choice.label if choice is not None else "no sign-in method",
        names=template.replace("{slug}", instance.slug).replace("{tool}", "…"),
        oauth=choice is not None and choice.kind is AuthKind.OAUTH,
        enabled=instance.enabled,
        changed=changed,
    )


@router.get("/ui/mcp")
async def list_instances(
    request: Request,
    me: deps.CurrentUser,
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    settings: deps.SettingsDep,
    server_records: deps.ServerRecordsDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    q: str = "",
    page: str = "1",
) -> Response:
    """Show one page of the person's instances."""
    instances = await instance_sync.sync(me.principal)
    matches = [each for each in instances if _matches_query(each, q)]
    shown, pages = paginate(matches, page, "/ui/mcp", {"q": q})
    # Instances imply servers, which saves reading the registry.
    any_servers = bool(instances) or any(server.enabled for server in await registry.list_servers())
    changed = await tool_acceptance.count_quarantined_tools(me, shown)
    rows = [
        build_instance_row(
            callers, settings, server_records, me, instance, server, changed.get(instance.core_id, 0)
        )
        for instance, server in shown
    ]
    return render_page(
        request, "instances.html", page=InstancesPage(rows, pages, q, bool(instances), any_servers)
    )


def _matches_query(pair: tuple[Instance, RegistryServer], query: str) -> bool:
    instance, server = pair
    text = f"{instance.name}\n{instance.slug}\n{server.name}\n{server.url}".casefold()
    return all(word in text for word in query.casefold().split())


# Buttons.


@router.post("/ui/mcp/{instance_id}/test")
async def check_connection(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    settings: deps.SettingsDep,
    server_records: deps.ServerRecordsDep,
) -> Response:
    """Connect, list the tools, and redirect with a message about the result."""
    began = time.perf_counter()
    await instance_sync.reconnect(me.principal, *await instance_sync.find(me, instance_id))
    seconds = time.perf_counter() - began
    row = build_instance_row(
        callers, settings, server_records, me, *await instance_sync.find(me, instance_id)
    )
    back = safe_redirect_path((await read_submitted_form(request)).text("next"), f"/ui/mcp/{instance_id}")
    record = row.record
    if record.state == "ready":
        summary = f"{count(record.tool_count or 0, 'tool')} in {seconds:.1f} s"
        return redirect_with_message(back, f"“{record.label}” is working: {summary}.")
    return redirect_with_message(
        back, f"“{record.label}”: {record.cause or record.state}", kind="bad", hint=record.hint
    )


@router.post("/ui/mcp/{instance_id}/enable")
async def enable_instance(
    request: Request, me: deps.CurrentUser, instance_id: str, audit: deps.AuditDep, registry: deps.RegistryDep
) -> Response:
    """Enable an instance."""
    return await _set_instance_enabled(request, audit, registry, me, instance_id, True)


@router.post("/ui/mcp/{instance_id}/disable")
async def disable_instance(
    request: Request, me: deps.CurrentUser, instance_id: str, audit: deps.AuditDep, registry: deps.RegistryDep
) -> Response:
    """Disable an instance. Its sign-in is kept."""
    return await _set_instance_enabled(request, audit, registry, me, instance_id, False)


async def _set_instance_enabled(
    request: Request,
    audit: AuditRecorder,
    registry: Registry,
    me: RequestUser,
    instance_id: str,
    enabled: bool,
) -> Response:
    instance = await registry.set_instance_enabled(me.user.id, instance_id, enabled)
    await audit.record_change(
        me, "instance.enable" if enabled else "instance.disable", instance.id, slug=instance.slug
    )
    back = safe_redirect_path((await read_submitted_form(request)).text("next"), f"/ui/mcp/{instance_id}")
    return redirect_with_message(back, f"“{instance.name}” is {'enabled' if enabled else 'disabled'}.")


@router.get("/ui/mcp/{instance_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.CurrentUser, instance_id: str, registry: deps.RegistryDep
) -> Response:
    """Show the confirmation page."""
    instance, server = await registry.get_instance(me.user.id, instance_id)
    page = ConfirmPage(
        title=f"Delete “{instance.name}”?",
        text=f"This removes your connection to {server.name}, including its sign-in. "
        "The server itself is not affected.",
        action=f"/ui/mcp/{instance.id}/delete",
        back=f"/ui/mcp/{instance.id}",
    )
    return render_confirm_page(request, page)


@router.post("/ui/mcp/{instance_id}/delete")
async def delete_instance(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    audit: deps.AuditDep,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    sign_outs: deps.SignOutsDep,
) -> Response:
    """Delete an instance with its sign-in."""
    instance = await sign_outs.delete_instance(registry, me.user.id, instance_id)
    await instance_sync.sync(me.principal)
    await audit.record_change(me, "instance.delete", instance.id, slug=instance.slug)
    return redirect_with_message("/ui/mcp", f"“{instance.name}” is deleted.")
