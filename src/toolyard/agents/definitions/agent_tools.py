"""Check the tools of an agent against the known listings, for every interface that uses agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from toolyard.agents.definitions.tools_list import check_tool_patterns, may_allow_unlisted
from toolyard.catalog.exposed_names import RESERVED_NAMES
from toolyard.errors import Problem
from toolyard.policy.agent_patterns import compile_patterns
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, HiddenTool, Surface, summarize_hiding_rules

if TYPE_CHECKING:
    from toolyard.clients.call_path import CallPath
    from toolyard.clients.tool_directory import ToolDirectory

__all__ = ["find_tool_problems", "make_no_tools_problem"]

_NO_PREFIXES: Mapping[str, str] = MappingProxyType({})


def find_tool_problems(
    caller: Caller,
    tool_directory: ToolDirectory,
    call_path: CallPath,
    other_prefixes: Mapping[str, str] = _NO_PREFIXES,
) -> list[Problem]:
    """Return the unknown names in the tools of the caller's agent, and the reason if it has no tool at all.

    Contacts no server. Names of servers that are not listed yet may exist, and so may those that begin with
    one of ``other_prefixes``.
    """
    agent = caller.agent
    if agent is None:
        return []
    listing = tool_directory.known_listing(caller.principal)
    unlisted = tool_directory.missing_servers(caller.principal)
    prefixes = {tool_directory.name_prefix(server_id): server_id for server_id in unlisted}
    known = [*listing.tools, *RESERVED_NAMES]
    problems = list(check_tool_patterns(agent, known, {**prefixes, **other_prefixes}).errors)
    caller = caller.on_surface(Surface.MODEL_META)
    # Chats have the built-in tools as well, which not every interface lists.
    has_builtin = agent.tools is None or any(map(compile_patterns(agent.tools).allows, RESERVED_NAMES))
    if has_builtin or may_allow_unlisted(agent, prefixes) or call_path.visible_tools(listing, caller):
        return problems
    return [*problems, make_no_tools_problem(agent, call_path.hidden_tools(listing, caller))]


def make_no_tools_problem(agent: Agent, hidden: Iterable[HiddenTool]) -> Problem:
    """Return the problem of an agent for which all tools are hidden, with the reason."""
    rules = [
        tool.rule for tool in hidden if agent.tools is None or compile_patterns(agent.tools).allows(tool.name)
    ]
    which = "all tools" if agent.tools is None else "all matching tools"
    nothing = "no server has tools" if agent.tools is None else "its patterns match no tool"
    reason = f"{which} are hidden ({summarize_hiding_rules(rules)})" if rules else nothing
    hint = f"`toolyard tools --agent {agent.id} --all` shows the reasons"
    return Problem(f"has no tools: {reason}", agent.file, agent.line, agent.name, hint)
