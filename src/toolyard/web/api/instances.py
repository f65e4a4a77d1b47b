"""``/instances``: personal connections to registry servers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import ConfigDict, Field

from toolyard.accounts.errors import NotAllowed
from toolyard.policy.rules import scope_covers_slug
from toolyard.registry import Registry
from toolyard.types.registry import Instance, InstanceDraft, RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.api import base as api
from toolyard.web.api.record_models import draft_values, output_values, request_model, response_model
from toolyard.web.api.server_status import ConnectResponse, ServerStatus
from toolyard.web.api.tools import ToolList, ToolListsDep

__all__ = ["InstanceList", "router"]

router = api.ApiRoutes(prefix="/instances", tags=["instances"])


class CreateInstanceRequest(request_model(Instance), schema="InstanceGiven"):
    """An instance to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"server_id": "0f3c9a1b2d4e5f60", "slug": "github-work", "name": "GitHub, at work"}]
        }
    )

    def draft(self) -> InstanceDraft:
        """Return the input of the registry."""
        return InstanceDraft(**draft_values(self.model_dump()))


class UpdateInstanceRequest(
    request_model(Instance, partial=True, without="server_id"), schema="InstanceChanges"
):
    """Changes to an instance; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tool_filter": ["search", "get_issue"]}]})

    def draft(self, old: Instance) -> InstanceDraft:
        """Return the input of the registry, in which None keeps the value, except that of the tool filter."""
        unchanged = InstanceDraft(old.server_id, tool_filter=old.tool_filter)
        return replace(unchanged, **draft_values(self.model_dump(exclude_unset=True)))


class InstanceResponse(response_model(Instance), schema="InstanceShown"):
    """An instance and its status."""

    server_name: str
    auth: Literal["public", "header", "oauth"] | None = Field(
        description="Kind of sign-in; null if the server no longer offers it."
    )
    status: ServerStatus


class InstanceList(api.ItemList[InstanceResponse]):
    """Your instances, sorted by slug."""


class SlugResponse(api.ApiModel, schema="SlugProposed"):
    """A slug that you do not use yet."""

    slug: str = Field(examples=["github"])


@dataclass(frozen=True, slots=True)
class _InstanceServices:
    """Services that most routes of instances use."""

    audit: deps.AuditDep
    callers: deps.CallersDep
    instance_sync: deps.InstanceSyncDep
    registry: deps.RegistryDep
    server_records: deps.ServerRecordsDep

    def build_model(
        self, request_user: RequestUser, instance: Instance, server: RegistryServer
    ) -> InstanceResponse:
        """Return an instance with its status."""
        choice = server.find_choice(instance.choice_id)
        record = self.server_records.build_instance_record(self.callers.get(request_user), instance, server)
        return InstanceResponse(
            **output_values(instance, is_admin=request_user.is_admin),
            server_name=server.name,
            auth=None if choice is None else choice.kind.value,
            status=ServerStatus.of(record),
        )

    async def load_model(self, request_user: RequestUser, instance_id: str) -> InstanceResponse:
        """Return the instance after a change, synchronised with the core."""
        return self.build_model(request_user, *await self.instance_sync.find(request_user, instance_id))

    async def set_enabled(self, request_user: RequestUser, instance_id: str, on: bool) -> InstanceResponse:
        """Enable or disable an instance."""
        instance, _ = await self.instance_sync.find(request_user, instance_id)
        await self.registry.set_instance_enabled(request_user.user.id, instance_id, on)
        action = "instance.enable" if on else "instance.disable"
        await self.audit.record_change(request_user, action, instance_id, slug=instance.slug)
        return await self.load_model(request_user, instance_id)


_ServicesDep = Annotated[_InstanceServices, Depends()]


# Reading.


@router.get("", summary="List your instances")
async def list_instances(
    services: _ServicesDep,
    request_user: api.UserWithRead,
) -> InstanceList:
    """Return your instances that your token covers, sorted by slug."""
    instances = await services.instance_sync.sync_covered(request_user.principal, request_user.scope)
    return InstanceList(items=[services.build_model(request_user, *each) for each in instances])


@router.get("/slug", summary="Propose a slug")
async def propose_slug(
    registry: deps.RegistryDep,
    request_user: api.UserWithRead,
    url: Annotated[str, Query(min_length=1, max_length=2048, description="URL of the server.")],
) -> SlugResponse:
    """Return an unused slug, derived from the URL of a server."""
    return SlugResponse(slug=await registry.propose_slug(request_user.user.id, url))


@router.get("/{id}", errors=[404], summary="Get an instance")
async def get_instance(
    services: _ServicesDep,
    request_user: api.UserWithRead,
    id: api.PathId,
) -> InstanceResponse:
    """Return an instance and its status."""
    return await services.load_model(request_user, id)


@router.get(
    "/{id}/tools",
    response_model=ToolList,
    errors=[404],
    summary="List the tools of an instance",
)
async def list_instance_tools(
    services: _ServicesDep, tool_lists: ToolListsDep, request_user: api.UserWithRead, id: api.PathId
) -> Response:
    """List the tools of the server now, and return those that the filter and your token allow."""
    instance, server = await services.instance_sync.find(request_user, id)
    server_id = services.registry.build_instance_server(instance, server).id
    return await tool_lists.respond(request_user, services.callers.get(request_user), {server_id}, fresh=True)


# Changing.


@router.post("", status_code=201, errors=[404, 409, 413, 415], summary="Create an instance")
async def create_instance(
    services: _ServicesDep,
    request_user: api.UserWithManage,
    given: CreateInstanceRequest,
    response: Response,
) -> InstanceResponse:
    """Create an instance of a server. With OAuth, it is `pending` until you sign in."""
    draft = given.draft()
    # A token with limits may only create instances that it covers.
    if request_user.scope is not None and request_user.scope.servers is not None:
        slug = (draft.slug or "").strip() or await _propose_server_slug(
            services.registry, request_user, draft
        )
        draft = replace(draft, slug=_require_slug_in_scope(request_user, slug))
    instance = await services.registry.create_instance(request_user.user.id, draft)
    await services.audit.record_change(
        request_user, "instance.create", instance.id, slug=instance.slug, server=instance.server_id
    )
    response.headers["Location"] = f"/api/v1/instances/{instance.id}"
    return await services.load_model(request_user, instance.id)


async def _propose_server_slug(registry: Registry, request_user: RequestUser, draft: InstanceDraft) -> str:
    server = await registry.get_server(draft.server_id)
    return await registry.propose_slug(request_user.user.id, server.url, server.name)


def _require_slug_in_scope(request_user: RequestUser, slug: str) -> str:
    """Return the slug if the user's token covers it. Raises NotAllowed."""
    if not scope_covers_slug(request_user.scope, slug):
        raise NotAllowed(
            f"this token does not cover an instance '{slug}'",
            hint="use a slug that the token covers, or a token for more servers",
        )
    return slug


