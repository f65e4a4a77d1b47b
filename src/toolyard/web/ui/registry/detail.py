"""Pages of one server: from the registry or a file for admins, and from a file for people who sign in to it.

Its capabilities are loaded after the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request, Response

from toolyard.auth.errors import AuthError, AuthUnavailable
from toolyard.catalog.lock import Change
from toolyard.config.value_checks import mask_url_secrets
from toolyard.errors import PrivateAddress
from toolyard.registry.auth_provider_factory import can_sign_in
from toolyard.registry.errors import Invalid
from toolyard.registry.issuer_confirmation import ClientIssuer
from toolyard.types.registry import AuthKind, RegistryServer
from toolyard.types.server import HttpSpec, Server
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.previews import ServerPreview
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.instances.oauth import (
    InstanceSignInPagesDep,
    render_leave_page,
    render_sign_in_problem,
)
from toolyard.web.ui.tools.server_tools import ServerToolsDep, ToolRow, build_plain_row, find_file_server

__all__ = ["router"]

router = Routes()

_MAX_TOOLS_WITH_SCHEMAS = 300
_CONFIRM_LABELS = {"issuer": "The issuer shown", "choice_id": "This sign-in method"}


@dataclass(frozen=True, slots=True)
class ServerContents:
    """Capabilities of a server from a fresh listing, those of a registry server in its preview."""

    at: str
    """Path of the server's page."""
    preview: ServerPreview
    tools: Sequence[ToolRow] = ()
    changes: Sequence[Change] = ()
    """Changes that are not accepted."""
    unconfirmed: Sequence[ClientIssuer] = ()
    """Issuers for client secrets that no admin has confirmed yet."""
    file_issuer: ClientIssuer | None = None
    """Issuer of the client id in an entry of a file."""
    redirect_uri: str = ""
    """Redirect URI of ``file_issuer`` if people sign in through these pages, else empty."""
    icon: str = ""
    """Path of the icon that the server publishes, or empty."""

    @property
    def issuer_line(self) -> str:
        """Line that confirms the issuer in the operator's file; empty if no confirmation is needed."""
        issuer = self.file_issuer
        if issuer is None or issuer.confirmed or not issuer.issuer:
            return ""
        return f'"issuer": {json.dumps(issuer.issuer)}'

    @property
    def is_private(self) -> bool:
        """True if the server is at a private address, which is not allowed for it."""
        return isinstance(self.preview.error, PrivateAddress)

    @property
    def tokens(self) -> int:
        """Estimated tokens of all tool definitions."""
        return sum(row.tokens for row in self.tools)


@dataclass(frozen=True, slots=True)
class RegistryServerPage:
    """Content of the page of a registry server. ``contents`` is None if they are loaded separately."""

    server: RegistryServer
    count: int
    at: str
    changes: Sequence[Change]
    """Stored changes that are not accepted, without contacting the server."""
    contents: ServerContents | None = None


@dataclass(frozen=True, slots=True)
class ConfigServerPage:
    """Content of the page."""

    server: Server
    record: ServerRecord
    sign_in: str
    """Text of the sign-in button, or empty."""
    signed_in: bool
    at: str


@dataclass(frozen=True, slots=True)
class FileServerPage(ConfigServerPage):
    """Content of the page of a server from a file for admins."""

    address: str
    changes: Sequence[Change]
    contents: ServerContents | None = None


@dataclass(frozen=True, slots=True)
class _ServerPages:
    """Builds the pages of servers, without contacting them."""

    me: deps.AdminUser
    callers: deps.CallersDep
    config: deps.ConfigDep
    registry: deps.RegistryDep
    tool_acceptance: deps.ToolAcceptanceDep
    server_sign_ins: deps.ServerSignInsDep
    server_records: deps.ServerRecordsDep

    async def build(self, server_id: str) -> RegistryServerPage:
        """Return the page of a registry server."""
        server = await self.registry.get_server(server_id)
        used = (await self.registry.count_instances()).get(server.id, 0)
        changes = await self.tool_acceptance.find_changes(self.me, server)
        return RegistryServerPage(server, used, f"/ui/admin/mcp/{server.id}", changes)

    async def build_for_file(self, server_id: str) -> FileServerPage:
        """Return the page of a server from a file."""
        server = find_file_server(self.config, server_id)
        record = self.server_records.build_config_record(self.callers.get(self.me), server)
        transport = server.transport
        # Arguments, query parameters and tokens in the path may be secrets and are not shown.
        address = mask_url_secrets(transport.url) if isinstance(transport, HttpSpec) else transport.command
        sign_in, signed_in = await self.server_sign_ins.get_sign_in_action(self.me, server, record.state)
        changes = await self.tool_acceptance.find_known_file_changes(self.me, server)
        path = f"/ui/admin/mcp/files/{server.id}"
        return FileServerPage(server, record, sign_in, signed_in, path, address, changes)


