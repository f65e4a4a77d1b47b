"""Tools of users in a process with a database: single calls, and the tools of their chats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from toolyard.accounts import AccountService
from toolyard.accounts.effective_role import resolve_effective_user
from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.clients.call_path import CallPath
from toolyard.concurrency.lru_cache import LruCache
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.agents import AgentRoster
from toolyard.core.audit import AuditRecorder
from toolyard.core.caller_cache import CallerCache
from toolyard.core.composition import Core
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import AgentsError, ConfigError
from toolyard.policy import select_bundles
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.types.account import LOCAL_PRINCIPAL, Principal, RequestUser, User
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface, ToolCall
from toolyard.types.chat import Chat
from toolyard.types.server import Bundle
from toolyard.types.tool import Result

__all__ = ["UserToolSets", "UserTools"]


class UserTools:
    """Calls single tools."""

    def __init__(
        self,
        callers: CallerCache,
        instances: InstanceSync,
        call_path: CallPath,
        audit: AuditRecorder,
    ) -> None:
        self._callers = callers
        self._instances = instances
        self._call_path = call_path
        self._audit = audit

    async def call(
        self,
        request_user: RequestUser,
        name: str,
        arguments: Mapping[str, Any],
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
    ) -> Result:
        """Call a tool for a user. Raises ToolRefused or a ServerError."""
        caller = await self._callers.find(request_user, agent, bundles)
        await self._instances.sync(request_user.principal)
        self._audit.set_current_user(request_user)
        return await self._call_path.call(ToolCall(name, arguments), caller)


_CALLER_CACHE_ENTRIES = 1024


class UserToolSets:
    """Tool sets of the chats of all users; implements ``ToolSetSource``."""

    def __init__(
        self,
        people: AccountService,
        accounts: SqlAccountStorage,
        settings: Settings,
        config: CurrentConfig,
        roster: AgentRoster,
        instances: InstanceSync,
        audit: AuditRecorder,
        core: Core,
    ) -> None:
        self._people = people
        self._accounts = accounts
        self._settings = settings
        self._config = config
        self._roster = roster
        self._instances = instances
        self._audit = audit
        self._core = core
        self._callers: LruCache[tuple[object, ...], Caller] = LruCache(_CALLER_CACHE_ENTRIES)

    async def load_tool_set(
        self, owner: str, chat: Chat | None, agent: Agent | None = None, user: User | None = None
    ) -> ToolSet:
        """Return the tools that a user may use in a chat of theirs.

        Raises ChatRefused if the owner, the agent or a bundle no longer exists.
        """
        request_user = RequestUser(user or await self._find_owner(owner))
        principal = request_user.user.principal
        caller = await self._get_caller(chat, principal, agent)
        await self._instances.sync(principal)
        core = self._core
        set_current_user = partial(self._audit.set_current_user, request_user)
        return ToolSet(
            core.manager,
            core.tool_directory,
            core.call_path,
            core.meta_tools,
            caller,
            attribute_to_owner=set_current_user,
            # Chat pages show one banner for them (``ReconnectBanner``).
            reports_sign_ins=False,
        )

    async def release_chat(self, chat_id: str) -> None:
        """Forget the callers of a chat and close its dedicated connections."""
        for key in [key for key in self._callers if key[0] == chat_id]:
            del self._callers[key]
        await self._core.manager.release_connections(chat_id)

    async def _find_owner(self, owner: str) -> User:
        if owner == LOCAL_PRINCIPAL.id and self._settings.people_mode is PeopleMode.NONE:
            stored: User | None = await self._people.local_user()
        else:
            stored = await self._accounts.get_user(owner)
        user = None if stored is None else resolve_effective_user(stored, self._settings)
        if user is None or user.disabled:
            raise ChatRefused("the account of this chat's owner was deleted or is disabled")
        return user

    # The core caches by the identity of the caller object, so a chat must reuse the same object.

    async def _get_caller(self, chat: Chat | None, principal: Principal, agent: Agent | None) -> Caller:
        if agent is None and chat is not None and chat.agent is not None:
            agent = await self._find_agent(principal.id, chat.agent)
        bundles = () if agent is None else self._select_bundles(agent)
        chat_id, tools = (None, None) if chat is None else (chat.id, chat.choice)
        key = (chat_id, principal, tools, agent, bundles)
        caller = self._callers.get(key)
        if caller is None:
            choice = None if tools is None else frozenset(tools)
            caller = Caller(principal, Surface.MODEL_DIRECT, agent, bundles, choice, chat=chat_id)
            self._callers[key] = caller
        return caller

    async def _find_agent(self, owner: str, agent_id: str) -> Agent:
        try:
            return await self._roster.find(owner, agent_id)
        except AgentsError as error:
            problem = error.problems[0]
            raise ChatRefused(problem.message, hint=problem.hint) from None

    def _select_bundles(self, agent: Agent) -> tuple[Bundle, ...]:
        try:
            return select_bundles(agent.bundles, self._config.configuration.bundles)
        except ConfigError as error:
            problem = error.problems[0]
            raise ChatRefused(f"agent '{agent.id}': {problem.message}", hint=problem.hint) from None
