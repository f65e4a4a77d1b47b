"""``/ui/budget``: what the definitions of a person's tools cost in tokens, and which were not used."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fastapi import Request, Response

from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_budget import SavingProposal, ToolCost
from toolyard.errors import ToolyardError
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.tool_savings import USAGE_SECONDS
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.forms import ConfirmPage, read_submitted_form, render_confirm_page
from toolyard.web.ui.components.render import render_large_page

__all__ = ["router"]

router = Routes()

_MAX_LISTED_TOOLS = 200


@dataclass(frozen=True)
class ServerBudget:
    """Costs of one server's tools. ``agents`` has the tokens that each agent's model gets."""

    server: str
    tools: Sequence[ToolCost]
    agents: Mapping[str, int]

    @property
    def tokens(self) -> int:
        """Return the tokens of all definitions."""
        return sum(each.tokens for each in self.tools)

    @cached_property
    def unused(self) -> Sequence[ToolCost]:
        """Return the tools without a call, the largest first."""
        return sorted((each for each in self.tools if not each.calls), key=lambda each: -each.tokens)


@dataclass(frozen=True, slots=True)
class BudgetPage:
    """Content of the page. ``since`` is the begin of the period in which calls were counted."""

    servers: Sequence[ServerBudget]
    agents: Mapping[str, str]
    """Names of the agents by id."""
    limit: int
    since: float
    proposal: SavingProposal | None
    """The unused tools that the person can turn off."""

    @property
    def total(self) -> int:
        """Return the tokens of all definitions."""
        return sum(server.tokens for server in self.servers)


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
    agents = [agent for agent in usable if not agent_directory.find_agent_problems(me, agent)]
    shares: dict[str, dict[str, int]] = {}
    for agent in agents:
        for tool in (await agent_directory.resolve_agent_tools(me, agent)).tools:
            if tool.through == "direct":
                share = shares.setdefault(tool.server, {})
                share[agent.id] = share.get(agent.id, 0) + tool.tokens
    servers = [
        ServerBudget(server, costs.get(server, []), shares.get(server, {}))
        for server in sorted({*costs, *shares})
    ]
    names = {agent.id: agent.name for agent in agents}
    proposal = await tool_savings.propose(me)
    page = BudgetPage(servers, names, settings.meta_threshold, used.since or time.time(), proposal)
    return await render_large_page(request, "budget.html", page=page)


@router.get("/ui/budget/tools")
async def confirm_savings(
    request: Request, me: deps.CurrentUser, tool_savings: deps.ToolSavingsDep
) -> Response:
    """Ask whether to turn off the unused tools."""
    proposal = await tool_savings.propose(me)
    if proposal is None:
        return redirect_with_message("/ui/budget", "There is nothing to turn off.")
    names = [f"{server}/{tool}" for server, tools in proposal.tools.items() for tool in tools]
    page = ConfirmPage(
        f"Turn off {count(len(names), 'tool')}?",
        f"They were not used in the last weeks. {proposal.tokens} tokens remain. You can turn them on again.",
        "/ui/budget/tools",
        "/ui/budget",
        "Turn off",
        tuple(names[:_MAX_LISTED_TOOLS]),
    )
    return render_confirm_page(request, page)


@router.post("/ui/budget/tools")
async def apply_savings(
    request: Request, me: deps.CurrentUser, tool_savings: deps.ToolSavingsDep
) -> Response:
    """Turn off the unused tools that are proposed now."""
    await read_submitted_form(request)
    proposal = await tool_savings.propose(me)
    if proposal is None:
        return redirect_with_message("/ui/budget", "There is nothing to turn off.")
    try:
        await tool_savings.apply(me, proposal.tools)
    except (ToolyardError, OSError) as error:
        return redirect_with_message("/ui/budget", f"The tools were not turned off: {error}", kind="bad")
    number = sum(len(tools) for tools in proposal.tools.values())
    return redirect_with_message("/ui/budget", f"{count(number, 'tool')} turned off.")
