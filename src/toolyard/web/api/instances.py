"""``/instances``: each person's own connections to servers of the registry."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.accounts.errors import NotAllowed
from toolyard.policy.rules.token_scope import scope_covers_slug
from toolyard.registry.form_input import InstanceDraft
from toolyard.types.registry import Instance, RegistryServer
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    PLAIN_TEXT_PATTERN,
    AppServices,
    Given,
    PathId,
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
    Field(max_length=8192, description="What goes into the header or parameter; never shown again."),
]
ToolFilter = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=256)]],
    Field(max_length=2000, description="The server's own names of the tools to have; an empty list: none."),
]


class InstanceGiven(Given):
    """An instance to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"server_id": "0f3c9a1b2d4e5f60", "slug": "github-work", "name": "GitHub, at work"}]
        }
    )

    server_id: str = Field(min_length=1, max_length=128)
    choice_id: str | None = Field(default=None, max_length=128, description="The server's only one.")
    slug: InstanceSlug | None = Field(default=None, description="Proposed from the server's address.")
    name: InstanceName | None = Field(default=None, description="The server's name.")
    tool_filter: ToolFilter | None = Field(default=None, description="null: every tool.")
    value: CredentialValue | None = None
    enabled: bool = True


class InstanceChanges(Given):
    """What to change about an instance; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tool_filter": ["search", "get_issue"]}]})

    choice_id: str | None = Field(default=None, max_length=128)
    slug: InstanceSlug | None = None
    name: InstanceName | None = None
    tool_filter: ToolFilter | None = Field(default=None, description="null: every tool.")
    value: CredentialValue | None = Field(default=None, description="An empty text removes it.")
    enabled: bool | None = None


class InstanceShown(BaseModel):
    """An instance, and how it is."""

    id: str
    server_id: str
    server_name: str
    choice_id: str
    auth: Literal["public", "header", "oauth"] | None = Field(
        description="How it signs in; none where that is no longer offered."
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
    """All instances that you have, by slug."""

    items: list[InstanceShown]


class SlugProposed(BaseModel):
    """A slug that you do not have yet."""

    slug: str = Field(examples=["github"])


class ConnectUrl(BaseModel):
    """Where to sign in."""

    url: str = Field(description="Open it in the browser that began this; it comes back to Toolyard.")


def _build_instance_model(
    site: Services, visitor: RequestUser, instance: Instance, server: RegistryServer
) -> InstanceShown:
    choice = server.choice(instance.choice_id)
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
    """The instance as it is after a change; the core knows it as well."""
    return _build_instance_model(site, visitor, *await site.instance(visitor, instance_id))


# Seeing.


@router.get("", responses=problem_responses(), summary="Your instances")
async def list_instances(site: AppServices, visitor: UserWithRead) -> InstanceList:
    """All of them, by slug, as far as your token reaches."""
    found = await site.list_visible_instances(visitor)
    return InstanceList(items=[_build_instance_model(site, visitor, *each) for each in found])


@router.get("/slug", responses=problem_responses(), summary="Propose a slug")
async def propose_slug(
    site: AppServices,
    visitor: UserWithRead,
    url: Annotated[str, Query(min_length=1, max_length=2048, description="The server's address.")],
) -> SlugProposed:
    """A slug from a server's address that you do not have yet."""
    return SlugProposed(slug=await site.registry.propose_slug(visitor.user.id, url))


@router.get("/{id}", responses=problem_responses(404), summary="One of your instances")
async def get_instance(site: AppServices, visitor: UserWithRead, id: PathId) -> InstanceShown:
    """One instance, and how it is."""
    return await _load_instance_model(site, visitor, id)


@router.get("/{id}/tools", responses=problem_responses(404), summary="The tools of an instance")
async def list_instance_tools(site: AppServices, visitor: UserWithRead, id: PathId) -> ToolList:
    """The tools that it has now, asked of its server, as far as its filter and your token show them."""
    instance, server = await site.instance(visitor, id)
    return await list_server_tools(site, visitor, site.registry.build_instance_server(instance, server).id)


# Changing.


@router.post(
    "", status_code=201, responses=problem_responses(404, 409, 413, 415), summary="Create an instance"
)
async def create_instance(
    site: AppServices, visitor: UserWithManage, given: InstanceGiven, response: Response
) -> InstanceShown:
    """Create an instance of a server. One that signs in by OAuth waits until you connect it."""
    fields = given.model_dump()
    fields["tool_filter"] = None if given.tool_filter is None else tuple(given.tool_filter)
    if visitor.scope is not None and visitor.scope.servers is not None:
        fields["slug"] = _require_slug_in_scope(
            visitor, (given.slug or "").strip() or await _propose_server_slug(site, visitor, given)
        )
    instance = await site.registry.create_instance(visitor.user.id, InstanceDraft(**fields))
    await site.changed(visitor, "instance.create", instance.id, slug=instance.slug, server=instance.server_id)
    response.headers["Location"] = f"/api/v1/instances/{instance.id}"
    await site.sync_instances(visitor)
    _, server = await site.registry.instance(visitor.user.id, instance.id)
    return _build_instance_model(site, visitor, instance, server)


