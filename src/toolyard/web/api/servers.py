"""``/servers``: the registry. Admins may change it, all users may read it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.protocol.codec import JsonFragment, encode, encode_fragment
from toolyard.registry import Registry
from toolyard.types.json_values import text_or_empty
from toolyard.types.registry import AuthChoice, RegistryServer, ServerDraft
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.api import base as api
from toolyard.web.api.record_models import (
    changed_values,
    draft_values,
    output_values,
    request_model,
    response_model,
)
from toolyard.web.problem_details import ProblemDetails, describe_error
from toolyard.web.servers.previews import ServerPreview

__all__ = ["ServerResponse", "router"]


router = api.ApiRoutes(prefix="/servers", tags=["servers"])


# Models.


class PreviewTool(api.ApiModel):
    """A tool as defined by its server."""

    name: str = Field(description="Name of the tool, as the server defines it.")
    title: str | None
    description: str
    annotations: dict[str, Any]
    input_schema: dict[str, Any]
    token_cost: int = Field(description="Estimated size of the definition, in tokens.")


class PreviewResource(BaseModel):
    """A resource or a resource template."""

    uri: str
    name: str
    description: str


class PreviewPrompt(BaseModel):
    """A prompt."""

    name: str
    description: str


class PreviewResponse(api.ApiModel, schema="PreviewShown"):
    """Contents of a server, possibly incomplete if there was an error."""

    ok: bool
    error: ProblemDetails | None = Field(description="Error of the preview, if any.")
    seconds: float
    protocol_version: str | None
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None
    tools: list[PreviewTool]
    token_cost: int
    set_aside: list[str] = Field(description="Tools with an invalid definition, each with the reason.")
    resources: list[PreviewResource]
    resource_templates: list[PreviewResource]
    prompts: list[PreviewPrompt]


_PREVIEW_LISTS = {"tools", "resources", "resource_templates", "prompts"}


def _build_preview_model(preview: ServerPreview) -> PreviewResponse:
    return PreviewResponse.of(
        preview,
        ok=preview.error is None,
        error=None if preview.error is None else describe_error(preview.error)[0],
        seconds=round(preview.seconds, 3),
        tools=[PreviewTool.of(definition, token_cost=cost) for definition, cost in preview.tools],
        resources=[_build_resource_model(each, "uri") for each in preview.resources],
        resource_templates=[
            _build_resource_model(each, "uriTemplate") for each in preview.resource_templates
        ],
        prompts=[
            PreviewPrompt(
                name=text_or_empty(each.get("name")), description=text_or_empty(each.get("description"))
            )
            for each in preview.prompts
        ],
    )


def _encode_preview(preview: ServerPreview) -> JsonFragment:
    """Encode a preview. In a thread, and its lists entry by entry: they may have tens of thousands."""
    model = _build_preview_model(preview)
    fields = model.model_dump(mode="json", exclude=_PREVIEW_LISTS)
    lists = {
        name: [encode_fragment(each.model_dump(mode="json")) for each in getattr(model, name)]
        for name in _PREVIEW_LISTS
    }
    return encode_fragment({**fields, **lists})


def _build_resource_model(raw: Mapping[str, Any], uri_key: str) -> PreviewResource:
    return PreviewResource(
        uri=text_or_empty(raw.get(uri_key)),
        name=text_or_empty(raw.get("name")),
        description=text_or_empty(raw.get("description")),
    )


class ChoiceRequest(request_model(AuthChoice), schema="ChoiceGiven"):
    """A sign-in choice of a server."""


class CreateServerRequest(request_model(RegistryServer, choices=ChoiceRequest), schema="ServerGiven"):
    """A server to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "GitHub",
                    "url": "https://api.githubcopilot.com/mcp/",
                    "choices": [{"kind": "oauth", "registration": "dynamic"}],
                }
            ]
        }
    )

    def draft(self) -> ServerDraft:
        """Return the input of the registry."""
        return ServerDraft(**draft_values(self.model_dump()))


