"""``/ui/agents``: agents, their instructions and their tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.core.current_config import CurrentConfig
from toolyard.errors import Problem
from toolyard.registry.errors import NotFound
from toolyard.types.agent import Agent
from toolyard.web.access.dependencies import RequestUser, require_user
from toolyard.web.agent_tools import (
    AgentDirectory,
    AgentTool,
    AgentTools,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AgentDirectoryDep, ConfigDep
from toolyard.web.ui.components.render import is_fragment_request, render_large_page, render_page

__all__ = ["AgentToolGroup", "group_agent_tools", "router"]

router = Routes()

CurrentUser = Annotated[RequestUser, Depends(require_user)]


@dataclass(frozen=True, slots=True)
class AgentsPage:
    """Content of the list of agents. ``problems`` of the file and its path are for admins only."""

    agents: Sequence[Agent]
    broken: Mapping[str, Sequence[Problem]]
    """Problems of agents that cannot be used, by agent id."""
    problems: Sequence[Problem]
    file: str | None


@dataclass(frozen=True, slots=True)
class AgentToolGroup:
    """Tools of one server: those available to the agent, and those hidden from it."""

    server: str
    label: str
    native: bool
    seen: Sequence[AgentTool]
    hidden: Sequence[AgentTool]


@dataclass(frozen=True, slots=True)
class AgentPage:
    """Content of an agent's page. ``tools`` is None if they are loaded separately."""

    agent: Agent
    problems: Sequence[Problem]
    """Reasons why it cannot be used."""
    warnings: Sequence[Problem]
    """Unknown tools of an agent that can be used."""
    place: str | None
    tools: AgentTools | None = None

    @property
    def groups(self) -> list[AgentToolGroup]:
        """The tools, grouped by server."""
        return group_agent_tools(() if self.tools is None else self.tools.tools)

    @property
    def counts(self) -> tuple[int, int]:
        """Number of tools available to the agent, and of all tools."""
        tools = () if self.tools is None else self.tools.tools
        return sum(each.through is not None for each in tools), len(tools)

    @property
    def tokens(self) -> int:
        """Estimated tokens of the definitions that the agent's model reads directly."""
        tools = () if self.tools is None else self.tools.tools
        return sum(each.tokens for each in tools if each.through == "direct")


def group_agent_tools(tools: Sequence[AgentTool]) -> list[AgentToolGroup]:
    """Group tools by server. Groups with available tools come first, then by label, built-in tools last."""
    by_server: dict[str, list[AgentTool]] = {}
    for each in tools:
        by_server.setdefault(each.server, []).append(each)
    groups = [
        AgentToolGroup(
            server,
            group[0].server_label,
            group[0].native,
            [each for each in group if each.through is not None],
            [each for each in group if each.through is None],
        )
        for server, group in by_server.items()
    ]
    return sorted(groups, key=lambda group: (not group.seen, group.native, group.label.lower(), group.server))


@router.get("/ui/agents")
async def show_agents(
    request: Request, me: CurrentUser, config: ConfigDep, agent_directory: AgentDirectoryDep
) -> Response:
    """Show all agents, and to admins the problems of their file."""
    agents = agent_directory.list_usable_agents(me)
    page = AgentsPage(
        agents,
        {agent.id: found for agent in agents if (found := agent_directory.find_bundle_problems(agent))},
        config.loaded_agents.problems if me.is_admin else (),
        str(config.loaded_agents.path) if me.is_admin else None,
    )
    return render_page(request, "agents.html", page=page)


@router.get("/ui/agents/{agent_id}")
async def show_agent(
    request: Request, me: CurrentUser, agent_id: str, config: ConfigDep, agent_directory: AgentDirectoryDep
) -> Response:
    """Show one agent without its tools, which the page loads separately."""
    return render_page(
        request,
        "agent.html",
        page=_build_page(agent_directory, me, _find_agent(config, agent_directory, me, agent_id)),
    )


@router.get("/ui/agents/{agent_id}/tools")
async def show_agent_tools(
    request: Request, me: CurrentUser, agent_id: str, config: ConfigDep, agent_directory: AgentDirectoryDep
) -> Response:
    """Show one agent with its tools, or only the tools as a fragment for the script."""
    agent = _find_agent(config, agent_directory, me, agent_id)
    page = _build_page(agent_directory, me, agent)
    if not page.problems:
        page = _build_page(agent_directory, me, agent, await agent_directory.resolve_agent_tools(me, agent))
    return await render_large_page(
        request, "agent_tools.html" if is_fragment_request(request) else "agent.html", page=page
    )


def _find_agent(
    config: CurrentConfig, agent_directory: AgentDirectory, me: RequestUser, agent_id: str
) -> Agent:
    # On a page, a missing agent is a 404, not an error of the configuration.
    if agent_id not in config.agents:
        raise NotFound(f"agent '{agent_id}' not found", hint="it may have been removed from AGENTS.md")
    return agent_directory.find_usable_agent(me, agent_id)


def _build_page(
    agent_directory: AgentDirectory, me: RequestUser, agent: Agent, tools: AgentTools | None = None
) -> AgentPage:
    place = f"{agent.file}:{agent.line}" if agent.file and agent.line else agent.file
    problems = agent_directory.find_bundle_problems(agent)
    warnings = () if problems else agent_directory.find_agent_problems(me, agent)
    return AgentPage(agent, problems, warnings, place if me.is_admin else None, tools)