def _require_right_to_rename(request_user: RequestUser, slug: str) -> None:
    """Raise NotAllowed if the user's token does not cover the slug, or would cover other tools."""
    _require_slug_in_scope(request_user, slug)
    scope = request_user.scope
    if scope is not None and (scope.tools, scope.agents) != (None, None):
        raise NotAllowed(
            "this token is limited to certain tools or agents, so it cannot rename instances, which changes "
            "the names of their tools",
            hint="use a token without such limits",
        )


@router.patch("/{id}", errors=[404, 409, 413, 415], summary="Change an instance")
async def edit_instance(
    services: _ServicesDep,
    request_user: api.UserWithManage,
    id: api.PathId,
    given: UpdateInstanceRequest,
) -> InstanceResponse:
    """Change the given fields. After a change of the sign-in choice, a new sign-in or value is needed."""
    old, _ = await services.instance_sync.find(request_user, id)
    draft = given.draft(old)
    slug = (draft.slug or "").strip() or old.slug
    if slug != old.slug:
        _require_right_to_rename(request_user, slug)
    instance = await services.registry.edit_instance(request_user.user.id, id, draft)
    fields_set = sorted(given.model_fields_set)
    await services.audit.record_change(
        request_user, "instance.edit", id, slug=instance.slug, fields=fields_set
    )
    return await services.load_model(request_user, id)


@router.delete("/{id}", status_code=204, errors=[404], summary="Delete an instance")
async def delete_instance(
    services: _ServicesDep,
    sign_outs: deps.SignOutsDep,
    request_user: api.UserWithManage,
    id: api.PathId,
) -> None:
    """Delete an instance and its sign-in."""
    instance, _ = await services.instance_sync.find(request_user, id)
    await sign_outs.delete_instance(services.registry, request_user.user.id, id)
    await services.instance_sync.sync(request_user.principal)
    await services.audit.record_change(request_user, "instance.delete", id, slug=instance.slug)


@router.post("/{id}/enable", errors=[404], summary="Enable an instance")
async def enable_instance(
    services: _ServicesDep,
    request_user: api.UserWithManage,
    id: api.PathId,
) -> InstanceResponse:
    """Enable an instance, so that its tools can be used."""
    return await services.set_enabled(request_user, id, True)


@router.post("/{id}/disable", errors=[404], summary="Disable an instance")
async def disable_instance(
    services: _ServicesDep,
    request_user: api.UserWithManage,
    id: api.PathId,
) -> InstanceResponse:
    """Disable an instance: its tools cannot be used until it is enabled again. Nothing is deleted."""
    return await services.set_enabled(request_user, id, False)


@router.post("/{id}/test", errors=[404], summary="Test an instance")
async def test_instance(
    services: _ServicesDep,
    request_user: api.UserWithManage,
    id: api.PathId,
) -> InstanceResponse:
    """Reconnect an instance and list its tools; `status` holds the result."""
    await services.instance_sync.reconnect(
        request_user.principal, *await services.instance_sync.find(request_user, id)
    )
    return await services.load_model(request_user, id)


@router.post("/{id}/connect", errors=[404, 424, 502, 504], summary="Sign in to an instance")
async def connect_instance(
    services: _ServicesDep,
    urls: deps.UrlsDep,
    sign_ins: deps.SignInsDep,
    request_user: api.UserWithManage,
    id: api.PathId,
    request: Request,
) -> ConnectResponse:
    """Start an OAuth sign-in. It must be completed in the same browser; programs without a browser session
    are refused."""
    await services.instance_sync.find(request_user, id)
    if not request_user.browser_id:
        raise NotAllowed(
            "signing in requires a browser, because it leads to the provider's page and back",
            hint=f"open {urls.base_url(request)}/ui/mcp and press Connect or Reconnect",
        )
    client_identity = urls.build_client_identity(urls.base_url(request))
    url = await sign_ins.begin(request_user.user.id, id, request_user.browser_id, client_identity)
    await services.audit.record_change(request_user, "instance.connect", id)
    return ConnectResponse(url=url)