class UpdateServerRequest(
    request_model(RegistryServer, partial=True, choices=ChoiceRequest), schema="ServerChanges"
):
    """Changes to a server; omitted fields stay unchanged. Choices that are not in `choices` are deleted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"description": "Our own repositories"}]})

    def draft(self, old: RegistryServer) -> ServerDraft:
        """Return the input of the registry: the old server with the changes applied."""
        return replace(old.to_draft(), **changed_values(self, RegistryServer))


class ConfirmIssuerRequest(api.RequestModel, schema="IssuerGiven"):
    """Confirmation of the issuer of a sign-in choice."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"choice_id": "5f0c1d2e3a4b5c6d", "issuer": "https://login.example.com"}]
        }
    )

    choice_id: str = Field(min_length=1, max_length=128, description="Sign-in choice with the client secret.")
    issuer: str = Field(
        min_length=1,
        max_length=2048,
        examples=["https://login.example.com"],
        description="Issuer that the server reports. It is compared with the issuer reported now.",
    )


class IssuerResponse(api.ApiModel, schema="IssuerShown"):
    """Unconfirmed issuer that a server reports for a client secret."""

    choice_id: str
    issuer: str | None = Field(description="Issuer; null if it was not found, see `error`.")
    error: str | None = Field(description="Reason why it was not found.")


class IssuerList(api.ItemList[IssuerResponse]):
    """Issuers to confirm, one for each sign-in choice."""


class ChoiceResponse(response_model(AuthChoice), schema="ChoiceShown"):
    """A sign-in choice of a server."""


class ServerResponse(response_model(RegistryServer, choices=ChoiceResponse), schema="ServerShown"):
    """A registry server."""

    instance_count: int | None = Field(description="Number of instances of all users. Shown to admins only.")
    preview: PreviewResponse | None = Field(
        default=None, description="Contents of the server, if requested with `preview=true`."
    )


class ServerList(api.ItemList[ServerResponse]):
    """All registry servers, sorted by name."""


# Reading.


@router.get("", summary="List registry servers")
async def list_servers(registry: deps.RegistryDep, request_user: api.UserWithRead) -> ServerList:
    """Return all registry servers with their sign-in choices, sorted by name. Secrets are never returned."""
    servers = await registry.list_servers()
    counts = await registry.count_instances() if request_user.is_admin else {}
    return ServerList(
        items=[_build_server_model(each, request_user, counts.get(each.id, 0)) for each in servers]
    )


@router.get("/{id}", errors=[404], summary="Get a registry server")
async def get_server(
    registry: deps.RegistryDep, request_user: api.UserWithRead, id: api.PathId
) -> ServerResponse:
    """Return a server with its sign-in choices."""
    return await _build_counted_server_model(registry, request_user, await registry.get_server(id))


@router.get("/{id}/preview", response_model=PreviewResponse, errors=[404], summary="Preview a server")
async def preview_server(
    registry: deps.RegistryDep, previews: deps.PreviewsDep, request_user: deps.AdminUser, id: api.PathId
) -> Response:
    """Connect and list tools, resources and prompts now, with your own sign-in if you have an instance that
    is ready. If that fails, `error` holds the problem."""
    preview = await previews.fetch_server_preview(request_user, await registry.get_server(id))
    body = encode(await asyncio.to_thread(_encode_preview, preview))
    return Response(body, media_type=api.JSON_CONTENT_TYPE)


@router.get("/{id}/issuer", errors=[404], summary="List unconfirmed issuers")
async def list_issuers(
    registry: deps.RegistryDep, issuers: deps.IssuersDep, request_user: deps.AdminUser, id: api.PathId
) -> IssuerList:
    """Discover the issuer for each client secret without a confirmed one. No credentials are sent to the
    server."""
    return IssuerList(
        items=[
            IssuerResponse(
                choice_id=each.choice.id,
                issuer=each.issuer or None,
                error=None if each.error is None else each.error.cause,
            )
            for each in await issuers.unconfirmed(await registry.get_server(id))
            if each.choice is not None
        ]
    )


# Changing.

WithPreview = Annotated[
    bool,
    Query(
        alias="preview",
        description="Connect at once, and include the contents of the server in the response.",
    ),
]


