"""``/tools``: what this visitor may see and call, of the configuration's servers and their own instances."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import ServerError
from toolyard.policy.rules.token_scope import scope_covers_server
from toolyard.protocol.codec import encode
from toolyard.registry.errors import NotFound
from toolyard.types.call import Caller
from toolyard.types.decision import Decision
from toolyard.types.result import Result
from toolyard.types.tool import Definition
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    Given,
    UserWithCall,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.middleware.disconnect import cancel_on_disconnect
from toolyard.web.problem_details import ProblemDetails, describe_error
from toolyard.web.services import Services

__all__ = ["ToolList", "list_server_tools", "router"]

router = APIRouter(
    prefix="/tools", tags=["tools"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)

ToolName = Annotated[
    str, Path(min_length=1, max_length=64, description="What the tool is called by, as the list shows it.")
]
AgentQuery = Annotated[
    str | None, Query(min_length=1, max_length=200, description="As this agent sees them.")
]
BundlesQuery = Annotated[
    list[str], Query(alias="bundle", max_length=50, description="With these bundles selected.")
]


class ToolShown(BaseModel):
    """A tool."""

    name: str = Field(description="What to call it by.", examples=["github_search"])
    id: str = Field(description="What names it for good.", examples=["github/search"])
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


class ToolList(BaseModel):
    """Tools, by name."""

    items: list[ToolShown]
    failures: list[ServerFailure] = Field(description="Whose tools could not be listed, and why.")
    listed_seconds_ago: dict[str, float] = Field(description="How old the list of each server is.")
    set_aside: list[str] = Field(description="Tools that cannot be used, and why; for admins and owners.")


class CallGiven(Given):
    """A call."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"arguments": {"query": "retry"}}]})

    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    agent: str | None = Field(default=None, max_length=200, description="As this agent.")
    bundles: list[str] = Field(default_factory=list[str], max_length=50)


class MediaShown(BaseModel):
    """An image, a sound or a file."""

    kind: Literal["image", "audio", "file"]
    mime: str
    bytes: int
    uri: str | None


class CallResult(BaseModel):
    """What a call came to, in two views."""

    text: str = Field(description="What a model reads.")
    is_error: bool = Field(description="Whether the tool itself answered with an error.")
    structured: Any = Field(description="The server's structured content, if it sent some.")
    media: list[MediaShown]
    warnings: list[str]
    truncated: bool = Field(description="Whether `text` is shorter than what the tool said.")
    raw: Any = Field(description="The server's answer as it came.")


class WhyLink(BaseModel):
    """One rule's word."""

    rule: str
    outcome: Literal["pass", "ask", "grant", "hide", "refuse"]
    reason: str


class Why(BaseModel):
    """A decision, and the chain of rules that led to it."""

    tool: str
    name: str
    verdict: Literal["allow", "ask", "hide", "refuse"]
    chain: list[WhyLink]


# Seeing.


@router.get("", responses=problem_responses(404), summary="The tools that you may use")
async def list_tools(
    site: AppServices,
    visitor: UserWithRead,
    agent: AgentQuery = None,
    bundles: BundlesQuery = [],  # noqa: B006 - never changed
    server: Annotated[
        str | None, Query(max_length=200, description="Of this server, or this slug, only.")
    ] = None,
    fresh: Annotated[bool, Query(description="Ask every server again.")] = False,
) -> ToolList:
    """All tools of the configuration's servers and of your instances that you may use, by name. A server that
    cannot be asked is among the failures."""
    await site.sync_instances(visitor)
    caller = site.get_caller(visitor, agent=agent, bundles=bundles)
    wanted = None if server is None else _find_server_ids(site, visitor, server)
    return await _build_tool_list(site, visitor, caller, wanted, fresh=fresh)


@router.get("/{name}", responses=problem_responses(404, 424, 502, 504), summary="One tool")
async def get_tool(
    site: AppServices,
    visitor: UserWithRead,
    name: ToolName,
    agent: AgentQuery = None,
    bundles: BundlesQuery = [],  # noqa: B006
) -> ToolShown:
    """One tool that you may use, by its name."""
    await site.sync_instances(visitor)
    caller = site.get_caller(visitor, agent=agent, bundles=bundles)
    return _build_tool_model(name, await site.find_tool(caller, name))


@router.get("/{name}/why", responses=problem_responses(404), summary="Why a tool may be used, or not")
async def explain_tool(
    site: AppServices,
    visitor: UserWithRead,
    name: ToolName,
    agent: AgentQuery = None,
    bundles: BundlesQuery = [],  # noqa: B006
) -> Why:
    """Whether you may see and call a tool, and the rules that say so. Speaks of what was listed so far."""
    await site.sync_instances(visitor)
    caller = site.get_caller(visitor, agent=agent, bundles=bundles)
    await site.parts.tool_directory.refresh(caller.principal)
    return _build_why_model(site.parts.call_path.explain(name, caller))


