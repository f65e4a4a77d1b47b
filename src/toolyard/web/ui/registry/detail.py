"""One server, of the registry or of the files: what is known of it at once, what it has a moment later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.auth.errors import AuthError, AuthUnavailable
from toolyard.catalog.lock import Change
from toolyard.errors import ServerError
from toolyard.registry.credentials import can_sign_in
from toolyard.registry.errors import Invalid, NotFound
from toolyard.registry.issuer_confirmation import ClientIssuer
from toolyard.types.registry import RegistryServer
from toolyard.types.server import HttpSpec, Server
from toolyard.web.access.dependencies import RequestUser, require_admin
from toolyard.web.config_sign_ins import get_sign_in_action
from toolyard.web.server_preview import fetch_server_preview
from toolyard.web.server_status import ServerRecord, build_config_record
from toolyard.web.services import Services
from toolyard.web.tool_acceptance import (
    find_known_file_changes,
    find_registry_changes,
    record_previewed_tools,
)
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.forms import field_errors, read_submitted_form
from toolyard.web.ui.components.render import is_fragment_request, render_page
from toolyard.web.ui.registry.server_listing import fetch_server_listing
from toolyard.web.ui.tools.rows import ToolRow, build_plain_row, build_tool_rows

__all__ = ["router"]

router = APIRouter()

AdminUser = Annotated[RequestUser, Depends(require_admin)]

_MAX_TOOLS_WITH_SCHEMAS = 300
_CONFIRM_LABELS = {"issuer": "The issuer shown", "choice_id": "This sign-in method"}


@dataclass(frozen=True, slots=True)
class ServerContents:
    """What a server has, asked right now. With ``error``, what was learned until then."""

    at: str
    """The page that this is a part of."""
    seconds: float
    tools: list[ToolRow] = field(default_factory=list[ToolRow])
    set_aside: tuple[str, ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    protocol_version: str | None = None
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None
    error: ServerError | None = None
    changes: Sequence[Change] = ()
    """What was not accepted."""
    unconfirmed: Sequence[ClientIssuer] = ()
    """Issuers that the server names for client secrets, which no admin has confirmed yet."""
    file_issuer: ClientIssuer | None = None
    """The issuer of the client id in a file's entry."""
    redirect_uri: str = ""
    """The redirect address of ``file_issuer``, if people sign in here."""

    @property
    def issuer_line(self) -> str:
        """The line that confirms the issuer in the operator's file; empty if there is none to confirm."""
        found = self.file_issuer
        if found is None or found.confirmed or not found.issuer:
            return ""
        return f'"issuer": {json.dumps(found.issuer)}'

    @property
    def tokens(self) -> int:
        """What all tools together cost a model."""
        return sum(row.tokens for row in self.tools)


@dataclass(frozen=True, slots=True)
class RegistryServerPage:
    """A server of the registry. ``contents`` is None where they are fetched after the page."""

    server: RegistryServer
    count: int
    contents: ServerContents | None = None

    at: str = ""
    changes: Sequence[Change] = ()
    """What was not accepted, as far as it is known without asking."""


@dataclass(frozen=True, slots=True)
class FileServerPage:
    """A server of the files."""

    server: Server
    record: ServerRecord
    address: str
    contents: ServerContents | None = None

    at: str = ""
    sign_in: str = ""
    """The word on the button that signs in, or empty."""
    signed_in: bool = False
    changes: Sequence[Change] = ()


@router.get("/ui/admin/mcp/{server_id}")
async def show_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """The entry, at once."""
    site: Services = request.app.state.site
    return render_page(request, "server.html", page=await _build_page(site, server_id))


@router.get("/ui/admin/mcp/{server_id}/contents")
async def show_contents(request: Request, me: AdminUser, server_id: str) -> Response:
    """The same with what the server has, fetched now: the script takes that part of it."""
    site: Services = request.app.state.site
    page = await _build_page(site, server_id)
    seen, unconfirmed = await asyncio.gather(
        fetch_server_preview(site, me, page.server), site.issuers.unconfirmed(page.server)
    )
    aside = await record_previewed_tools(site, page.server, seen)
    review = f"{page.at}/changes"
    schemas = len(seen.tools) <= _MAX_TOOLS_WITH_SCHEMAS
    contents = ServerContents(
        page.at,
        seen.seconds,
        [
            build_plain_row(
                each, cost, include_schema=schemas, reason=aside.get(each.name), review_path=review
            )
            for each, cost in seen.tools
        ],
        seen.set_aside,
        seen.resources,
        seen.resource_templates,
        seen.prompts,
        seen.capabilities,
        seen.protocol_version,
        seen.server_info,
        seen.instructions,
        seen.error,
        await find_registry_changes(site, page.server),
        unconfirmed,
    )
    if is_fragment_request(request):
        return render_page(request, "server_contents.html", contents=contents)
    return render_page(request, "server.html", page=await _build_page(site, server_id, contents))


