"""Chats of the web app: who their owners are, and what these may use."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from toolyard.accounts.account_status import standing
from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import Toolbox
from toolyard.config.settings.choices import PeopleMode
from toolyard.errors import ConfigError
from toolyard.policy import select_bundles
from toolyard.types.account import User
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.chat import Chat
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.server import Bundle
from toolyard.web.access.dependencies import Visitor

if TYPE_CHECKING:
    from toolyard.web.services import Site

__all__ = ["Chatting"]

_CALLERS = 1024


class Chatting:
    """A ChatYard over a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._callers: OrderedDict[tuple[object, ...], Caller] = OrderedDict()

    async def toolbox(self, chat: Chat) -> Toolbox:
        """See ChatYard."""
        site = self._site
        visitor = Visitor(await self._user(chat.owner), None, "", "", "")
        caller = self._caller(chat, visitor.principal)
        await site.enter(visitor)
        parts = site.parts
        entering = partial(site.visiting, visitor)
        return Toolbox(parts.manager, parts.rosters, parts.calls, parts.meta, caller, entering=entering)

    async def leave(self, chat_id: str) -> None:
        """See ChatYard."""
        for key in [key for key in self._callers if key[0] == chat_id]:
            del self._callers[key]
        await self._site.parts.manager.end_lanes(chat_id)

    async def _user(self, owner: str) -> User:
        site = self._site
        if owner == LOCAL.id and site.settings.people_mode is PeopleMode.NONE:
            found: User | None = await site.people.local_user()
        else:
            found = await site.database.people.user(owner)
        known = None if found is None else standing(found, site.settings)
        if known is None or known.disabled:
            raise ChatRefused("the owner of this chat has no account any more, or it is disabled")
        return known

    # Who calls. The core keeps what it prepared for a caller under the object itself.

    def _caller(self, chat: Chat, principal: Principal) -> Caller:
        agent = None if chat.agent is None else self._agent(chat.agent)
        bundles = () if agent is None else self._bundles(agent)
        key = (chat.id, principal, chat.choice, id(agent), bundles)
        known = self._callers.get(key)
        # An id may be given again to another agent.
        if known is None or known.agent is not agent:
            choice = None if chat.choice is None else frozenset(chat.choice)
            known = Caller(principal, Surface.MODEL_DIRECT, agent, bundles, choice, chat=chat.id)
            self._callers[key] = known
        self._callers.move_to_end(key)
        while len(self._callers) > _CALLERS:
            self._callers.popitem(last=False)
        return known

    def _agent(self, agent_id: str) -> Agent:
        agent = self._site.agents.get(agent_id)
        if agent is None:
            there = ", ".join(self._site.agents) or "none"
            raise ChatRefused(
                f"there is no agent '{agent_id}' here", hint=f"choose another; there are: {there}"
            )
        return agent

    def _bundles(self, agent: Agent) -> tuple[Bundle, ...]:
        try:
            return select_bundles(agent.bundles, self._site.configuration.bundles)
        except ConfigError as error:
            problem = error.problems[0]
            raise ChatRefused(f"agent '{agent.id}': {problem.message}", hint=problem.hint) from None