async def _propose_server_slug(site: Services, visitor: RequestUser, given: InstanceGiven) -> str:
    server = await site.registry.server(given.server_id)
    return await site.registry.propose_slug(visitor.user.id, server.url)


def _require_slug_in_scope(visitor: RequestUser, slug: str) -> str:
    """The slug, if the visitor's token reaches an instance that has it. Raises NotAllowed."""
    if not scope_covers_slug(visitor.scope, slug):
        raise NotAllowed(
            f"this token is not for an instance '{slug}'",
            hint="give a slug that the token's servers name, or use a token for more servers",
        )
    return slug


@router.patch("/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change an instance")
async def edit_instance(
    site: AppServices, visitor: UserWithManage, id: PathId, given: InstanceChanges
) -> InstanceShown:
    """Change what is given. Another way of signing in needs a new sign-in or value."""
    old, server = await site.instance(visitor, id)
    kept = old.tool_filter if "tool_filter" not in given.model_fields_set else given.tool_filter
    fields = given.model_dump()
    fields["tool_filter"] = None if kept is None else tuple(kept)
    _require_slug_in_scope(visitor, (given.slug or "").strip() or old.slug)
    draft = InstanceDraft(server_id=server.id, **fields)
    instance = await site.registry.edit_instance(visitor.user.id, id, draft)
    fields_set = sorted(given.model_fields_set)
    await site.changed(visitor, "instance.edit", id, slug=instance.slug, fields=fields_set)
    await site.sync_instances(visitor)
    return _build_instance_model(site, visitor, instance, server)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete an instance")
async def delete_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> None:
    """Delete it, with its sign-in."""
    instance, _ = await site.instance(visitor, id)
    await site.sign_outs.delete_instance(site.registry, visitor.user.id, id)
    await site.sync_instances(visitor)
    await site.changed(visitor, "instance.delete", id, slug=instance.slug)


@router.post("/{id}/enable", responses=problem_responses(404), summary="Switch an instance on")
async def enable_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> InstanceShown:
    """Its tools can be used."""
    return await _set_instance_enabled(site, visitor, id, True)


@router.post("/{id}/disable", responses=problem_responses(404), summary="Switch an instance off")
async def disable_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> InstanceShown:
    """Its tools cannot be used until it is switched on again; nothing is lost."""
    return await _set_instance_enabled(site, visitor, id, False)


async def _set_instance_enabled(
    site: Services, visitor: RequestUser, instance_id: str, on: bool
) -> InstanceShown:
    instance, _ = await site.instance(visitor, instance_id)
    await site.registry.set_instance_enabled(visitor.user.id, instance_id, on)
    action = "instance.enable" if on else "instance.disable"
    await site.changed(visitor, action, instance_id, slug=instance.slug)
    return await _load_instance_model(site, visitor, instance_id)


@router.post("/{id}/test", responses=problem_responses(404), summary="Test an instance")
async def test_instance(site: AppServices, visitor: UserWithManage, id: PathId) -> InstanceShown:
    """Connect anew and list its tools; `status` tells what came of it, and why."""
    await site.reconnect_instance(visitor, *await site.instance(visitor, id))
    return await _load_instance_model(site, visitor, id)


@router.post(
    "/{id}/connect", responses=problem_responses(404, 424, 502, 504), summary="Sign in to an instance"
)
async def connect_instance(
    site: AppServices, visitor: UserWithManage, id: PathId, request: Request
) -> ConnectUrl:
    """Begin to sign in by OAuth. Only you, in the browser that began, can finish; so this is for scripts of
    pages, and refused to programs."""
    await site.instance(visitor, id)
    if not visitor.browser:
        raise NotAllowed(
            "only a browser can sign in, because it is sent to the provider's page and back",
            hint=f"open {site.base_url(request)}/ui/mcp and press Connect or Reconnect",
        )
    ourselves = site.build_client_identity(site.base_url(request))
    url = await site.sign_ins.begin(visitor.user.id, id, visitor.browser, ourselves)
    await site.changed(visitor, "instance.connect", id)
    return ConnectUrl(url=url)