@router.post(
    "", response_model=ServerResponse, status_code=201, errors=[409, 413, 415], summary="Add a server"
)
async def add_server(
    new_servers: deps.NewServersDep,
    previews: deps.PreviewsDep,
    request_user: deps.AdminUser,
    given: CreateServerRequest,
    with_preview: WithPreview = False,
) -> Response:
    """Add a server. Toolyard does not connect to it unless `preview=true`."""
    server = await new_servers.add(request_user, given.draft())
    body: dict[str, Any] = _build_server_model(server, request_user, 0).model_dump(mode="json")
    if with_preview:
        preview = await previews.fetch_server_preview(request_user, server)
        body["preview"] = await asyncio.to_thread(_encode_preview, preview)
    headers = {"Location": f"/api/v1/servers/{server.id}"}
    return Response(encode(body), 201, headers, media_type=api.JSON_CONTENT_TYPE)


@router.patch("/{id}", errors=[404, 409, 413, 415], summary="Change a server")
async def edit_server(
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: UpdateServerRequest,
) -> ServerResponse:
    """Change the given fields. If the host of the URL changes, the sign-ins of all instances are deleted."""
    server = await registry.edit_server(id, given.draft(await registry.get_server(id)))
    await audit.record_change(
        request_user, "server.edit", id, name=server.name, fields=sorted(given.model_fields_set)
    )
    return await _build_counted_server_model(registry, request_user, server)


@router.delete("/{id}", status_code=204, errors=[404], summary="Delete a server")
async def delete_server(
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
    sign_outs: deps.SignOutsDep,
    request_user: deps.AdminUser,
    id: api.PathId,
) -> None:
    """Delete a server with the instances of all users and their sign-ins."""
    server = await sign_outs.delete_server(registry, id)
    await audit.record_change(request_user, "server.delete", id, name=server.name)


@router.post("/{id}/enable", errors=[404], summary="Enable a server")
async def enable_server(
    audit: deps.AuditDep, registry: deps.RegistryDep, request_user: deps.AdminUser, id: api.PathId
) -> ServerResponse:
    """Enable a server, so that its instances can be used."""
    server = await registry.set_server_enabled(id, True)
    await audit.record_change(request_user, "server.enable", id, name=server.name)
    return await _build_counted_server_model(registry, request_user, server)


@router.post("/{id}/disable", errors=[404], summary="Disable a server")
async def disable_server(
    audit: deps.AuditDep, registry: deps.RegistryDep, request_user: deps.AdminUser, id: api.PathId
) -> ServerResponse:
    """Disable a server: nobody can use it until it is enabled again. Nothing is deleted."""
    server = await registry.set_server_enabled(id, False)
    await audit.record_change(request_user, "server.disable", id, name=server.name)
    return await _build_counted_server_model(registry, request_user, server)


@router.post(
    "/{id}/issuer",
    errors=[404, 413, 415, 424, 502, 504],
    summary="Confirm the issuer of a server",
)
async def confirm_server_issuer(
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
    issuers: deps.IssuersDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: ConfirmIssuerRequest,
) -> ServerResponse:
    """Allow the client secret of a choice to be sent to the issuer that the server reports. If the server now
    reports another issuer, nothing is stored (422)."""
    server = await issuers.confirm(id, given.choice_id, given.issuer)
    details = {"choice": given.choice_id, "issuer": given.issuer}
    await audit.record_change(request_user, "server.confirm_issuer", id, name=server.name, **details)
    return await _build_counted_server_model(registry, request_user, server)


def _build_server_model(server: RegistryServer, request_user: RequestUser, count: int) -> ServerResponse:
    values = output_values(server, is_admin=request_user.is_admin)
    return ServerResponse(**values, instance_count=count if request_user.is_admin else None)


async def _build_counted_server_model(
    registry: Registry, request_user: RequestUser, server: RegistryServer
) -> ServerResponse:
    counts = await registry.count_instances() if request_user.is_admin else {}
    return _build_server_model(server, request_user, counts.get(server.id, 0))
