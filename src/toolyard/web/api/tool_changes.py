"""``/servers/{id}/changes`` and ``/instances/{id}/changes``: what is not as accepted, and accepting it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from toolyard.catalog.lock import Change
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    AppServices,
    Given,
    PathId,
    UserWithManage,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.tool_acceptance import (
    accept_changes_for_everyone,
    accept_changes_in_file,
    accept_changes_in_instance,
    find_file_changes,
    find_instance_changes,
    find_registry_changes,
)

__all__ = ["router"]

router = APIRouter(dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])


class ChangeShown(BaseModel):
    """One difference between what a server has and what was accepted of it."""

    key: str = Field(description="Names the difference to the letter: it is what is accepted.")
    kind: Literal["new", "changed", "renamed", "removed", "instructions", "package"]
    tool: str | None = Field(description="The server's own name of the tool; none where it is no tool.")
    was: str | None = Field(description="The name under which a renamed tool was accepted.")
    blocks: bool = Field(description="Whether the tool is in quarantine until this is accepted.")
    reason: str
    diff: list[str] = Field(description="What differs, for people to read. It holds the server's words.")


class ChangeList(BaseModel):
    """What is not as it was accepted."""

    items: list[ChangeShown]


class Acceptance(Given):
    """What to accept."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keys": ["5f1c0a9b3d7e2f4a6b8c0d1e"]}]})

    keys: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        min_length=1, max_length=5000, description="Of the differences that were listed."
    )


@router.get(
    "/servers/{id}/changes",
    tags=["servers"],
    responses=problem_responses(404, 409, 502, 504),
    summary="What of a server is not as accepted",
)
async def list_server_changes(site: AppServices, visitor: AdminUser, id: PathId) -> ChangeList:
    """Of a server of the configuration what differs from `mcp.lock`, as it was listed last; of a server of
    the registry what anybody was given of it that was not accepted for everyone."""
    server = site.configuration.servers.get(id)
    if server is not None:
        return _build_change_list(await find_file_changes(site, visitor, server))
    return _build_change_list(await find_registry_changes(site, await site.registry.server(id)))


@router.post(
    "/servers/{id}/changes",
    tags=["servers"],
    responses=problem_responses(404, 409, 413, 415, 502, 504),
    summary="Accept changes of a server",
)
async def accept_server_changes(
    site: AppServices, visitor: AdminUser, id: PathId, given: Acceptance
) -> ChangeList:
    """Accept differences for everyone, and no others: what is not what was listed is a conflict, and then
    nothing is accepted. Answers those that were."""
    server = site.configuration.servers.get(id)
    if server is not None:
        return _build_change_list(await accept_changes_in_file(site, visitor, server, given.keys))
    registered = await site.registry.server(id)
    return _build_change_list(await accept_changes_for_everyone(site, visitor, registered, given.keys))


@router.get(
    "/instances/{id}/changes",
    tags=["instances"],
    responses=problem_responses(404),
    summary="What of an instance is not as accepted",
)
async def list_instance_changes(site: AppServices, visitor: UserWithRead, id: PathId) -> ChangeList:
    """What your instance was given last that is neither what you nor what an admin accepted."""
    instance, _ = await site.instance(visitor, id)
    return _build_change_list(await find_instance_changes(site, instance))


@router.post(
    "/instances/{id}/changes",
    tags=["instances"],
    responses=problem_responses(404, 409, 413, 415),
    summary="Accept changes of an instance",
)
async def accept_instance_changes(
    site: AppServices, visitor: UserWithManage, id: PathId, given: Acceptance
) -> ChangeList:
    """Accept differences for this instance alone; as for servers."""
    instance, _ = await site.instance(visitor, id)
    return _build_change_list(await accept_changes_in_instance(site, visitor, instance, given.keys))


def _build_change_list(changes: Sequence[Change]) -> ChangeList:
    return ChangeList(items=[_build_change_model(each) for each in changes])


def _build_change_model(change: Change) -> ChangeShown:
    return ChangeShown(
        key=change.key,
        kind=change.kind.value,
        tool=change.tool or None,
        was=change.was or None,
        blocks=change.blocks,
        reason=change.reason,
        diff=change.diff(),
    )