@router.post("/ui/admin/mcp/{server_id}/choices/{choice_id}/issuer")
async def confirm_issuer(request: Request, me: AdminUser, server_id: str, choice_id: str) -> Response:
    """Store the issuer that the page showed, if the server still names it."""
    site: Services = request.app.state.site
    issuer = (await read_submitted_form(request)).text("issuer")
    at = f"/ui/admin/mcp/{server_id}"
    try:
        server = await site.issuers.confirm(server_id, choice_id, issuer)
    except Invalid as error:
        return redirect_with_message(at, " ".join(field_errors(error, _CONFIRM_LABELS).values()), kind="bad")
    except (AuthError, AuthUnavailable) as error:
        return redirect_with_message(
            at, f"The issuer was not confirmed: {error.cause}.", kind="bad", hint=error.hint
        )
    await site.changed(
        me, "server.confirm_issuer", server.id, name=server.name, choice=choice_id, issuer=issuer
    )
    return redirect_with_message(at, f"Client secrets of “{server.name}” may now be sent to {issuer}.")


@router.get("/ui/admin/mcp/files/{server_id}")
async def show_file_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """An entry of the files, at once."""
    site: Services = request.app.state.site
    return render_page(request, "file_server.html", page=await _build_file_page(site, me, server_id))


@router.get("/ui/admin/mcp/files/{server_id}/contents")
async def show_file_contents(request: Request, me: AdminUser, server_id: str) -> Response:
    """The same with what it has, fetched now."""
    site: Services = request.app.state.site
    page = await _build_file_page(site, me, server_id)
    asked, issuer = await asyncio.gather(
        fetch_server_listing(site, me.principal, page.server),
        site.issuers.of_file_server(page.server, me.principal),
    )
    contents = ServerContents(page.at, asked.seconds, error=asked.error)
    if asked.catalogue is not None:
        listing = asked.catalogue.listing
        tool = f"{page.at}/tool?name="
        review = f"{page.at}/changes"
        contents = ServerContents(
            page.at,
            asked.seconds,
            build_tool_rows(
                site, site.get_caller(me), asked.tool_listing, page.server.id, tool, review_path=review
            ),
            tuple(str(each) for each in asked.catalogue.quarantined),
            capabilities=listing.capabilities,
            protocol_version=listing.protocol_version,
            server_info=listing.server_info,
            instructions=listing.instructions,
            changes=await find_known_file_changes(site, me, page.server),
        )
    if issuer is not None:
        interactive = issuer.issuer and can_sign_in(page.server, me.principal)
        ourselves = site.build_client_identity(site.base_url(request))
        address = ourselves.redirect_uri_for(issuer.issuer) if interactive else ""
        contents = replace(contents, file_issuer=issuer, redirect_uri=address)
    if is_fragment_request(request):
        return render_page(request, "server_contents.html", contents=contents)
    page = await _build_file_page(site, me, server_id, contents)
    return render_page(request, "file_server.html", page=page)


async def _build_page(
    site: Services, server_id: str, contents: ServerContents | None = None
) -> RegistryServerPage:
    server = await site.registry.server(server_id)
    used = (await site.registry.count_instances()).get(server.id, 0)
    changes = () if contents is not None else await find_registry_changes(site, server)
    return RegistryServerPage(server, used, contents, f"/ui/admin/mcp/{server.id}", changes)


async def _build_file_page(
    site: Services, me: RequestUser, server_id: str, contents: ServerContents | None = None
) -> FileServerPage:
    server = site.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("server not found", hint="it may have been removed from its file")
    record = build_config_record(site, site.get_caller(me), server)
    transport = server.transport
    # Arguments and queries may hold secrets; the file has them in full.
    address = transport.url.partition("?")[0] if isinstance(transport, HttpSpec) else transport.command
    word, signed_in = await get_sign_in_action(site, me, server, record.state)
    at = f"/ui/admin/mcp/files/{server.id}"
    changes = () if contents is not None else await find_known_file_changes(site, me, server)
    return FileServerPage(server, record, address, contents, at, word, signed_in, changes)