_ServerPagesDep = Annotated[_ServerPages, Depends()]


@router.get("/ui/admin/mcp/{server_id}")
async def show_server(
    request: Request, me: deps.AdminUser, server_id: str, pages: _ServerPagesDep
) -> Response:
    """Show a registry server without contacting it."""
    return responses.render_page(request, "server.html", page=await pages.build(server_id))


@router.get("/ui/admin/mcp/{server_id}/contents")
async def show_contents(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    issuers: deps.IssuersDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    previews: deps.PreviewsDep,
    registry_icons: deps.RegistryIconsDep,
    pages: _ServerPagesDep,
) -> Response:
    """Show a registry server with its capabilities, or only those as a fragment for the script."""
    page = await pages.build(server_id)
    preview, unconfirmed = await asyncio.gather(
        # Both contact the server or its issuer, so they run concurrently.
        previews.fetch_server_preview(me, page.server),
        issuers.unconfirmed(page.server),
    )
    aside = await tool_acceptance.record_previewed_tools(page.server, preview)
    review = f"{page.at}/changes"
    # Schemas of very long lists would make the page too large.
    schemas = len(preview.tools) <= _MAX_TOOLS_WITH_SCHEMAS
    contents = ServerContents(
        page.at,
        preview,
        [
            build_plain_row(
                each, cost, include_schema=schemas, reason=aside.get(each.name), review_path=review
            )
            for each, cost in preview.tools
        ],
        await tool_acceptance.find_changes(me, page.server),
        unconfirmed,
        icon=(await registry_icons.list_paths(me, [page.server]))[page.server.id],
    )
    if responses.is_fragment_request(request):
        return await responses.render_large_page(
            request, "server_contents.html", contents=contents, choices=page.server.choices
        )
    # Built again, because the preview may have changed the record.
    page = replace(await pages.build(server_id), contents=contents, changes=())
    return await responses.render_large_page(request, "server.html", page=page)


@router.post("/ui/admin/mcp/{server_id}/connect")
async def connect_own_instance(
    me: deps.AdminUser,
    server_id: str,
    registry: deps.RegistryDep,
    new_servers: deps.NewServersDep,
    sign_in_pages: InstanceSignInPagesDep,
) -> Response:
    """Begin the sign-in of the admin's own instance of a server. It is created if there is none."""
    server = await registry.get_server(server_id)
    oauth = {choice.id for choice in server.choices if choice.kind is AuthKind.OAUTH}
    own = [
        instance.id
        for instance, of in await registry.list_instances(me.user.id)
        if of.id == server.id and instance.choice_id in oauth
    ]
    instance_id = own[0] if own else await new_servers.create_own_instance(me, server)
    return await sign_in_pages.begin(instance_id)


@router.post("/ui/admin/mcp/{server_id}/allow-private")
async def allow_private_addresses(
    me: deps.AdminUser, server_id: str, audit: deps.AuditDep, registry: deps.RegistryDep
) -> Response:
    """Allow private network addresses for a server."""
    server = await registry.get_server(server_id)
    await registry.edit_server(server_id, replace(server.to_draft(), private_addresses=True))
    await audit.record_change(me, "server.edit", server.id, name=server.name)
    return responses.redirect_to(
        f"/ui/admin/mcp/{server.id}", f"“{server.name}” may have private network addresses."
    )


@router.post("/ui/admin/mcp/{server_id}/choices/{choice_id}/issuer")
async def confirm_issuer(
    me: deps.AdminUser,
    server_id: str,
    choice_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    issuers: deps.IssuersDep,
) -> Response:
    """Confirm the issuer that the page showed, if the server still names it."""
    issuer, at = form.text("issuer"), f"/ui/admin/mcp/{server_id}"
    try:
        server = await issuers.confirm(server_id, choice_id, issuer)
    except Invalid as error:
        return responses.redirect_to(
            at, " ".join(forms.field_errors(error, _CONFIRM_LABELS).values()), kind="bad"
        )
    except (AuthError, AuthUnavailable) as error:
        return responses.redirect_to(
            at, f"The issuer was not confirmed: {error.cause}.", kind="bad", hint=error.hint
        )
    await audit.record_change(
        me, "server.confirm_issuer", server.id, name=server.name, choice=choice_id, issuer=issuer
    )
    return responses.redirect_to(at, f"Client secrets of “{server.name}” may now be sent to {issuer}.")