# Calling.


@router.post(
    "/{name}/call",
    response_model=CallResult,
    responses=problem_responses(404, 413, 415, 424, 502, 504),
    summary="Call a tool",
)
async def call_tool(
    site: AppServices, visitor: UserWithCall, name: ToolName, given: CallGiven, request: Request
) -> Response:
    """Call a tool by its name. A tool's own failure is a result with `is_error`; a server that fails is a
    problem. What is refused and what does not exist give the same answer. Hang up to cancel the call."""
    call = site.call_tool(visitor, name, given.arguments, agent=given.agent, bundles=given.bundles)
    shown = _build_call_result(await cancel_on_disconnect(request, call))
    # Pydantic gives up where an answer nests deeply, and the call was made.
    body = {**dict(shown), "media": [dict(each) for each in shown.media]}
    return Response(encode(body), media_type=JSON_CONTENT_TYPE)


# How it is put together.


async def list_server_tools(site: Services, visitor: RequestUser, core_id: str) -> ToolList:
    """The tools of one server, asked now."""
    return await _build_tool_list(site, visitor, site.get_caller(visitor), {core_id}, fresh=True)


async def _build_tool_list(
    site: Services, visitor: RequestUser, caller: Caller, wanted: Set[str] | None, *, fresh: bool
) -> ToolList:
    manager, calls = site.parts.manager, site.parts.call_path
    roster = await site.parts.tool_directory.refresh(caller.principal, fresh=fresh, only=wanted)
    covered = {
        id_
        for id_, server in manager.visible_servers(caller.principal).items()
        if scope_covers_server(caller.scope, server) and (wanted is None or id_ in wanted)
    }
    shown = calls.shown(roster, caller)
    return ToolList(
        items=[_build_tool_model(name, each) for name, each in shown.items() if each.server_id in covered],
        failures=[
            _build_server_failure(site, id_, error)
            for id_, error in roster.failures.items()
            if id_ in covered
        ],
        listed_seconds_ago={
            id_: round(each.age, 3) for id_, each in roster.catalogues.items() if id_ in covered
        },
        set_aside=[
            *(str(each) for each in roster.quarantined() if visitor.is_admin and each.server_id in covered),
            *_describe_quarantined_tools(site, visitor, roster, covered),
        ],
    )


def _describe_quarantined_tools(
    site: Services, visitor: RequestUser, roster: ToolListing, covered: Set[str]
) -> Iterator[str]:
    """Tools in quarantine, for those who can accept them: admins, and the owners of instances."""
    for server_id, catalogue in roster.catalogues.items():
        if server_id in covered and (visitor.is_admin or server_id.startswith("@")):
            for tool, reason in site.parts.locks.quarantine_reasons(catalogue.contents).items():
                yield f"tool '{tool}' of server '{server_id}' is quarantined: {reason}"


def _find_server_ids(site: Services, visitor: RequestUser, name: str) -> set[str]:
    """The server of the configuration, or the instance, of this name. Raises NotFound."""
    found = {
        id_
        for id_, server in site.parts.manager.visible_servers(visitor.principal).items()
        if scope_covers_server(visitor.scope, server)
        and name in (id_, server.instance.slug if server.instance is not None else id_)
    }
    if not found:
        raise NotFound(f"there is no server '{name}' here", hint="GET /api/v1/status lists them")
    return found


def _build_server_failure(site: Services, server_id: str, error: ServerError) -> ServerFailure:
    site.parts.call_path.redact_error(error)
    return ServerFailure(server=server_id, problem=describe_error(error)[0])


def _build_tool_model(name: str, definition: Definition) -> ToolShown:
    return ToolShown.model_construct(
        name=name,
        id=definition.id,
        server=definition.server_id,
        title=definition.title,
        description=definition.description,
        input_schema=dict(definition.input_schema),
        output_schema=None if definition.output_schema is None else dict(definition.output_schema),
        annotations=dict(definition.annotations),
    )


def _build_call_result(result: Result) -> CallResult:
    return CallResult(
        text=result.text,
        is_error=result.is_error,
        structured=result.structured,
        media=[
            MediaShown(kind=each.kind, mime=each.mime, bytes=each.size, uri=each.uri) for each in result.media
        ],
        warnings=list(result.warnings),
        truncated=result.truncated,
        raw=result.raw,
    )


def _build_why_model(decision: Decision) -> Why:
    return Why(
        tool=decision.tool,
        name=decision.name,
        verdict=decision.verdict.value,
        chain=[
            WhyLink(rule=each.rule, outcome=each.outcome.value, reason=each.reason) for each in decision.chain
        ],
    )
