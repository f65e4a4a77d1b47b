"""``/instances``: personal connections to registry servers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.accounts.errors import NotAllowed
from toolyard.policy.rules import scope_covers_slug
from toolyard.registry.form_input import InstanceDraft
from toolyard.types.registry import Instance, RegistryServer
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    PLAIN_TEXT_PATTERN,
    AppServices,
    PathId,
    RequestModel,
    UserWithManage,
    UserWithRead,
    problem_responses,
    require_media_types,
    to_datetime,
)
from toolyard.web.api.status import ServerStatus, build_status_model
from toolyard.web.api.tools import ToolList, list_server_tools
from toolyard.web.server_status import build_instance_record
from toolyard.web.services import Services

__all__ = ["router"]

router = APIRouter(
    prefix="/instances", tags=["instances"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)

InstanceSlug = Annotated[
    str,
    Field(
        min_length=1,
        max_length=24,
        examples=["github"],
        json_schema_extra={"pattern": "^[A-Za-z0-9-]{1,24}$"},
    ),
]
InstanceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=80,
        examples=["GitHub, at work"],
        json_schema_extra={"pattern": PLAIN_TEXT_PATTERN},
    ),
]
CredentialValue = Annotated[
    str,
    Field(max_length=8192, description="Value of the header or parameter; never returned."),
]
ToolFilter = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=256)]],
    Field(
        max_length=2000,
        description="Names of the enabled tools, as the server defines them; an empty list for none.",
    ),
]


class InstanceGiven(RequestModel):
    """An instance to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"server_id": "0f3c9a1b2d4e5f60", "slug": "github-work", "name": "GitHub, at work"}]
        }
    )

    server_id: str = Field(min_length=1, max_length=128)
    choice_id: str | None = Field(
        default=None, max_length=128, description="Sign-in choice; null for the only choice of the server."
    )
    slug: InstanceSlug | None = Field(
        default=None, description="Prefix of tool names; null to derive it from the URL of the server."
    )
    name: InstanceName | None = Field(
        default=None, description="Display name; null for the name of the server."
    )
    tool_filter: ToolFilter | None = Field(
        default=None, description="Names of the enabled tools; null for all tools."
    )
    value: CredentialValue | None = None
    enabled: bool = True


class InstanceChanges(RequestModel):
    """Changes to an instance; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tool_filter": ["search", "get_issue"]}]})

    choice_id: str | None = Field(default=None, max_length=128)
    slug: InstanceSlug | None = None
    name: InstanceName | None = None
    tool_filter: ToolFilter | None = Field(
        default=None, description="Names of the enabled tools; null for all tools."
    )
    value: CredentialValue | None = Field(default=None, description="New value; an empty string removes it.")
    enabled: bool | None = None


class InstanceShown(BaseModel):
    """An instance and its status."""

    id: str
    server_id: str
    server_name: str
    choice_id: str
    auth: Literal["public", "header", "oauth"] | None = Field(
        description="Kind of sign-in; null if the server no longer offers it."
    )
    slug: str
    name: str
    enabled: bool
    tool_filter: list[str] | None
    has_value: bool
    status: ServerStatus
    created_at: datetime
    updated_at: datetime


class InstanceList(BaseModel):
    """Your instances, sorted by slug."""

    items: list[InstanceShown]


class SlugProposed(BaseModel):
    """A slug that you do not use yet."""

    slug: str = Field(examples=["github"])


class ConnectUrl(BaseModel):
    """Address of the sign-in page."""

    url: str = Field(description="URL to open in the same browser; it redirects back to Toolyard.")


def _build_instance_model(
    site: Services, visitor: RequestUser, instance: Instance, server: RegistryServer
) -> InstanceShown:
    choice = server.find_choice(instance.choice_id)
    return InstanceShown(
        id=instance.id,
        server_id=server.id,
        server_name=server.name,
        choice_id=instance.choice_id,
        auth=None if choice is None else choice.kind.value,
        slug=instance.slug,
        name=instance.name,
        enabled=instance.enabled,
        tool_filter=None if instance.tool_filter is None else list(instance.tool_filter),
        has_value=instance.value is not None,
        status=build_status_model(build_instance_record(site, site.get_caller(visitor), instance, server)),
        created_at=to_datetime(instance.created_at),
        updated_at=to_datetime(instance.updated_at),
    )


async def _load_instance_model(site: Services, visitor: RequestUser, instance_id: str) -> InstanceShown:
    """Return the instance after a change, synchronised with the core."""
    return _build_instance_model(site, visitor, *await site.find_instance(visitor, instance_id))


# Reading.


@router.get("", responses=problem_responses(), summary="List your instances")
async def list_instances(site: AppServices, visitor: UserWithRead) -> InstanceList:
    """Return your instances that your token covers, sorted by slug."""
    instances = await site.list_visible_instances(visitor)
    return InstanceList(items=[_build_instance_model(site, visitor, *each) for each in instances])


@router.get("/slug", responses=problem_responses(), summary="Propose a slug")
async def propose_slug(
    site: AppServices,
    visitor: UserWithRead,
    url: Annotated[str, Query(min_length=1, max_length=2048, description="URL of the server.")],
) -> SlugProposed:
    """Return an unused slug, derived from the URL of a server."""
    return SlugProposed(slug=await site.registry.propose_slug(visitor.user.id, url))


@router.get("/{id}", responses=problem_responses(404), summary="Get an instance")
async def get_instance(site: AppServices, visitor: UserWithRead, id: PathId) -> InstanceShown:
    """Return an instance and its status."""
    return await _load_instance_model(site, visitor, id)


@router.get("/{id}/tools", responses=problem_responses(404), summary="List the tools of an instance")
async def list_instance_tools(site: AppServices, visitor: UserWithRead, id: PathId) -> ToolList:
    """List the tools of the server now, and return those that the filter and your token allow."""
    instance, server = await site.find_instance(visitor, id)
    return await list_server_tools(site, visitor, site.registry.build_instance_server(instance, server).id)


# Changing.


@router.post(
    "", status_code=201, responses=problem_responses(404, 409, 413, 415), summary="Create an instance"
)
async def create_instance(
    site: AppServices, visitor: UserWithManage, given: InstanceGiven, response: Response
) -> InstanceShown:
    """Create an instance of a server. With OAuth, it is `pending` until you sign in."""
    fields = given.model_dump()
    fields["tool_filter"] = None if given.tool_filter is None else tuple(given.tool_filter)
    # A token with limits may only create instances that it covers.
    if visitor.scope is not None and visitor.scope.servers is not None:
        fields["slug"] = _require_slug_in_scope(
            visitor, (given.slug or "").strip() or await _propose_server_slug(site, visitor, given)
        )
    instance = await site.registry.create_instance(visitor.user.id, InstanceDraft(**fields))
    await site.record_change(
        visitor, "instance.create", instance.id, slug=instance.slug, server=instance.server_id
    )
    response.headers["Location"] = f"/api/v1/instances/{instance.id}"
    await site.sync_instances(visitor)
    _, server = await site.registry.get_instance(visitor.user.id, instance.id)
    return _build_instance_model(site, visitor, instance, server)


async def _propose_server_slug(site: Services, visitor: RequestUser, given: InstanceGiven) -> str:
    server = await site.registry.get_server(given.server_id)
    return await site.registry.propose_slug(visitor.user.id, server.url)


def _require_slug_in_scope(visitor: RequestUser, slug: str) -> str:
    """Return the slug if the user's token covers it. Raises NotAllowed."""
    if not scope_covers_slug(visitor.scope, slug):
        raise NotAllowed(
            f"this token does not cover an instance '{slug}'",
            hint="use a slug that the token covers, or a token for more servers",
        )
    return slug


