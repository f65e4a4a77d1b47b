"""``/ui/budget``: what the definitions of a person's tools cost in tokens, and which were not used."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fastapi import Request, Response

from toolyard.catalog.token_costs import ToolCost, estimate_definition_tokens
from toolyard.errors import ToolyardError
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.tool_savings import USAGE_SECONDS
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.server_names import ServerNamesReaderDep

__all__ = ["router"]

router = Routes()

_MAX_LISTED_TOOLS = 200


@dataclass(frozen=True)
class ServerBudget:
    """Costs of one server's tools."""

    name: str
    tools: Sequence[ToolCost]

    @property
    def tokens(self) -> int:
        """Return the tokens of all definitions."""
        return sum(each.tokens for each in self.tools)

    @cached_property
    def unused(self) -> Sequence[ToolCost]:
        """Return the tools without a call, the largest first."""
        return sorted((each for each in self.tools if not each.calls), key=lambda each: -each.tokens)


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Tokens of the definitions that one agent's model gets, by name of their server."""

    name: str
    servers: Sequence[tuple[str, int]]

    @property
    def tokens(self) -> int:
        """Return the tokens of all servers."""
        return sum(tokens for _, tokens in self.servers)


@router.get("/ui/budget")
async def show_budget(
    request: Request,
    me: deps.CurrentUser,
    settings: deps.SettingsDep,
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    tool_directory: deps.ToolDirectoryDep,
    call_path: deps.CallPathDep,
    agent_directory: deps.AgentDirectoryDep,
    usage: deps.UsageDep,
    tool_savings: deps.ToolSavingsDep,
    server_names: ServerNamesReaderDep,
) -> Response:
    """Show the costs for the person and their agents. Only the person's own calls are counted."""
    await instance_sync.sync(me.principal)
    caller = callers.get(me)
    listing = await tool_directory.refresh_within_deadline(caller.principal)
    used = await usage.count_calls(time.time() - USAGE_SECONDS, person=me.user.id)
    costs: dict[str, list[ToolCost]] = {}
    for name, definition in call_path.visible_tools(listing, caller).items():
        tokens = estimate_definition_tokens(definition)
        cost = ToolCost(definition.server_id, name, tokens, used.calls.get(definition.id, 0))
        costs.setdefault(definition.server_id, []).append(cost)
    usable = await agent_directory.list_usable_agents(me)
    agents = [agent for agent in usable if not agent_directory.find_bundle_problems(agent)]
    names = await server_names.read([me.user.id])
    agent_budgets: list[AgentBudget] = []
    for agent in agents:
        shares: Counter[str] = Counter()
        for tool in (await agent_directory.resolve_agent_tools(me, agent)).tools:
            if tool.through == "direct":
                shares[names.name_server(tool.server)] += tool.tokens
        agent_budgets.append(AgentBudget(agent.name, shares.most_common()))
    servers = [ServerBudget(names.name_server(server), tools) for server, tools in costs.items()]
    return await responses.render_large_page(
        request,
        "budget.html",
        servers=sorted(servers, key=lambda each: each.name.casefold()),
        total=sum(server.tokens for server in servers),
        agents=agent_budgets,
        limit=settings.meta_threshold,
        # Start of the period in which calls were counted.
        since=used.since or time.time(),
        proposal=await tool_savings.propose(me),
    )


@router.get("/ui/budget/tools")
async def confirm_savings(
    request: Request,
    me: deps.CurrentUser,
    tool_savings: deps.ToolSavingsDep,
    server_names: ServerNamesReaderDep,
) -> Response:
    """Ask whether to turn off the unused tools."""
    proposal = await tool_savings.propose(me)
    if proposal is None:
        return responses.redirect_to("/ui/budget", "There is nothing to turn off.")
    servers = await server_names.read([me.user.id])
    names = [
        f"{servers.name_server(server)}: {tool}" for server, tools in proposal.tools.items() for tool in tools
    ]
    return responses.render_confirmation(
        request,
        title=f"Turn off {count(len(names), 'tool')}?",
        text=f"They were not used in the last weeks. {proposal.tokens:,} tokens remain."
        " You can turn them on again.",
        action="/ui/budget/tools",
        back="/ui/budget",
        verb="Turn off",
        details=names[:_MAX_LISTED_TOOLS],
    )


@router.post("/ui/budget/tools")
async def apply_savings(me: deps.CurrentUser, tool_savings: deps.ToolSavingsDep) -> Response:
    """Turn off the unused tools that are proposed now."""
    proposal = await tool_savings.propose(me)
    if proposal is None:
        return responses.redirect_to("/ui/budget", "There is nothing to turn off.")
    try:
        await tool_savings.apply(me, proposal.tools)
    except (ToolyardError, OSError) as error:
        return responses.redirect_to("/ui/budget", f"The tools were not turned off: {error}", kind="bad")
    number = sum(len(tools) for tools in proposal.tools.values())
    return responses.redirect_to("/ui/budget", f"{count(number, 'tool')} turned off.")
