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
    services: Services, request_user: RequestUser, instance: Instance, server: RegistryServer
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
        status=build_status_model(
            build_instance_record(services, services.get_caller(request_user), instance, server)
        ),
        created_at=to_datetime(instance.created_at),
        updated_at=to_datetime(instance.updated_at),
    )


async def _load_instance_model(
    services: Services, request_user: RequestUser, instance_id: str
) -> InstanceShown:
    """Return the instance after a change, synchronised with the core."""
    return _build_instance_model(
        services, request_user, *await services.find_instance(request_user, instance_id)
    )


# Reading.


@router.get("", responses=problem_responses(), summary="List your instances")
async def list_instances(services: AppServices, request_user: UserWithRead) -> InstanceList:
    """Return your instances that your token covers, sorted by slug."""
    instances = await services.list_visible_instances(request_user)
    return InstanceList(items=[_build_instance_model(services, request_user, *each) for each in instances])


@router.get("/slug", responses=problem_responses(), summary="Propose a slug")
async def propose_slug(
    services: AppServices,
    request_user: UserWithRead,
    url: Annotated[str, Query(min_length=1, max_length=2048, description="URL of the server.")],
) -> SlugProposed:
    """Return an unused slug, derived from the URL of a server."""
    return SlugProposed(slug=await services.registry.propose_slug(request_user.user.id, url))


@router.get("/{id}", responses=problem_responses(404), summary="Get an instance")
async def get_instance(services: AppServices, request_user: UserWithRead, id: PathId) -> InstanceShown:
    """Return an instance and its status."""
    return await _load_instance_model(services, request_user, id)


@router.get(
    "/{id}/tools",
    response_model=ToolList,
    responses=problem_responses(404),
    summary="List the tools of an instance",
)
async def list_instance_tools(services: AppServices, request_user: UserWithRead, id: PathId) -> Response:
    """List the tools of the server now, and return those that the filter and your token allow."""
    instance, server = await services.find_instance(request_user, id)
    return await list_server_tools(
        services, request_user, services.registry.build_instance_server(instance, server).id
    )


# Changing.


@router.post(
    "", status_code=201, responses=problem_responses(404, 409, 413, 415), summary="Create an instance"
)
async def create_instance(
    services: AppServices, request_user: UserWithManage, given: InstanceGiven, response: Response
) -> InstanceShown:
    """Create an instance of a server. With OAuth, it is `pending` until you sign in."""
    fields = given.model_dump()
    fields["tool_filter"] = None if given.tool_filter is None else tuple(given.tool_filter)
    # A token with limits may only create instances that it covers.
    if request_user.scope is not None and request_user.scope.servers is not None:
        fields["slug"] = _require_slug_in_scope(
            request_user,
            (given.slug or "").strip() or await _propose_server_slug(services, request_user, given),
        )
    instance = await services.registry.create_instance(request_user.user.id, InstanceDraft(**fields))
    await services.record_change(
        request_user, "instance.create", instance.id, slug=instance.slug, server=instance.server_id
    )
    response.headers["Location"] = f"/api/v1/instances/{instance.id}"
    await services.sync_instances(request_user)
    _, server = await services.registry.get_instance(request_user.user.id, instance.id)
    return _build_instance_model(services, request_user, instance, server)


async def _propose_server_slug(services: Services, request_user: RequestUser, given: InstanceGiven) -> str:
    server = await services.registry.get_server(given.server_id)
    return await services.registry.propose_slug(request_user.user.id, server.url)


def _require_slug_in_scope(request_user: RequestUser, slug: str) -> str:
    """Return the slug if the user's token covers it. Raises NotAllowed."""
    if not scope_covers_slug(request_user.scope, slug):
        raise NotAllowed(
            f"this token does not cover an instance '{slug}'",
            hint="use a slug that the token covers, or a token for more servers",
        )
    return slug


@router.patch("/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change an instance")
async def edit_instance(
    services: AppServices, request_user: UserWithManage, id: PathId, given: InstanceChanges
) -> InstanceShown:
    """Change the given fields. After a change of the sign-in choice, a new sign-in or value is needed."""
    old, server = await services.find_instance(request_user, id)
    tool_filter = old.tool_filter if "tool_filter" not in given.model_fields_set else given.tool_filter
    fields = given.model_dump()
    fields["tool_filter"] = None if tool_filter is None else tuple(tool_filter)
    # A renamed instance must still be covered by the token.
    _require_slug_in_scope(request_user, (given.slug or "").strip() or old.slug)
    draft = InstanceDraft(server_id=server.id, **fields)
    instance = await services.registry.edit_instance(request_user.user.id, id, draft)
    fields_set = sorted(given.model_fields_set)
    await services.record_change(request_user, "instance.edit", id, slug=instance.slug, fields=fields_set)
    await services.sync_instances(request_user)
    return _build_instance_model(services, request_user, instance, server)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete an instance")
async def delete_instance(services: AppServices, request_user: UserWithManage, id: PathId) -> None:
    """Delete an instance and its sign-in."""
    instance, _ = await services.find_instance(request_user, id)
    await services.sign_outs.delete_instance(services.registry, request_user.user.id, id)
    await services.sync_instances(request_user)
    await services.record_change(request_user, "instance.delete", id, slug=instance.slug)


@router.post("/{id}/enable", responses=problem_responses(404), summary="Enable an instance")
async def enable_instance(services: AppServices, request_user: UserWithManage, id: PathId) -> InstanceShown:
    """Enable an instance, so that its tools can be used."""
    return await _set_instance_enabled(services, request_user, id, True)


@router.post("/{id}/disable", responses=problem_responses(404), summary="Disable an instance")
async def disable_instance(services: AppServices, request_user: UserWithManage, id: PathId) -> InstanceShown:
    """Disable an instance: its tools cannot be used until it is enabled again. Nothing is deleted."""
    return await _set_instance_enabled(services, request_user, id, False)


async def _set_instance_enabled(
    services: Services, request_user: RequestUser, instance_id: str, on: bool
) -> InstanceShown:
    instance, _ = await services.find_instance(request_user, instance_id)
    await services.registry.set_instance_enabled(request_user.user.id, instance_id, on)
    action = "instance.enable" if on else "instance.disable"
    await services.record_change(request_user, action, instance_id, slug=instance.slug)
    return await _load_instance_model(services, request_user, instance_id)


@router.post("/{id}/test", responses=problem_responses(404), summary="Test an instance")
async def test_instance(services: AppServices, request_user: UserWithManage, id: PathId) -> InstanceShown:
    """Reconnect an instance and list its tools; `status` holds the result."""
    await services.reconnect_instance(request_user, *await services.find_instance(request_user, id))
    return await _load_instance_model(services, request_user, id)


@router.post(
    "/{id}/connect", responses=problem_responses(404, 424, 502, 504), summary="Sign in to an instance"
)
async def connect_instance(
    services: AppServices, request_user: UserWithManage, id: PathId, request: Request
) -> ConnectUrl:
    """Start an OAuth sign-in. It must be completed in the same browser; programs without a browser session
    are refused."""
    await services.find_instance(request_user, id)
    if not request_user.browser_id:
        raise NotAllowed(
            "signing in requires a browser, because it leads to the provider's page and back",
            hint=f"open {services.base_url(request)}/ui/mcp and press Connect or Reconnect",
        )
    client_identity = services.build_client_identity(services.base_url(request))
    url = await services.sign_ins.begin(request_user.user.id, id, request_user.browser_id, client_identity)
    await services.record_change(request_user, "instance.connect", id)
    return ConnectUrl(url=url)
