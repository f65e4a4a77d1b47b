"""``/agents``: the agents of AGENTS.md and their tools."""

from __future__ import annotations

from typing import Literal

from fastapi import Depends, Response
from pydantic import BaseModel, Field

from toolyard.concurrency.tasks import iterate_in_steps
from toolyard.errors import Problem
from toolyard.protocol.codec import encode, encode_fragment
from toolyard.types.agent import Agent
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.agent_tools import (
    AgentTool,
)
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.tools import ServerFailure
from toolyard.web.problem_details import describe_error
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AgentDirectoryDep, ConfigDep

__all__ = ["router"]

router = Routes(
    prefix="/agents", tags=["agents"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


class AgentResponse(ApiModel, schema="AgentShown"):
    """An agent defined in AGENTS.md."""

    id: str = Field(examples=["reviewer"])
    name: str = Field(examples=["Reviewer"])
    description: str
    model: str | None = Field(description="Model of the agent; null for the default model.")
    tools: list[str] | None = Field(description="Tool patterns as written in the file; null for all tools.")
    bundles: list[str]
    mode: Literal["direct", "meta"] | None = Field(
        description="Tool mode; null to choose by the cost of the tools."
    )
    file: str | None = Field(description="File of the definition. Shown to admins only.")
    line: int | None = Field(description="Line of the definition. Shown to admins only.")


class AgentProblem(BaseModel):
    """A problem in AGENTS.md."""

    message: str
    file: str | None
    line: int | None
    path: str = Field(
        description="Agent and key that the problem is about, if any.", examples=["Reviewer.tools"]
    )
    hint: str | None


class AgentList(BaseModel):
    """The agents in use."""

    items: list[AgentResponse]
    problems: list[AgentProblem] = Field(
        description="Problems of the current file or of single agents. Shown to admins only. While the file "
        "is not valid, the last valid agents stay in use."
    )


class AgentToolResponse(ApiModel, schema="AgentToolShown"):
    """A tool and the access that the agent has to it in a chat."""

    name: str = Field(examples=["github_search"])
    id: str = Field(examples=["github/search"])
    server: str
    server_label: str
    native: bool = Field(description="Whether it is a built-in tool of Toolyard.")
    title: str | None
    description: str
    shown: bool = Field(description="Whether the model can use the tool.")
    through: Literal["direct", "meta"] | None = Field(
        description="Access by its own definition (`direct`) or through the meta tools; null if hidden."
    )
    asks: bool = Field(description="Whether each call needs approval.")
    why: str = Field(description="Reason why the tool is hidden or needs approval; empty if neither applies.")


class AgentToolList(BaseModel):
    """All your tools, with the access that the agent has to each."""

    items: list[AgentToolResponse]
    because: str = Field(description="Reason for offering meta tools; empty if there are none.")
    unmatched: list[str] = Field(description="Patterns of the agent that match none of these tools.")
    failures: list[ServerFailure] = Field(description="Servers whose tools could not be listed.")


@router.get("", responses=problem_responses(), summary="List agents")
async def list_agents(
    config: ConfigDep, agent_directory: AgentDirectoryDep, request_user: UserWithRead
) -> AgentList:
    """Return the agents that you may use, in file order."""
    agents = agent_directory.list_usable_agents(request_user)
    problems = [
        *config.loaded_agents.problems,
        *(each for agent in agents for each in agent_directory.find_agent_problems(request_user, agent)),
    ]
    return AgentList(
        items=[_build_agent_model(agent, request_user) for agent in agents],
        problems=[_build_problem_model(each) for each in problems] if request_user.is_admin else [],
    )


@router.get(
    "/{id}/tools",
    response_model=AgentToolList,
    responses=problem_responses(404),
    summary="List the tools of an agent",
)
async def list_agent_tools(
    agent_directory: AgentDirectoryDep, request_user: UserWithRead, id: PathId
) -> Response:
    """Return all your tools, whether the agent can use them in a chat, and the reason for hidden ones. A
    token with limits shows only the tools that it covers."""
    resolved = await agent_directory.resolve_agent_tools(
        request_user, agent_directory.find_usable_agent(request_user, id)
    )
    listed = AgentToolList(
        items=[],
        because=resolved.because,
        unmatched=list(resolved.unmatched),
        failures=[
            ServerFailure(server=each.server, problem=describe_error(each.error)[0])
            for each in resolved.failures
        ],
    )
    # Encoded in steps, because a server may have ten thousand tools.
    tools = [
        encode_fragment(dict(_build_agent_tool_model(each)))
        async for each in iterate_in_steps(resolved.tools)
    ]
    body = {**listed.model_dump(mode="json", by_alias=True), "items": tools}
    return Response(encode(body), media_type=JSON_CONTENT_TYPE)


def _build_agent_model(agent: Agent, request_user: RequestUser) -> AgentResponse:
    return AgentResponse(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        model=agent.model,
        tools=None if agent.tools is None else list(agent.tools),
        bundles=list(agent.bundles),
        mode=agent.mode,
        file=agent.file if request_user.is_admin else None,
        line=agent.line if request_user.is_admin else None,
    )


def _build_problem_model(problem: Problem) -> AgentProblem:
    return AgentProblem(
        message=problem.message, file=problem.file, line=problem.line, path=problem.path, hint=problem.hint
    )


def _build_agent_tool_model(tool: AgentTool) -> AgentToolResponse:
    return AgentToolResponse.model_construct(
        name=tool.name,
        id=tool.id,
        server=tool.server,
        server_label=tool.server_label,
        native=tool.native,
        title=tool.title,
        description=tool.description,
        shown=tool.through is not None,
        through=tool.through,
        asks=tool.asks,
        why=tool.why,
    )
