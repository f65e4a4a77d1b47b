"""``/agents``: who there is to talk to, and what each of them has."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from toolyard.errors import Problem
from toolyard.types.agent import Agent
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.agent_tools import (
    AgentTool,
    find_agent_problems,
    find_usable_agent,
    list_usable_agents,
    resolve_agent_tools,
)
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.tools import ServerFailure
from toolyard.web.problem_details import describe_error

__all__ = ["router"]

router = APIRouter(
    prefix="/agents", tags=["agents"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


class AgentShown(BaseModel):
    """An agent of AGENTS.md."""

    id: str = Field(examples=["reviewer"])
    name: str = Field(examples=["Reviewer"])
    description: str
    model: str | None = Field(description="null: the one that the settings name.")
    tools: list[str] | None = Field(description="Its patterns, as written; null: all tools.")
    bundles: list[str]
    mode: Literal["direct", "meta"] | None = Field(description="null: as its tools' cost demands.")
    file: str | None = Field(description="Where it stands; for admins.")
    line: int | None = Field(description="Where it stands; for admins.")


class AgentProblem(BaseModel):
    """Something that is wrong in AGENTS.md."""

    message: str
    file: str | None
    line: int | None
    path: str = Field(description="The agent and the key, where one is meant.", examples=["Reviewer.tools"])
    hint: str | None


class AgentList(BaseModel):
    """The agents in force."""

    items: list[AgentShown]
    problems: list[AgentProblem] = Field(
        description="Why the file as it is now is not in force, or an agent cannot be used; for admins. "
        "The agents that were good before stay."
    )


class AgentToolShown(BaseModel):
    """A tool, and whether the agent has it in a chat."""

    name: str = Field(examples=["github_search"])
    id: str = Field(examples=["github/search"])
    server: str
    server_label: str
    native: bool = Field(description="One of Toolyard's own.")
    title: str | None
    description: str
    shown: bool
    through: Literal["direct", "meta"] | None = Field(
        description="With a definition of its own, by the meta tools, or not at all."
    )
    asks: bool = Field(description="Whether each call needs a yes.")
    why: str = Field(description="The words of the rule that hides it or asks first; empty where none does.")


class AgentToolList(BaseModel):
    """All tools that you have, by name, and which of them the agent has."""

    items: list[AgentToolShown]
    because: str = Field(description="Why it has the meta tools; empty where it has none.")
    unmatched: list[str] = Field(description="Its patterns that none of these names fits.")
    failures: list[ServerFailure] = Field(description="Whose tools could not be listed, and why.")


@router.get("", responses=problem_responses(), summary="The agents")
async def list_agents(site: AppServices, visitor: UserWithRead) -> AgentList:
    """Those that you may use, in the order of the file."""
    agents = list_usable_agents(site, visitor)
    wrong = [
        *site.loaded_agents.problems,
        *(each for agent in agents for each in find_agent_problems(site, agent)),
    ]
    return AgentList(
        items=[_build_agent_model(agent, visitor) for agent in agents],
        problems=[_build_problem_model(each) for each in wrong] if visitor.is_admin else [],
    )


@router.get("/{id}/tools", responses=problem_responses(404), summary="The tools of an agent")
async def list_agent_tools(site: AppServices, visitor: UserWithRead, id: PathId) -> AgentToolList:
    """All tools that you have, whether the agent sees them in a chat, and why not the others. A token with
    limits shows what it is for."""
    found = await resolve_agent_tools(site, visitor, find_usable_agent(site, visitor, id))
    return AgentToolList(
        items=[_build_agent_tool_model(each) for each in found.tools],
        because=found.because,
        unmatched=list(found.unmatched),
        failures=[
            ServerFailure(server=each.server, problem=describe_error(each.error)[0])
            for each in found.failures
        ],
    )


def _build_agent_model(agent: Agent, visitor: RequestUser) -> AgentShown:
    return AgentShown(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        model=agent.model,
        tools=None if agent.tools is None else list(agent.tools),
        bundles=list(agent.bundles),
        mode=agent.mode,
        file=agent.file if visitor.is_admin else None,
        line=agent.line if visitor.is_admin else None,
    )


def _build_problem_model(problem: Problem) -> AgentProblem:
    return AgentProblem(
        message=problem.message, file=problem.file, line=problem.line, path=problem.path, hint=problem.hint
    )


def _build_agent_tool_model(tool: AgentTool) -> AgentToolShown:
    return AgentToolShown.model_construct(
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
