"""The services of a process with chats: models, registry, audit log, core and the chats themselves.

``LocalChats`` are those of the local user in a process of their own, such as a terminal. Their tools are
everything that the local user may use.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, Unpack

from toolyard.agents.chat.approval_grants import Approver
from toolyard.agents.chat.attachments import AttachmentService
from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import ToolSet, ToolSetSource
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.definitions.agent_tools import find_tool_problems
from toolyard.agents.definitions.agents_md import find_agent
from toolyard.agents.models.available_models import Models
from toolyard.catalog.listing_storage import ListingStorage
from toolyard.catalog.lock.storage import PinEntryStorage, RegistryPinStorage
from toolyard.clients.call_path import AcceptUrlFor, ApprovalHandler, BeforeCall, ResultStoreFor
from toolyard.clients.process_pool import ProcessPool
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config.settings.table import Settings
from toolyard.core.agents import merge_agents
from toolyard.core.audit import AuditRecorder
from toolyard.core.composition import Core, SharedQuestionHandler, build_core, make_chat_callbacks
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import ConfigError, Problem
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.policy import select_bundles
from toolyard.registry import Registry
from toolyard.registry.auth_provider_factory import AuthProviderFactory
from toolyard.registry.model_registry import ModelRegistry
from toolyard.store import Database
from toolyard.tracing.selection import choose_tracer
from toolyard.types.account import LOCAL_OWNER_ID, LOCAL_PRINCIPAL, Principal, User
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface
from toolyard.types.chat import Chat
from toolyard.types.server import Bundle, Configuration

__all__ = ["ChatServices", "LocalChats"]


class CoreOptions(TypedDict, total=False):
    """Options of ``build_core`` in which interfaces with chats differ."""

    result_store_for: ResultStoreFor
    catalogue_storage: ListingStorage
    registry_pins: RegistryPinStorage
    config_pins: PinEntryStorage
    accept_url_for: AcceptUrlFor
    before_call: BeforeCall
    processes: ProcessPool | None


class ChatServices:
    """Base of the services of an interface with chats, which builds the core and sets ``chats``.

    ``close`` ends them. Nothing is started by the constructor.
    """

    core: Core
    chats: ChatService

    def __init__(self, settings: Settings, data_dir: Path, database: Database) -> None:
        self.settings = settings
        self.data_dir = data_dir
        self.database = database
        self.tasks = BackgroundTasks()
        self.end_callbacks: list[Callable[[], Awaitable[None]]] = []
        """Called when work ends, before connections are closed."""
        self.tracer = choose_tracer(os.environ)
        guard = AddressGuard.from_settings(settings.guard_allow, settings.guard_deny)
        self.net = OutboundHttp(guard, tracer=self.tracer)
        self.registry = Registry(database.registry, settings)
        self.audit = AuditRecorder(database.audit, settings)
        self.models = Models.from_settings(settings, self.tracer)
        self.model_registry = ModelRegistry(database.models, database.accounts, self.models, guard)

    def _build_core(
        self,
        configuration: Configuration,
        approve: ApprovalHandler,
        *,
        has_model: Callable[[Principal], bool],
        page: SharedQuestionHandler | None = None,
        **options: Unpack[CoreOptions],
    ) -> Core:
        """Build the core with what every interface with chats needs, and with the options of this one."""
        has_pages = page is not None
        sign_ins = AuthProviderFactory(self.registry, self.database.auth, self.net, has_pages=has_pages)
        return build_core(
            configuration,
            self.settings,
            data_dir=self.data_dir,
            auth_provider_for=sign_ins.auth_provider_for,
            net=self.net,
            approve=approve,
            record=self.audit.record_call,
            # The chats need the core, so they are looked up when a server asks.
            callbacks_for=make_chat_callbacks(lambda: self.chats.questions, page, has_model=has_model),
            with_native_tools=True,
            attachments=AttachmentService(self.database.chats.attachments),
            **options,
        )

    def _build_chats(self, tool_sets: ToolSetSource, *, writes_titles: bool) -> ChatService:
        return ChatService(
            self.database.chats,
            self.database.approvals,
            self.models,
            tool_sets,
            ChatLimits.from_settings(self.settings),
            on_model_usage=self.audit.record_model_request,
            writes_titles=writes_titles,
        )

    async def load_models(self) -> None:
        """Load the stored models, and follow their changes."""
        await self.model_registry.load()
        self.tasks.spawn(self.model_registry.follow_changes())

    async def end_work(self) -> None:
        """End background tasks, turns, server connections and child processes."""
        # Background tasks end first, so that nothing begins new work; chats end before the connections that
        # their turns use.
        await self.tasks.close()
        await self.chats.close()
        for end in self.end_callbacks:
            await end()
        await self.core.close()
        await self.models.close()

    async def close(self) -> None:
        """End all work, and flush the audit log. Bounded in time."""
        await self.end_work()
        await self.net.close()
        await self.tracer.close()
        # Last, because ending turns and connections still write to it.
        await self.database.close()


class LocalChats(ChatServices):
    """The chats, and the agents and models to choose from, once they are loaded."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        agents: Iterable[Agent],
        bundles: tuple[str, ...],
        database: Database,
    ) -> None:
        """``agents`` are those of AGENTS.md. The ``bundles`` are selected in every chat."""
        super().__init__(settings, data_dir, database)
        self.agents = {each.id: each for each in agents}
        # A model can be named that is not in the settings, so sampling is always offered.
        self.core = core = self._build_core(
            configuration, Approver(database.approvals), has_model=lambda _: True
        )
        instances = InstanceSync(self.registry, core.manager, core.tool_directory, core.updates)
        self._tool_sets = _LocalToolSets(core, instances, self.agents, configuration.bundles, bundles)
        self.chats = self._build_chats(self._tool_sets, writes_titles=False)

    async def load(self) -> None:
        """Load the models and agents of the database. Raises StoreError."""
        await self.load_models()
        stored = await self.database.agents.list_agents(LOCAL_OWNER_ID)
        self.agents.update(merge_agents(self.agents, stored))

    async def find_agent_problems(self, agent: str) -> list[Problem]:
        """Return what is wrong with the tools of an agent, judging by the stored listings."""
        core = self.core
        await core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        caller = self._tool_sets.get_caller(agent)
        return find_tool_problems(caller, core.tool_directory, core.call_path)