@router.patch("/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change an instance")
async def edit_instance(
    site: AppServices, visitor: UserWithManage, id: PathId, given: InstanceChanges
) -> InstanceShown:
    """Change the given fields. After a change of the sign-in choice, a new sign-in or value is needed."""
    old, server = await site.find_instance(visitor, id)
    tool_filter = old.tool_filter if "tool_filter" not in given.model_fields_set else given.tool_filter
    fields = given.model_dump()
    fields["tool_filter"] = None if tool_filter is None else tuple(tool_filter)
    # A renamed instance must still be covered by the token.
    _require_slug_in_scope(visitor, (given.slug or "").strip() or old.slug)
    draft = InstanceDraft(server_id=server.id, **fields)
    instance = await site.registry.edit_instance(visitor.user.id, id, draft)
    fields_set = sorted(given.model_fields_set)
    await site.record_change(visitor, "instance.edit", id, slug=instance.slug, fields=fields_set)
    await site.sync_instances(visitor)
    return _build_instance_model(site, visitor, instance, server)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete an instance")
async def delete_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> None:
    """Delete an instance and its sign-in."""
    instance, _ = await site.find_instance(visitor, id)
    await site.sign_outs.delete_instance(site.registry, visitor.user.id, id)
    await site.sync_instances(visitor)
    await site.record_change(visitor, "instance.delete", id, slug=instance.slug)


@router.post("/{id}/enable", responses=problem_responses(404), summary="Enable an instance")
async def enable_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> InstanceShown:
    """Enable an instance, so that its tools can be used."""
    return await _set_instance_enabled(site, visitor, id, True)


@router.post("/{id}/disable", responses=problem_responses(404), summary="Disable an instance")
async def disable_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> InstanceShown:
    """Disable an instance: its tools cannot be used until it is enabled again. Nothing is deleted."""
    return await _set_instance_enabled(site, visitor, id, False)


async def _set_instance_enabled(
    site: Services, visitor: RequestUser, instance_id: str, on: bool
) -> InstanceShown:
    instance, _ = await site.find_instance(visitor, instance_id)
    await site.registry.set_instance_enabled(visitor.user.id, instance_id, on)
    action = "instance.enable" if on else "instance.disable"
    await site.record_change(visitor, action, instance_id, slug=instance.slug)
    return await _load_instance_model(site, visitor, instance_id)


@router.post("/{id}/test", responses=problem_responses(404), summary="Test an instance")
async def test_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> InstanceShown:
    """Reconnect an instance and list its tools; `status` holds the result."""
    await site.reconnect_instance(visitor, *await site.find_instance(visitor, id))
    return await _load_instance_model(site, visitor, id)


@router.post(
    "/{id}/connect", responses=problem_responses(404, 424, 502, 504), summary="Sign in to an instance"
)
async def connect_instance(
    site: AppServices, visitor: UserWithManage, id: PathId, request: Request
) -> ConnectUrl:
    """Start an OAuth sign-in. It must be completed in the same browser; programs without a browser session
    are refused."""
    await site.find_instance(visitor, id)
    if not visitor.browser_id:
        raise NotAllowed(
            "signing in requires a browser, because it leads to the provider's page and back",
            hint=f"open {site.base_url(request)}/ui/mcp and press Connect or Reconnect",
        )
    client_identity = site.build_client_identity(site.base_url(request))
    url = await site.sign_ins.begin(visitor.user.id, id, visitor.browser_id, client_identity)
    await site.record_change(visitor, "instance.connect", id)
    return ConnectUrl(url=url)