@router.get("/ui/admin/mcp/files/{server_id}")
async def show_file_server(
    request: Request, me: deps.AdminUser, server_id: str, pages: _ServerPagesDep
) -> Response:
    """Show a server from a file without contacting it."""
    page = await pages.build_for_file(server_id)
    return responses.render_page(request, "file_server.html", page=page)


@router.get("/ui/admin/mcp/files/{server_id}/contents")
async def show_file_contents(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    urls: deps.UrlsDep,
    issuers: deps.IssuersDep,
    pages: _ServerPagesDep,
    server_tools: ServerToolsDep,
) -> Response:
    """Show a server from a file with its capabilities, or only those as a fragment for the script."""
    page = await pages.build_for_file(server_id)
    fetched, issuer = await asyncio.gather(
        server_tools.fetch(me.principal, page.server),
        issuers.find_config_issuer(page.server, me.principal),
    )
    contents = ServerContents(page.at, ServerPreview(fetched.seconds, error=fetched.error))
    if fetched.catalogue is not None:
        listing = fetched.catalogue.listing
        contents = ServerContents(
            page.at,
            ServerPreview(
                fetched.seconds,
                listing.protocol_version,
                listing.server_info,
                listing.capabilities,
                listing.instructions,
                set_aside=tuple(str(each) for each in fetched.catalogue.quarantined),
            ),
            await server_tools.build_rows(me, fetched.tool_listing, page.server.id, page.at),
            icon=pages.server_records.find_icon_path(me.principal, page.server.id),
            changes=await pages.tool_acceptance.find_known_file_changes(me, page.server),
        )
    if issuer is not None:
        interactive = issuer.issuer and can_sign_in(page.server, me.principal)
        client_identity = urls.build_client_identity(urls.base_url(request))
        redirect_uri = client_identity.redirect_uri_for(issuer.issuer) if interactive else ""
        contents = replace(contents, file_issuer=issuer, redirect_uri=redirect_uri)
    if responses.is_fragment_request(request):
        return await responses.render_large_page(
            request, "server_contents.html", contents=contents, choices=()
        )
    page = replace(await pages.build_for_file(server_id), contents=contents, changes=())
    return await responses.render_large_page(request, "file_server.html", page=page)


# A server from a file, for a person who may sign in to it.


@router.get("/ui/servers/{server_id}")
async def show_config_server(
    request: Request,
    me: deps.BrowserUser,
    server_id: str,
    callers: deps.CallersDep,
    server_sign_ins: deps.ServerSignInsDep,
    server_records: deps.ServerRecordsDep,
) -> Response:
    """Show the server's status without contacting it."""
    server = server_sign_ins.find_config_server(me, server_id)
    record = server_records.build_config_record(callers.get(me), server)
    sign_in, signed_in = await server_sign_ins.get_sign_in_action(me, server, record.state)
    page = ConfigServerPage(server, record, sign_in, signed_in, _build_server_path(server))
    return responses.render_page(request, "config_server.html", page=page)


@router.post("/ui/servers/{server_id}/connect")
async def connect_server(
    request: Request, me: deps.BrowserUser, server_id: str, server_sign_ins: deps.ServerSignInsDep
) -> Response:
    """Begin the sign-in and show the page that leads to the provider."""
    server = server_sign_ins.find_config_server(me, server_id)
    try:
        url = await server_sign_ins.begin_config_sign_in(me, server, request)
    except (AuthError, AuthUnavailable, Invalid) as error:
        return render_sign_in_problem(request, error, f"{_build_server_path(server)}/connect")
    return await render_leave_page(request, server.label or server.id, url, _build_server_path(server))


@router.post("/ui/servers/{server_id}/sign-out")
async def sign_out_of_server(
    me: deps.BrowserUser, server_id: str, server_sign_ins: deps.ServerSignInsDep
) -> Response:
    """Remove the person's sign-in."""
    server = server_sign_ins.find_config_server(me, server_id)
    was_signed_in = await server_sign_ins.sign_out_of_config_server(me, server)
    words = "You are signed out of" if was_signed_in else "You were not signed in to"
    return responses.redirect_to(_build_server_path(server), f"{words} “{server.label or server.id}”.")


def _build_server_path(server: Server) -> str:
    return f"/ui/servers/{quote(server.id, safe='')}"
