"""``/ui/agents``: who there is to talk to, what each is told, and which tools it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.errors import Problem
from toolyard.registry.errors import NotFound
from toolyard.types.agent import Agent
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.agent_tools import AgentTool, AgentTools, agent_for, agent_problems, agents_for, tools_of
from toolyard.web.services import Site
from toolyard.web.ui.components.render import render, wants_part

__all__ = ["ToolGroup", "grouped", "router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(visitor)]


@dataclass(frozen=True, slots=True)
class AgentsPage:
    """All agents. ``problems`` are of the file as it is now; for admins, as is its place."""

    agents: Sequence[Agent]
    broken: Mapping[str, Sequence[Problem]]
    """By agent, what keeps it from being used."""
    problems: Sequence[Problem]
    file: str | None


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """One server's tools: those that the agent has, and those that it has not."""

    server: str
    label: str
    native: bool
    seen: Sequence[AgentTool]
    hidden: Sequence[AgentTool]


@dataclass(frozen=True, slots=True)
class AgentPage:
    """One agent. ``tools`` is None where they are fetched after the page."""

    agent: Agent
    problems: Sequence[Problem]
    place: str | None
    tools: AgentTools | None = None

    @property
    def groups(self) -> list[ToolGroup]:
        """The tools by server."""
        return grouped(() if self.tools is None else self.tools.tools)

    @property
    def counts(self) -> tuple[int, int]:
        """How many tools it has, and how many there are."""
        tools = () if self.tools is None else self.tools.tools
        return sum(each.through is not None for each in tools), len(tools)

    @property
    def tokens(self) -> int:
        """What the definitions that its model sees cost."""
        tools = () if self.tools is None else self.tools.tools
        return sum(each.tokens for each in tools if each.through == "direct")


def grouped(tools: Sequence[AgentTool]) -> list[ToolGroup]:
    """Tools by server: those of which the agent has any first, then by label, Toolyard's own last."""
    found: dict[str, list[AgentTool]] = {}
    for each in tools:
        found.setdefault(each.server, []).append(each)
    groups = [
        ToolGroup(
            server,
            mine[0].server_label,
            mine[0].native,
            [each for each in mine if each.through is not None],
            [each for each in mine if each.through is None],
        )
        for server, mine in found.items()
    ]
    return sorted(groups, key=lambda group: (not group.seen, group.native, group.label.lower(), group.server))


@router.get("/ui/agents")
async def show_agents(request: Request, me: Me) -> Response:
    """All agents, and what is wrong with their file."""
    site: Site = request.app.state.site
    agents = agents_for(site, me)
    page = AgentsPage(
        agents,
        {agent.id: found for agent in agents if (found := agent_problems(site, agent))},
        site.agents_now.problems if me.is_admin else (),
        str(site.agents_now.path) if me.is_admin else None,
    )
    return render(request, "agents.html", page=page)


@router.get("/ui/agents/{agent_id}")
async def show_agent(request: Request, me: Me, agent_id: str) -> Response:
    """One agent, at once. Its tools come after it."""
    site: Site = request.app.state.site
    return render(request, "agent.html", page=_page(site, me, _agent(site, me, agent_id)))


@router.get("/ui/agents/{agent_id}/tools")
async def show_agent_tools(request: Request, me: Me, agent_id: str) -> Response:
    """The same with the tools: the script takes that part of it."""
    site: Site = request.app.state.site
    agent = _agent(site, me, agent_id)
    page = _page(site, me, agent)
    if not page.problems:
        page = _page(site, me, agent, await tools_of(site, me, agent))
    return render(request, "agent_tools.html" if wants_part(request) else "agent.html", page=page)


def _agent(site: Site, me: Visitor, agent_id: str) -> Agent:
    if agent_id not in site.agents:
        raise NotFound(f"there is no agent '{agent_id}'", hint="it may have been taken out of AGENTS.md")
    return agent_for(site, me, agent_id)


def _page(site: Site, me: Visitor, agent: Agent, tools: AgentTools | None = None) -> AgentPage:
    place = f"{agent.file}:{agent.line}" if agent.file and agent.line else agent.file
    return AgentPage(agent, agent_problems(site, agent), place if me.is_admin else None, tools)
