"""``/ui/mcp``: a person's instances with their status, and the buttons that act on them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.types.registry import AuthKind, Instance, RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.lists import paginate

__all__ = ["InstanceRow", "InstanceRows", "InstanceRowsDep", "router"]

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
    def needs_value(self) -> bool:
        """True if it needs a key from the person."""
        return not self.oauth and self.record.state in ("pending", "needs_reauth")


@dataclass(frozen=True, slots=True)
class InstanceRows:
    """Builds the rows of a person's instances."""

    me: deps.CurrentUser
    callers: deps.CallersDep
    settings: deps.SettingsDep
    server_records: deps.ServerRecordsDep

    def build(self, instance: Instance, server: RegistryServer, changed: int = 0) -> InstanceRow:
        """Return an instance as a row. ``changed`` is the number of its tools in quarantine."""
        choice = server.find_choice(instance.choice_id)
        template = self.settings.instance_naming_template
        return InstanceRow(
            record=self.server_records.build_instance_record(self.callers.get(self.me), instance, server),
            server=server.name,
            way=choice.label if choice is not None else "no sign-in method",
            names=template.replace("{slug}", instance.slug).replace("{tool}", "…"),
            oauth=choice is not None and choice.kind is AuthKind.OAUTH,
            enabled=instance.enabled,
            changed=changed,
        )


InstanceRowsDep = Annotated[InstanceRows, Depends()]


@router.get("/ui/mcp")
async def list_instances(
    request: Request,
    me: deps.CurrentUser,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    instance_rows: InstanceRowsDep,
    q: str = "",
    page: str = "1",
) -> Response:
    """Show one page of the person's instances."""
    instances = await instance_sync.sync(me.principal)
    shown, pages = paginate(instances, _describe, "/ui/mcp", q, page)
    changed = await tool_acceptance.count_quarantined_tools(me, shown)
    return responses.render_page(
        request,
        "instances.html",
        rows=[instance_rows.build(*each, changed.get(each[0].core_id, 0)) for each in shown],
        pages=pages,
        query=q,
        any_instances=bool(instances),
        # Instances imply servers, which saves reading the registry.
        any_servers=bool(instances) or any(server.enabled for server in await registry.list_servers()),
    )


def _describe(pair: tuple[Instance, RegistryServer]) -> str:
    instance, server = pair
    return f"{instance.name}\n{instance.slug}\n{server.name}\n{server.url}"


# Buttons.


@router.post("/ui/mcp/{instance_id}/test")
async def check_connection(
    me: deps.CurrentUser,
    instance_id: str,
    form: forms.FormDep,
    instance_sync: deps.InstanceSyncDep,
    instance_rows: InstanceRowsDep,
) -> Response:
    """Connect, list the tools, and redirect with a message about the result."""
    began = time.perf_counter()
    await instance_sync.reconnect(me.principal, *await instance_sync.find(me, instance_id))
    seconds = time.perf_counter() - began
    record = instance_rows.build(*await instance_sync.find(me, instance_id)).record
    back = form.next_path(f"/ui/mcp/{instance_id}")
    if record.state == "ready":
        summary = f"{count(record.tool_count or 0, 'tool')} in {seconds:.1f} s"
        return responses.redirect_to(back, f"“{record.label}” is working: {summary}.")
    message = f"“{record.label}”: {record.cause or record.state}"
    return responses.redirect_to(back, message, kind="bad", hint=record.hint)


@router.post("/ui/mcp/{instance_id}/enable")
@router.post("/ui/mcp/{instance_id}/disable")
async def set_instance_enabled(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
) -> Response:
    """Enable or disable an instance. Its sign-in is kept."""
    verb = request.url.path.rpartition("/")[2]
    instance = await registry.set_instance_enabled(me.user.id, instance_id, verb == "enable")
    await audit.record_change(me, f"instance.{verb}", instance.id, slug=instance.slug)
    back = form.next_path(f"/ui/mcp/{instance_id}")
    return responses.redirect_to(back, f"“{instance.name}” is {verb}d.")


@router.get("/ui/mcp/{instance_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.CurrentUser, instance_id: str, registry: deps.RegistryDep
) -> Response:
    """Show the confirmation page."""
    instance, server = await registry.get_instance(me.user.id, instance_id)
    return responses.render_confirmation(
        request,
        title=f"Delete “{instance.name}”?",
        text=f"This removes your connection to {server.name}, including its sign-in. "
        "The server itself is not affected.",
        action=f"/ui/mcp/{instance.id}/delete",
        back=f"/ui/mcp/{instance.id}",
    )


@router.post("/ui/mcp/{instance_id}/delete")
async def delete_instance(
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
    return responses.redirect_to("/ui/mcp", f"“{instance.name}” was deleted.")
