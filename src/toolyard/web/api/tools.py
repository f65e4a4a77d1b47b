"""``/tools``: what this visitor may see and call, of the configuration's servers and their own instances."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.catalog.tool_listing import Roster
from toolyard.errors import ServerError
from toolyard.policy.rules.token_scope import covers
from toolyard.protocol.codec import encode
from toolyard.registry.errors import NotFound
from toolyard.types.call import Caller
from toolyard.types.decision import Decision
from toolyard.types.result import Result
from toolyard.types.tool import Definition
from toolyard.web.access.dependencies import Visitor
from toolyard.web.api.dependencies import JSON, Calling, Given, Reading, Served, problems, produces
from toolyard.web.middleware.disconnect import while_there
from toolyard.web.problem_details import ProblemDetails, describe
from toolyard.web.services import Site

__all__ = ["ToolList", "list_tools_of", "router"]

router = APIRouter(prefix="/tools", tags=["tools"], dependencies=[Depends(produces(JSON))])

ToolName = Annotated[
    str, Path(min_length=1, max_length=64, description="What the tool is called by, as the list shows it.")
]
AsAgent = Annotated[str | None, Query(min_length=1, max_length=200, description="As this agent sees them.")]
WithBundles = Annotated[
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


@router.get("", responses=problems(404), summary="The tools that you may use")
async def list_tools(
    site: Served,
    visitor: Reading,
    agent: AsAgent = None,
    bundles: WithBundles = [],  # noqa: B006 - never changed
    server: Annotated[
        str | None, Query(max_length=200, description="Of this server, or this slug, only.")
    ] = None,
    fresh: Annotated[bool, Query(description="Ask every server again.")] = False,
) -> ToolList:
    """All tools of the configuration's servers and of your instances that you may use, by name. A server that
    cannot be asked is among the failures."""
    await site.enter(visitor)
    caller = site.caller(visitor, agent=agent, bundles=bundles)
    wanted = None if server is None else _named(site, visitor, server)
    return await _list(site, visitor, caller, wanted, fresh=fresh)


@router.get("/{name}", responses=problems(404, 424, 502, 504), summary="One tool")
async def get_tool(
    site: Served,
    visitor: Reading,
    name: ToolName,
    agent: AsAgent = None,
    bundles: WithBundles = [],  # noqa: B006
) -> ToolShown:
    """One tool that you may use, by its name."""
    await site.enter(visitor)
    caller = site.caller(visitor, agent=agent, bundles=bundles)
    return _tool(name, await site.find(caller, name))


@router.get("/{name}/why", responses=problems(404), summary="Why a tool may be used, or not")
async def explain_tool(
    site: Served,
    visitor: Reading,
    name: ToolName,
    agent: AsAgent = None,
    bundles: WithBundles = [],  # noqa: B006
) -> Why:
    """Whether you may see and call a tool, and the rules that say so. Speaks of what was listed so far."""
    await site.enter(visitor)
    caller = site.caller(visitor, agent=agent, bundles=bundles)
    await site.parts.rosters.current(caller.principal)
    return _why(site.parts.calls.explain(name, caller))


# Calling.


@router.post(
    "/{name}/call",
    response_model=CallResult,
    responses=problems(404, 413, 415, 424, 502, 504),
    summary="Call a tool",
)
async def call_tool(
    site: Served, visitor: Calling, name: ToolName, given: CallGiven, request: Request
) -> Response:
    """Call a tool by its name. A tool's own failure is a result with `is_error`; a server that fails is a
    problem. What is refused and what does not exist give the same answer. Hang up to cancel the call."""
    call = site.call(visitor, name, given.arguments, agent=given.agent, bundles=given.bundles)
    shown = _result(await while_there(request, call))
    # Pydantic gives up where an answer nests deeply, and the call was made.
    body = {**dict(shown), "media": [dict(each) for each in shown.media]}
    return Response(encode(body), media_type=JSON)


# How it is put together.


async def list_tools_of(site: Site, visitor: Visitor, core_id: str) -> ToolList:
    """The tools of one server, asked now."""
    return await _list(site, visitor, site.caller(visitor), {core_id}, fresh=True)


async def _list(
    site: Site, visitor: Visitor, caller: Caller, wanted: Set[str] | None, *, fresh: bool
) -> ToolList:
    manager, calls = site.parts.manager, site.parts.calls
    roster = await site.parts.rosters.current(caller.principal, fresh=fresh, only=wanted)
    covered = {
        id_
        for id_, server in manager.visible(caller.principal).items()
        if covers(caller.scope, server) and (wanted is None or id_ in wanted)
    }
    shown = calls.shown(roster, caller)
    return ToolList(
        items=[_tool(name, each) for name, each in shown.items() if each.server_id in covered],
        failures=[_failure(site, id_, error) for id_, error in roster.failures.items() if id_ in covered],
        listed_seconds_ago={
            id_: round(each.age, 3) for id_, each in roster.catalogues.items() if id_ in covered
        },
        set_aside=[
            *(str(each) for each in roster.quarantined() if visitor.is_admin and each.server_id in covered),
            *_unaccepted(site, visitor, roster, covered),
        ],
    )


def _unaccepted(site: Site, visitor: Visitor, roster: Roster, covered: Set[str]) -> Iterator[str]:
    """Tools in quarantine, for those who can accept them: admins, and the owners of instances."""
    for server_id, catalogue in roster.catalogues.items():
        if server_id in covered and (visitor.is_admin or server_id.startswith("@")):
            for tool, reason in site.parts.locks.reasons(catalogue.contents).items():
                yield f"tool '{tool}' of server '{server_id}' is quarantined: {reason}"


def _named(site: Site, visitor: Visitor, name: str) -> set[str]:
    """The server of the configuration, or the instance, of this name. Raises NotFound."""
    found = {
        id_
        for id_, server in site.parts.manager.visible(visitor.principal).items()
        if covers(visitor.scope, server)
        and name in (id_, server.instance.slug if server.instance is not None else id_)
    }
    if not found:
        raise NotFound(f"there is no server '{name}' here", hint="GET /api/v1/status lists them")
    return found


def _failure(site: Site, server_id: str, error: ServerError) -> ServerFailure:
    site.parts.calls.hush(error)
    return ServerFailure(server=server_id, problem=describe(error)[0])


def _tool(name: str, definition: Definition) -> ToolShown:
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


def _result(result: Result) -> CallResult:
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


def _why(decision: Decision) -> Why:
    return Why(
        tool=decision.tool,
        name=decision.name,
        verdict=decision.verdict.value,
        chain=[
            WhyLink(rule=each.rule, outcome=each.outcome.value, reason=each.reason) for each in decision.chain
        ],
    )
