"""Chats of the web app: who their owners are, and what these may use."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from toolyard.accounts.account_status import resolve_effective_user
from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.config.settings.choices import PeopleMode
from toolyard.errors import ConfigError
from toolyard.policy import select_bundles
from toolyard.types.account import User
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.chat import Chat
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Bundle
from toolyard.web.access.dependencies import RequestUser

if TYPE_CHECKING:
    from toolyard.web.services import Services

__all__ = ["WebChatBackend"]

_CALLER_CACHE_ENTRIES = 1024


class WebChatBackend:
    """A ChatYard over a site."""

    def __init__(self, site: Services) -> None:
        self._services = site
        self._callers: OrderedDict[tuple[object, ...], Caller] = OrderedDict()

    async def load_tool_set(self, chat: Chat) -> ToolSet:
        """See ChatYard."""
        site = self._services
        visitor = RequestUser(await self._find_owner(chat.owner), None, "", "", "")
        caller = self._get_caller(chat, visitor.principal)
        await site.sync_instances(visitor)
        parts = site.parts
        entering = partial(site.set_current_user, visitor)
        return ToolSet(
            parts.manager,
            parts.tool_directory,
            parts.call_path,
            parts.meta_tools,
            caller,
            before_call=entering,
        )

    async def release_chat(self, chat_id: str) -> None:
        """See ChatYard."""
        for key in [key for key in self._callers if key[0] == chat_id]:
            del self._callers[key]
        await self._services.parts.manager.close_dedicated_connections(chat_id)

    async def _find_owner(self, owner: str) -> User:
        site = self._services
        if owner == LOCAL_PRINCIPAL.id and site.settings.people_mode is PeopleMode.NONE:
            found: User | None = await site.people.local_user()
        else:
            found = await site.database.accounts.user(owner)
        known = None if found is None else resolve_effective_user(found, site.settings)
        if known is None or known.disabled:
            raise ChatRefused("the owner of this chat has no account any more, or it is disabled")
        return known

    # Who calls. The core keeps what it prepared for a caller under the object itself.

    def _get_caller(self, chat: Chat, principal: Principal) -> Caller:
        agent = None if chat.agent is None else self._find_agent(chat.agent)
        bundles = () if agent is None else self._select_bundles(agent)
        key = (chat.id, principal, chat.choice, id(agent), bundles)
        known = self._callers.get(key)
        # An id may be given again to another agent.
        if known is None or known.agent is not agent:
            choice = None if chat.choice is None else frozenset(chat.choice)
            known = Caller(principal, Surface.MODEL_DIRECT, agent, bundles, choice, chat=chat.id)
            self._callers[key] = known
        self._callers.move_to_end(key)
        while len(self._callers) > _CALLER_CACHE_ENTRIES:
            self._callers.popitem(last=False)
        return known

    def _find_agent(self, agent_id: str) -> Agent:
        agent = self._services.agents.get(agent_id)
        if agent is None:
            there = ", ".join(self._services.agents) or "none"
            raise ChatRefused(
                f"there is no agent '{agent_id}' here", hint=f"choose another; there are: {there}"
            )
        return agent

    def _select_bundles(self, agent: Agent) -> tuple[Bundle, ...]:
        try:
            return select_bundles(agent.bundles, self._services.configuration.bundles)
        except ConfigError as error:
            problem = error.problems[0]
            raise ChatRefused(f"agent '{agent.id}': {problem.message}", hint=problem.hint) from None
