"""``/tools``: the tools of configured servers and of the user's instances."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Set
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.errors import ServerError
from toolyard.policy.rules import scope_covers_server
from toolyard.protocol.codec import encode, encode_large_members
from toolyard.registry.errors import NotFound
from toolyard.types.call import Caller
from toolyard.types.tool import Definition
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.api import base as api
from toolyard.web.problem_details import ProblemDetails, describe_error

__all__ = ["ToolList", "ToolListsDep", "router"]

T = TypeVar("T")

router = api.ApiRoutes(prefix="/tools", tags=["tools"])

AgentQuery = Annotated[
    str | None, Query(min_length=1, max_length=200, description="Apply the rules of this agent.")
]
BundlesQuery = Annotated[list[str], Query(alias="bundle", max_length=50, description="Apply these bundles.")]
ToolName = Annotated[
    str, Path(min_length=1, max_length=64, description="Name of the tool, as returned by the list.")
]


class ToolResponse(api.ApiModel, schema="ToolShown"):
    """A tool."""

    name: str = Field(description="Name to call the tool by.", examples=["github_search"])
    id: str = Field(description="Permanent id of the tool.", examples=["github/search"])
    server: str
    title: str | None
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: dict[str, Any]


class ServerFailure(BaseModel):
    """A server whose tools could not be listed."""

    server: str
    problem: ProblemDetails


class HiddenToolResponse(api.ApiModel, schema="HiddenTool"):
    """A tool that a rule hides."""

    name: str
    id: str
    server: str
    rule: str = Field(description="Name of the rule.", examples=["write tools"])
    reason: str


class ToolList(api.ItemList[ToolResponse]):
    """Tools, hidden tools, and servers that could not be listed."""

    failures: list[ServerFailure] = Field(description="Servers whose tools could not be listed.")
    listed_seconds_ago: dict[str, float] = Field(description="Age of the listing of each server, in seconds.")
    set_aside: list[str] = Field(
        description="Tools that cannot be used, each with the reason. Shown to admins and owners."
    )
    hidden: list[HiddenToolResponse] = Field(
        description="Tools that a rule hides from you. None outside the scope of the token."
    )


class CallRequest(api.RequestModel, schema="CallGiven"):
    """Arguments and context of a tool call."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"arguments": {"query": "retry"}}]})

    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    agent: str | None = Field(default=None, max_length=200, description="Apply the rules of this agent.")
    bundles: list[str] = Field(default_factory=list[str], max_length=50)


class MediaResponse(api.ApiModel, schema="MediaShown"):
    """An image, a sound or a file."""

    kind: Literal["image", "audio", "file"]
    mime: str
    bytes: int
    uri: str | None


class CallResult(api.ApiModel):
    """Result of a call, as text for a model and as sent by the server."""

    text: str = Field(description="Text for a model.")
    is_error: bool = Field(description="Whether the tool reported an error.")
    structured: Any = Field(description="Structured content sent by the server, if any.")
    media: list[MediaResponse]
    warnings: list[str]
    truncated: bool = Field(description="Whether `text` was shortened.")
    raw: Any = Field(description="Result of the server, unchanged except that errors quote no secrets.")


class WhyLink(BaseModel):
    """Verdict of one rule."""

    rule: str
    outcome: Literal["pass", "ask", "grant", "hide", "refuse"]
    reason: str


class WhyResponse(api.ApiModel, schema="Why"):
    """A decision and the chain of rules that led to it."""

    tool: str
    name: str
    verdict: Literal["allow", "ask", "hide", "refuse"]
    chain: list[WhyLink]


# Reading.


@dataclass(frozen=True, slots=True)
class ToolLists:
    """Lists tools, and explains what is missing in the list."""

    tool_directory: deps.ToolDirectoryDep
    call_path: deps.CallPathDep
    locks: deps.LocksDep
    manager: deps.ManagerDep

    async def respond(
        self, request_user: RequestUser, caller: Caller, server_ids: Set[str] | None, *, fresh: bool
    ) -> Response:
        """Return the tools of these servers, or of all, that the caller may use."""
        listing = await self.tool_directory.refresh(caller.principal, fresh=fresh, only=server_ids)
        covered = {
            id_
            for id_, server in self.manager.visible_servers(caller.principal).items()
            if scope_covers_server(caller.scope, server) and (server_ids is None or id_ in server_ids)
        }
        shown = self.call_path.visible_tools(listing, caller)
        listed = ToolList(
            items=[],
            failures=[
                _build_server_failure(self.call_path, id_, error)
                for id_, error in listing.failures.items()
                if id_ in covered
            ],
            listed_seconds_ago={
                id_: round(each.age, 3) for id_, each in listing.catalogues.items() if id_ in covered
            },
            set_aside=[
                *(
                    str(each)
                    for each in listing.quarantined()
                    if request_user.is_admin and each.server_id in covered
                ),
                *_describe_quarantined_tools(self.locks, request_user, listing, covered),
            ],
            hidden=[
                HiddenToolResponse(**asdict(each))
                for each in self.call_path.hidden_tools(listing, caller)
                if each.server in covered
            ],
        )
        tools = (
            dict(_build_tool_model(name, each)) for name, each in shown.items() if each.server_id in covered
        )
        return await api.respond_with_items(tools, listed)


ToolListsDep = Annotated[ToolLists, Depends()]