@dataclass(slots=True)
class _LocalToolSets:
    """Tools of the local user's chats. ``selected_bundles`` apply to every chat of this process."""

    core: Core
    instance_sync: InstanceSync
    agents: Mapping[str, Agent]
    bundles: Mapping[str, Bundle]
    selected_bundles: tuple[str, ...]
    _callers: dict[tuple[object, ...], Caller] = field(default_factory=dict[tuple[object, ...], Caller])
    """The core caches prepared data per Caller object, so equal callers must be the same object."""

    async def load_tool_set(
        self, owner: str, chat: Chat | None, agent: Agent | None = None, user: User | None = None
    ) -> ToolSet:
        if owner != LOCAL_PRINCIPAL.id:
            raise ChatRefused("this chat belongs to another user")
        caller = (
            self.get_caller() if chat is None else self.get_caller(chat.agent, chat.choice, chat_id=chat.id)
        )
        await self.instance_sync.sync(LOCAL_PRINCIPAL)
        core = self.core
        return ToolSet(core.manager, core.tool_directory, core.call_path, core.meta_tools, caller)

    async def release_chat(self, chat_id: str) -> None:
        await self.core.manager.release_connections(chat_id)

    def get_caller(
        self, agent_name: str | None = None, tools: Sequence[str] | None = None, *, chat_id: str | None = None
    ) -> Caller:
        """Return the caller of a chat, or of an agent outside of chats. Raises ChatRefused."""
        agent = None if agent_name is None else self._find_agent(agent_name)
        key = (chat_id, agent_name, tools)
        if key not in self._callers:
            self._callers[key] = Caller(
                LOCAL_PRINCIPAL,
                Surface.MODEL_DIRECT,
                agent,
                self._select_bundles(agent),
                None if tools is None else frozenset(tools),
                chat=chat_id,
            )
        return self._callers[key]

    def _find_agent(self, name: str) -> Agent:
        agent = find_agent(self.agents, name)
        if agent is None:
            there = ", ".join(self.agents) or "none"
            raise ChatRefused(f"unknown agent '{name}'", hint=f"available agents: {there}")
        return agent

    def _select_bundles(self, agent: Agent | None) -> tuple[Bundle, ...]:
        wanted = (*(() if agent is None else agent.bundles), *self.selected_bundles)
        try:
            return select_bundles(wanted, self.bundles)
        except ConfigError as error:
            raise ChatRefused(error.problems[0].message, hint=error.problems[0].hint) from None
