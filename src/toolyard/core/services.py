"""The services of a process with a database: construction, start and shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from toolyard.accounts import AccountService
from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.auth.sign_in_flow import SignInFlow
from toolyard.clients.process_pool import ProcessPool
from toolyard.config.settings.table import Settings
from toolyard.core.agent_editor import AgentEditor
from toolyard.core.agents import AgentRoster
from toolyard.core.call_approvals import CallApprovals
from toolyard.core.caller_cache import CallerCache
from toolyard.core.chat_services import ChatServices
from toolyard.core.current_config import ChangeNotifier, ConfiguredServers, CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.core.interface_links import InterfaceLinks, StopSignal
from toolyard.core.page_questions import PageQuestions
from toolyard.core.user_tools import UserTools, UserToolSets
from toolyard.registry.issuer_confirmation import IssuerConfirmation
from toolyard.registry.proposals import Proposals
from toolyard.registry.sign_in import ConfigSignIns, InstanceSignIns
from toolyard.registry.sign_out import SignOutService
from toolyard.results.result_store import Retention
from toolyard.store import Database
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL
from toolyard.types.server import Configuration

__all__ = ["Services"]


class Services(ChatServices):
    """The services of one process. Create with ``await Services.open(...)``; call ``close`` at the end."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        agents: LoadedAgents,
        *,
        database: Database,
        links: InterfaceLinks,
        processes: ProcessPool | None = None,
    ) -> None:
        super().__init__(settings, data_dir, database)
        self.config = CurrentConfig(configuration, agents, data_dir)
        self.stop_signal = StopSignal()
        self.stop_callbacks: list[Callable[[], None]] = []
        """Called by ``stop``."""
        self.notifier = ChangeNotifier()
        self.people = AccountService(database.accounts, settings, clock=time.time)
        self.proposals = Proposals(database.proposals, self.registry, clock=time.time)
        flow = SignInFlow(self.net, database.auth, links.client_identity)
        self.sign_ins = InstanceSignIns(flow, self.registry, database.auth)
        self.config_sign_ins = ConfigSignIns(flow, database.auth)
        self.issuers = IssuerConfirmation(flow, self.registry, database.auth)
        self.sign_outs = SignOutService(database.auth, self.net, self.tasks.spawn)
        self.approvals = CallApprovals(database.approvals, links.approvals_url, clock=time.time)
        self.core = core = self._build_core(
            configuration,
            self.approvals,
            has_model=lambda principal: bool(self.models.choices_for(principal)),
            page=PageQuestions(database.questions, links.approvals_url, settings.ask_wait),
            result_store_for=database.results.with_retention(
                Retention(settings.result_keep, settings.result_store_limit)
            ).for_principal,
            catalogue_storage=database.catalogues,
            registry_pins=database.pins,
            config_pins=database.config_pins,
            accept_url_for=links.accept_url_for,
            before_call=self.audit.before_call,
            processes=processes,
        )
        self.models.on_change = core.manager.forget_chat_capabilities
        self.instances = InstanceSync(
            self.registry,
            core.manager,
            core.tool_directory,
            core.updates,
            database.auth,
            self.notifier.notify_servers_changed,
            partial(database.signals.revision, REGISTRY_CHANNEL),
        )
        self.agent_roster = AgentRoster(self.config, database.agents)
        self.agent_editor = AgentEditor(
            database.agents, self.config, self.models, self.audit, limit=settings.agent_limit
        )
        self.callers = CallerCache(self.config, self.agent_roster)
        self.user_tools = UserTools(self.callers, self.instances, core.call_path, self.audit)
        self.configured_servers = ConfiguredServers(
            self.config,
            settings,
            core.manager,
            core.tool_directory,
            core.updates,
            self.notifier,
            self.audit,
            self.tasks,
        )
        tool_sets = UserToolSets(
            self.people,
            database.accounts,
            settings,
            self.config,
            self.agent_roster,
            self.instances,
            self.audit,
            core,
        )
        self.chats = self._build_chats(tool_sets, writes_titles=settings.chat_titles)
        self._end_work_task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        agents: LoadedAgents,
        links: InterfaceLinks,
        processes: ProcessPool | None = None,
    ) -> Services:
        """Open the database and create all services, without connecting to any server.

        ``processes`` are those of stdio servers, which others share and close.

        Raises ToolyardError.
        """
        database = await Database.open_from_settings(settings, data_dir, migrates=True)
        services = cls(
            configuration, settings, data_dir, agents, database=database, links=links, processes=processes
        )
        await services.load_models()
        await services.chats.open(resume_any_chat=True)
        services.tasks.spawn(database.watch_key())
        return services

    def list_provided(self) -> Sequence[object]:
        """Return the services that handlers of an interface may receive, one of each class."""
        core, database = self.core, self.database
        return (
            self.settings,
            self.config,
            self.tasks,
            self.stop_signal,
            self.notifier,
            self.net,
            self.people,
            self.registry,
            self.model_registry,
            self.proposals,
            self.sign_ins,
            self.issuers,
            self.sign_outs,
            self.audit,
            self.instances,
            self.agent_roster,
            self.agent_editor,
            self.callers,
            self.user_tools,
            self.configured_servers,
            self.chats,
            core.manager,
            core.tool_directory,
            core.call_path,
            core.locks,
            core.updates,
            database,
            database.accounts,
            database.approvals,
            database.audit,
            database.auth,
            database.chats,
            database.usage,
            database.questions,
            database.pending_items,
        )

    def apply_agents(self, loaded: LoadedAgents) -> None:
        """Use newly loaded agents, and the problems of their file, from now on."""
        if self.config.set_agents(loaded):
            self.notifier.notify_tools_changed()

    def stop(self) -> None:
        """Begin to stop: end long-lived streams and report the process as not ready."""
        self.stop_signal.set()
        for stop in self.stop_callbacks:
            stop()

    async def end_work(self) -> None:
        """End background tasks, server connections and child processes, so that open requests complete.

        The work is done once; further callers await the same task.
        """
        if self._end_work_task is None:
            self._end_work_task = asyncio.get_running_loop().create_task(super().end_work())
        # A caller that is cancelled must not leave the shutdown half done for the others.
        await asyncio.shield(self._end_work_task)

    async def close(self) -> None:
        """Close connections, end child processes and flush the audit log. Bounded in time; idempotent."""
        self.stop_signal.set()
        await super().close()
