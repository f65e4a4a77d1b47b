"""The services of a chat in the terminal, opened and closed together.

Its tools are everything that the local user may use.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from toolyard.agents.chat.approval_grants import Approver
from toolyard.agents.chat.attachments import AttachmentService
from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.chat.turn_end import ChatLimits
from toolyard.agents.definitions.agent_tools import find_tool_problems
from toolyard.agents.definitions.agents_md import agent_id, load_agents
from toolyard.agents.models.available_models import Models
from toolyard.cli.invocation import Options, Usage
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.core.agents import merge_agents
from toolyard.core.audit import AuditRecorder
from toolyard.core.composition import Core, build_core, make_chat_callbacks
from toolyard.core.instances import InstanceSync
from toolyard.errors import ConfigError, Problem
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.policy import select_bundles
from toolyard.registry import Registry
from toolyard.registry.auth_provider_factory import AuthProviderFactory
from toolyard.registry.model_registry import ModelRegistry
from toolyard.store import Database
from toolyard.store.sql.key_file import DATABASE_FILE_NAME
from toolyard.tracing.selection import choose_tracer
from toolyard.types.account import LOCAL_PRINCIPAL, User
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface
from toolyard.types.chat import Chat
from toolyard.types.server import Bundle

__all__ = [
    "LOCAL_OWNER_ID",
    "ChatApp",
    "LocalChatBackend",
    "no_model_error",
    "open_chat_app",
]


@dataclass(slots=True)
class LocalChatBackend:
    """Chat backend for the local user. ``selected`` bundles apply to every chat of this process."""

    core: Core
    instance_sync: InstanceSync
    agents: Mapping[str, Agent]
    bundles: Mapping[str, Bundle]
    selected_bundles: tuple[str, ...] = ()
    _callers: dict[tuple[object, ...], Caller] = field(default_factory=dict[tuple[object, ...], Caller])
    """The core caches prepared data per Caller object, so equal callers must be the same object."""

    async def load_tool_set(
        self, owner: str, chat: Chat | None, agent: Agent | None = None, user: User | None = None
    ) -> ToolSet:
        if owner != LOCAL_PRINCIPAL.id:
            raise ChatRefused("this chat belongs to another user")
        caller = self.get_caller(chat)
        await self.instance_sync.sync(LOCAL_PRINCIPAL)
        core = self.core
        return ToolSet(core.manager, core.tool_directory, core.call_path, core.meta_tools, caller)

    async def release_chat(self, chat_id: str) -> None:
        await self.core.manager.release_client(chat_id)

    def get_caller(self, chat: Chat | None) -> Caller:
        chat_id, agent_name, tools = (
            (None, None, None) if chat is None else (chat.id, chat.agent, chat.choice)
        )
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
        agent = self.agents.get(name) or self.agents.get(agent_id(name))
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


LOCAL_OWNER_ID = LOCAL_PRINCIPAL.id
"""Owner of terminal chats: the local user, as in the web app with the mode none."""


@dataclass(frozen=True, slots=True)
class ChatApp:
    """The chats, and the agents and models to choose from."""

    chats: ChatService
    agents: Mapping[str, Agent]
    models: Models
    backend: LocalChatBackend

    async def find_agent_problems(self, agent: str) -> list[Problem]:
        """Return what is wrong with the tools of an agent, judging by the stored listings."""
        core = self.backend.core
        await core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        caller = self.backend.get_caller(Chat("", LOCAL_OWNER_ID, "", 0.0, 0.0, agent=agent))
        return find_tool_problems(caller, core.tool_directory, core.call_path)


@asynccontextmanager
async def open_chat_app(
    options: Options, bundles: tuple[str, ...] = (), *, model: str | None = None
) -> AsyncGenerator[ChatApp]:
    """Open all services. Raises ConfigError, AgentsError, StoreError, and Usage if no model is configured.

    At the end, running turns end as interrupted, every connection is closed and every child process has
    ended. ``model`` names a model that need not be in the settings.
    """
    settings = options.load_settings()
    tracer = choose_tracer(os.environ)
    models = Models.from_settings(settings, tracer)
    configuration = options.load_config()
    select_bundles(bundles, configuration.bundles)
    agents = {each.id: each for each in load_agents(settings.agents_path, options.resolved_data_dir)}
    agent_models = [each.model for each in agents.values()]
    may_be_stored = settings.database_url or (options.resolved_data_dir / DATABASE_FILE_NAME).exists()
    if not any((model, models.default_for(LOCAL_PRINCIPAL), *agent_models, may_be_stored)):
        raise no_model_error(options)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tracer.close)
        stack.push_async_callback(models.close)
        database = await Database.open_from_settings(settings, options.resolved_data_dir)
        stack.push_async_callback(database.close)
        guard = AddressGuard.from_settings(settings.guard_allow, settings.guard_deny)
        model_registry = ModelRegistry(database.models, database.accounts, models, guard)
        await model_registry.load()
        agents = merge_agents(agents, await database.agents.list_agents(LOCAL_OWNER_ID))
        agent_models = [each.model for each in agents.values()]
        if not any((model, models.default_for(LOCAL_PRINCIPAL), *agent_models)):
            raise no_model_error(options)
        net = OutboundHttp(guard, tracer=tracer)
        stack.push_async_callback(net.close)
        registry = Registry(database.registry, settings)
        audit = AuditRecorder(database.audit, settings)
        tasks = BackgroundTasks()
        tasks.spawn(model_registry.follow_changes())

        def handle_list_changed(server_id: str) -> None:
            tasks.spawn(core.updates.handle_list_changed(server_id))

        core = build_core(
            configuration,
            settings,
            data_dir=options.resolved_data_dir,
            auth_provider_for=AuthProviderFactory(registry, database.auth, net).auth_provider_for,
            net=net,
            approve=Approver(database.approvals),
            record=audit.record_call,
            callbacks_for=make_chat_callbacks(lambda: chats.questions, has_model=lambda _: True),
            on_list_changed=handle_list_changed,
            with_native_tools=True,
            attachments=AttachmentService(database.chats.attachments),
        )
        stack.push_async_callback(core.close)
        stack.push_async_callback(tasks.close)
        instances = InstanceSync(registry, core.manager, core.tool_directory, core.updates)
        yard = LocalChatBackend(core, instances, agents, configuration.bundles, bundles)
        chats = ChatService(
            database.chats,
            database.approvals,
            models,
            yard,
            ChatLimits.from_settings(settings),
            on_model_usage=audit.record_model_request,
        )
        stack.push_async_callback(chats.close)
        await chats.open()
        yield ChatApp(chats, agents, models, yard)


def no_model_error(options: Options) -> Usage:
    """Return the error for a missing model, with a hint."""
    file = options.resolved_data_dir / "toolyard.toml"
    return Usage(
        "no model is configured",
        hint=f'add one on the Models page of the web app; or write model = "openai:gpt-5-mini" into {file} '
        "and set OPENAI_API_KEY; any OpenAI-compatible "
        "address works with model_base_url; `pip install toolyard[local]` brings a small model that needs "
        "neither key nor network",
    )