async def _find_caller(
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    request_user: api.UserWithRead,
    agent: AgentQuery = None,
    bundles: BundlesQuery = [],  # noqa: B006 - never changed
) -> Caller:
    await instance_sync.sync(request_user.principal)
    return await callers.find(request_user, agent, bundles)


_CallerDep = Annotated[Caller, Depends(_find_caller)]


@router.get("", response_model=ToolList, errors=[404], summary="List tools")
async def list_tools(
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    tool_lists: ToolListsDep,
    request_user: api.UserWithRead,
    agent: AgentQuery = None,
    bundles: BundlesQuery = [],  # noqa: B006
    server: Annotated[
        str | None, Query(max_length=200, description="Only tools of this server id or instance slug.")
    ] = None,
    fresh: Annotated[
        bool, Query(description="List all servers again instead of using cached listings.")
    ] = False,
) -> Response:
    """Return the tools that you may use, of configured servers and of your instances, sorted by name. Servers
    that cannot be listed are among the failures."""
    # Not a dependency, so that the parameters keep their published order.
    caller = await _find_caller(callers, instance_sync, request_user, agent, bundles)
    server_ids = None if server is None else _find_server_ids(tool_lists.manager, request_user, server)
    return await tool_lists.respond(request_user, caller, server_ids, fresh=fresh)


@router.get("/{name}", errors=[404, 424, 502, 504], summary="Get a tool")
async def get_tool(caller: _CallerDep, call_path: deps.CallPathDep, name: ToolName) -> ToolResponse:
    """Return a tool that you may use, by its name."""
    return _build_tool_model(name, await call_path.find_tool(name, caller))


@router.get("/{name}/why", errors=[404], summary="Explain access to a tool")
async def explain_tool(
    caller: _CallerDep,
    tool_directory: deps.ToolDirectoryDep,
    call_path: deps.CallPathDep,
    name: ToolName,
) -> WhyResponse:
    """Explain by which rules you may or may not see and call a tool. Servers that were listed before are not
    listed again."""
    await tool_directory.refresh(caller.principal)
    return WhyResponse.of(call_path.explain(name, caller))


# Calling.


@router.post(
    "/{name}/call",
    response_model=CallResult,
    errors=[404, 413, 415, 424, 502, 504],
    summary="Call a tool",
)
async def call_tool(
    user_tools: deps.UserToolsDep,
    request_user: api.UserWithCall,
    name: ToolName,
    given: CallRequest,
    request: Request,
) -> Response:
    """Call a tool by its name. An error of the tool is a result with `is_error`; a failure of the server is a
    problem. A tool that a rule hides is refused with the reason; one outside the scope of the token, or of
    another person, is answered like one that does not exist. Disconnect to cancel the call."""
    call = user_tools.call(request_user, name, given.arguments, agent=given.agent, bundles=given.bundles)
    result = await _cancel_on_disconnect(request, call)
    # Pydantic cannot serialise deeply nested results. The call has been made, so it must not fail now.
    media = [MediaResponse.values_of(each, bytes=each.size) for each in result.media]
    body = CallResult.values_of(result, media=media, warnings=list(result.warnings))
    return Response(encode(await encode_large_members(body)), media_type=api.JSON_CONTENT_TYPE)


# Helpers.


async def _cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel it and raise HTTPException if the client disconnects.

    The body of the request must have been read, because the disconnect message follows it.
    """
    loop = asyncio.get_running_loop()
    work_task, disconnect_task = loop.create_task(work), loop.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((work_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
    finally:
        for task in (work_task, disconnect_task):
            task.cancel()
        await asyncio.wait((work_task, disconnect_task))
    raise HTTPException(400, "the client disconnected")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _describe_quarantined_tools(
    locks: CombinedLocks, request_user: RequestUser, listing: ToolListing, covered: Set[str]
) -> Iterator[str]:
    """Yield the quarantined tools that the user can accept, as an admin or as the owner of an instance."""
    for server_id, catalogue in listing.catalogues.items():
        if server_id in covered and (request_user.is_admin or server_id.startswith("@")):
            for tool, reason in locks.quarantine_reasons(catalogue.contents).items():
                yield f"tool '{tool}' of server '{server_id}' is quarantined: {reason}"


def _find_server_ids(manager: ConnectionManager, request_user: RequestUser, name: str) -> set[str]:
    """Return the ids of the configured server or instance with this name. Raises NotFound."""
    server_ids = {
        id_
        for id_, server in manager.visible_servers(request_user.principal).items()
        if scope_covers_server(request_user.scope, server)
        and name in (id_, server.instance.slug if server.instance is not None else id_)
    }
    if not server_ids:
        raise NotFound(f"unknown server '{name}'", hint="GET /api/v1/status lists the servers")
    return server_ids


def _build_server_failure(call_path: CallPath, server_id: str, error: ServerError) -> ServerFailure:
    call_path.redact_error(error)
    return ServerFailure(server=server_id, problem=describe_error(error)[0])


def _build_tool_model(name: str, definition: Definition) -> ToolResponse:
    return ToolResponse.model_construct(
        name=name,
        id=definition.id,
        server=definition.server_id,
        title=definition.title,
        description=definition.description,
        input_schema=dict(definition.input_schema),
        output_schema=None if definition.output_schema is None else dict(definition.output_schema),
        annotations=dict(definition.annotations),
    )
