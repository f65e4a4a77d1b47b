"""Everything that one process serves with, opened in one order and closed in the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from starlette.requests import Request

from toolyard.accounts import AccountService
from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.agents.models.available_models import Models
from toolyard.auth.sign_in_flow import SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.clients.connection import initial_status
from toolyard.config.settings.choices import AuditMode, PeopleMode, Registration
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Parts, build_core, make_chat_callbacks
from toolyard.gateway.input_required.approvals import CallApprovals
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.policy import build_refusal
from toolyard.registry import Registry
from toolyard.registry.config_sign_ins import ConfigSignIns
from toolyard.registry.credentials import AuthProviderFactory
from toolyard.registry.errors import NotFound
from toolyard.registry.issuer_confirmation import IssuerConfirmation
from toolyard.registry.sign_in import InstanceSignIns
from toolyard.registry.sign_out import SignOuts
from toolyard.results.retention import Retention
from toolyard.store import Database
from toolyard.store.errors import StoreError
from toolyard.types.agent import Agent
from toolyard.types.audit import AuditEntry
from toolyard.types.call import Caller, CallRecord
from toolyard.types.config import Configuration
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.result import Result
from toolyard.types.server import Server
from toolyard.types.status import Status
from toolyard.types.tool import Definition
from toolyard.web.access.callers import CallerCache
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.access.request_context import get_request_context
from toolyard.web.chat_backend import WebChatBackend
from toolyard.web.gateway_mount import GatewayMount
from toolyard.web.instance_sync import InstanceSync, InstanceWithServer
from toolyard.web.live.notices import GatewayNotices
from toolyard.web.live.updates import LiveUpdates
from toolyard.web.middleware.request_body import RequestBodyLimits
from toolyard.web.rendering.renderer import MarkdownRenderer
from toolyard.web.server.invalidation import (
    handle_credential_changes,
    handle_server_changes,
    handle_token_changes,
    recheck_listeners_periodically,
)
from toolyard.web.server.metrics import Metrics
from toolyard.web.server_status import ServerRecord, TokenCostCache, list_server_records
from toolyard.web.tool_acceptance import build_changes_path

__all__ = ["CLIENT_DOCUMENT_PATH", "OAUTH_CALLBACK_PATH", "Services"]

log = logging.getLogger("toolyard.web")

OAUTH_CALLBACK_PATH = "/ui/auth/mcp/callback"
"""Where authorization servers send people back to."""
CLIENT_DOCUMENT_PATH = "/oauth/client.json"
"""Where our client id metadata document stands."""
_CONNECT_WAIT_SECONDS = 10.0
"""Seconds that somebody waits for a server to connect."""


class Services:
    """One process's rooms. ``await Site.open(...)``, and ``close`` at the end."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        agents: Sequence[Agent],
        *,
        database: Database,
        address: str,
    ) -> None:
        self.configuration = configuration
        self.settings = settings
        self.data_dir = data_dir
        self.database = database
        self.audit = database.audit
        self.address = address
        """Where this process is reached without a public address."""
        self.clock = time.time
        self.is_stopping = False
        self.stop_event = asyncio.Event()
        """Set once nobody shall come any more, for streams to end."""
        self.revision = 0
        """Counts the configurations and agents that were in force: what is prepared for one is of its own."""
        self.loaded_agents = LoadedAgents(settings.agents_path or data_dir / "AGENTS.md", tuple(agents))
        """The agents in force, and what is wrong with the file as it is now."""
        self.config_problem: str | None = None
        """Why the last edit of the configuration is not in force; None where it is."""
        self.net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
        self.people = AccountService(database.accounts, settings, clock=time.time)
        self.registry = Registry(database.registry, settings, clock=time.time)
        flow = SignInFlow(self.net, database.auth, self.build_client_identity(settings.public_url or address))
        self.sign_ins = InstanceSignIns(flow, self.registry, database.auth)
        self.config_sign_ins = ConfigSignIns(flow, database.auth)
        self.issuers = IssuerConfirmation(flow, self.registry, database.auth)
        self.sign_outs = SignOuts(database.auth, self.net, self.spawn)
        self.page_url = (settings.public_url or address).rstrip("/")
        """Where pages are, for links that are not followed from a page."""
        self.approvals = CallApprovals(database.approvals, f"{self.page_url}/ui/approvals", clock=time.time)
        self.chats = ChatService(
            database.chats,
            database.approvals,
            Models.from_settings(settings),
            WebChatBackend(self),
            ChatLimits.from_settings(settings),
        )
        self.parts = self._build_parts()
        self.body_limits = RequestBodyLimits(settings)
        self.mcp = GatewayMount(self)
        self.metrics = Metrics(self.parts.manager.statuses)
        self.gateway_notices = GatewayNotices(self)
        self.instance_sync = InstanceSync(
            self.registry, self.parts, database.auth, self.gateway_notices.changed
        )
        self._caller_cache = CallerCache(agents, configuration.bundles)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._end_work_task: asyncio.Task[None] | None = None
        self._current_user: ContextVar[RequestUser | None] = ContextVar("visiting", default=None)
        self.token_costs = TokenCostCache()
        self.markdown_renderer = MarkdownRenderer()
        self.live_updates: LiveUpdates[Caller, ServerRecord] = LiveUpdates(self._fetch_records)

    @classmethod
    async def open(
        cls,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        agents: Sequence[Agent] = (),
        *,
        address: str = "",
    ) -> Services:
        """Open the database and build the rest; nothing is connected yet. Raises ToolyardError."""
        database = await Database.open_from_settings(settings, data_dir)
        site = cls(configuration, settings, data_dir, agents, database=database, address=address)
        await site.chats.open(resume_any_chat=True)
        for hear in (
            handle_token_changes,
            handle_credential_changes,
            handle_server_changes,
            recheck_listeners_periodically,
        ):
            site.spawn(hear(site))
        for run in (site.gateway_notices.run, site.mcp.gateway.remote_calls.run):
            site.spawn(run())
        return site

    def _build_parts(self) -> Parts:
        credentials = AuthProviderFactory(self.registry, self.database.auth, self.net)
        sampling = bool(self.chats.models.choices)
        return build_core(
            self.configuration,
            self.settings,
            data_dir=self.data_dir,
            auth_provider_for=credentials.auth_provider_for,
            net=self.net,
            result_store_for=self.database.results.within(
                Retention(self.settings.result_keep, self.settings.result_store_limit)
            ).for_principal,
            catalogue_storage=self.database.catalogues,
            registry_pins=self.database.pins,
            config_pins=self.database.config_pins,
            accept_url_for=lambda server: self.page_url + build_changes_path(server),
            approve=self.approvals,
            record=self._record_call,
            before_call=self._before_call,
            callbacks_for=make_chat_callbacks(lambda: self.chats.questions, sampling=sampling),
            on_list_changed=self._on_list_changed,
            with_native_tools=True,
        )

    async def close(self) -> None:
        """Close connections, end children, write down what was noted. Bounded; may be called twice."""
        self.is_stopping = True
        await self.end_work()
        await self.net.close()
        await self.database.close()

    def stop(self) -> None:
        """Nobody shall come any more: streams end, and whoever asks hears that we are not ready."""
        self.is_stopping = True
        self.stop_event.set()
        self.live_updates.close()
        self.mcp.stop()

    async def end_work(self) -> None:
        """End what runs by itself and what open requests wait for: connections and children. Once: who asks
        again waits for the same end."""
        if self._end_work_task is None:
            self._end_work_task = asyncio.get_running_loop().create_task(self._end_work())
        await asyncio.shield(self._end_work_task)

    async def _end_work(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.chats.close()
        await self.mcp.close()
        await self.parts.close()
        await self.chats.models.close()
        await self.markdown_renderer.close()

    # Who calls, what they have, and who we are.

    @property
    def agents(self) -> Mapping[str, Agent]:
        """By id."""
        return self._caller_cache.agents

    def get_caller(
        self, visitor: RequestUser, *, agent: str | None = None, bundles: Iterable[str] = ()
    ) -> Caller:
        """Who calls, kept for the next time. Raises AgentsError or ConfigError for what there is not."""
        return self._caller_cache.get(visitor, agent, bundles)

    def get_chat_caller(self, visitor: RequestUser, agent: str, surface: Surface) -> Caller:
        """As the model of a chat of this visitor's, with this agent, would see things by this way. Nothing is
        called in its name. Raises AgentsError or ConfigError for what there is not."""
        return self._caller_cache.get(visitor, agent, (), chat_surface=surface)

    def apply_agents(self, loaded: LoadedAgents) -> None:
        """Other agents are in force, or something else is wrong with their file: at once, for everyone."""
        self.loaded_agents = loaded
        if loaded.agents == tuple(self.agents.values()):
            return
        self.revision += 1
        self._caller_cache.set_agents(loaded.agents)
        self.mcp.gateway.client_subscriptions.notify_tools_changed()

    async def sync_instances(self, visitor: RequestUser) -> None:
        """Let the core know the instances that this user has now. Cheap where nothing changed."""
        await self.instance_sync.sync(visitor.principal)

    async def instances(self, principal: Principal) -> Sequence[InstanceWithServer]:
        """The instances that somebody has now, each with its server; the core knows them after this."""
        return await self.instance_sync.sync(principal)

    async def list_visible_instances(self, visitor: RequestUser) -> Sequence[InstanceWithServer]:
        """The visitor's instances, as far as their token reaches."""
        return await self.instance_sync.sync_covered(visitor.principal, visitor.scope)

    async def instance(self, visitor: RequestUser, instance_id: str) -> InstanceWithServer:
        """One of the visitor's, as far as their token reaches. Raises NotFound."""
        return await self.instance_sync.find(visitor.principal, visitor.scope, instance_id)

    async def reconnect_instance(
        self, visitor: RequestUser, instance: Instance, registered: RegistryServer
    ) -> None:
        """Connect an instance anew and list its tools; its state tells afterwards what came of it."""
        server = self.instance_sync.server(instance, registered)
        if server.enabled:
            await self.parts.reconnect(server.id, visitor.principal)
            await self.parts.tool_directory.refresh(visitor.principal, fresh=True, only=[server.id])
            await self.sync_instances(visitor)

    def status(self, server: Server, principal: Principal) -> Status:
        """How a server is for somebody, without its secrets."""
        manager = self.parts.manager
        if manager.find(server.id, principal) is None:
            return initial_status(server, principal)
        return self.parts.call_path.redact_status(manager.status(server.id, principal=principal))

    def base_url(self, request: Request) -> str:
        """Under which address people reach us, without a slash at the end."""
        return (self.settings.public_url or get_request_context(request.scope).origin).rstrip("/")

    def build_client_identity(self, base_url: str) -> ClientIdentity:
        """Who we are to authorization servers, for somebody who reached us under this address."""
        public = self.settings.public_url
        document = (
            f"{public.rstrip('/')}{CLIENT_DOCUMENT_PATH}"
            if public and public.startswith("https://")
            else None
        )
        return ClientIdentity(
            redirect_uri=base_url + OAUTH_CALLBACK_PATH,
            client_uri=public,
            document_url=document,
            dynamic_first=self.settings.oauth_registration is Registration.DYNAMIC,
        )

    # Servers of the configuration.

    async def connect_shared_servers(self, server_ids: Iterable[str] | None = None) -> None:
        """Connect those that would be the same connection for everyone, and list their tools."""
        alone = self.settings.people_mode is PeopleMode.NONE
        servers = self.configuration.servers
        wanted = [
            id_
            for id_ in (servers if server_ids is None else server_ids)
            if id_ in servers and servers[id_].enabled and (alone or servers[id_].shared)
        ]
        if wanted:
            await self.parts.manager.connect(wanted)
            await self.parts.tool_directory.refresh(LOCAL_PRINCIPAL, only=wanted)

    async def restart_server(self, visitor: RequestUser, server_id: str) -> None:
        """Close all connections of a server of the configuration and forget why it failed. Where there is one
        for all, it is connected again; whoever waits does so for some seconds. Raises NotFound."""
        if server_id not in self.configuration.servers:
            hint = "GET /api/v1/status lists them"
            raise NotFound(f"there is no server '{server_id}' in the configuration", hint=hint)
        await self.parts.manager.restart(server_id)
        await self.changed(visitor, "server.restart", server_id)
        await asyncio.wait(
            [self.spawn(self.connect_shared_servers([server_id]))], timeout=_CONNECT_WAIT_SECONDS
        )

    async def reconfigure(self, configuration: Configuration) -> None:
        """Take over a changed configuration: only servers whose entry changed are touched."""
        self.configuration = configuration
        self.revision += 1
        self._caller_cache.change(configuration.bundles)
        touched = await self.parts.update_configuration(configuration)
        self.gateway_notices.changed(None, touched)
        if self.settings.warm:
            self.spawn(self.connect_shared_servers(touched))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside everything else; it ends with the site."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("something that runs by itself failed", exc_info=error)

    def _on_list_changed(self, server_id: str) -> None:
        if not self.is_stopping:
            self.spawn(self.parts.handle_list_changed(server_id))

    async def _fetch_records(self, caller: Caller) -> dict[str, ServerRecord]:
        return {f"{each.kind}:{each.id}": each for each in await list_server_records(self, caller)}

    # What is done, and written down.

    async def find_tool(self, caller: Caller, name: str) -> Definition:
        """One tool that this caller gets to see, by its exposed name; lists no more servers than that takes.

        Raises what ``call`` raises before it calls.
        """
        calls, rosters = self.parts.call_path, self.parts.tool_directory
        if await rosters.locate_tool(name, caller.principal) is None:
            for server_id, failure in rosters.known_listing(caller.principal).failures.items():
                if calls.can_see_unknown_tool(server_id, name, caller):
                    calls.redact_error(failure)
                    raise failure
        shown = calls.shown(rosters.known_listing(caller.principal), caller)
        if name not in shown:
            raise build_refusal(name, shown)
        return shown[name]

    async def call_tool(
        self,
        visitor: RequestUser,
        name: str,
        arguments: Mapping[str, Any],
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
    ) -> Result:
        """Call a tool for a visitor. Raises ToolRefused or a ServerError."""
        caller = self.get_caller(visitor, agent=agent, bundles=bundles)
        await self.sync_instances(visitor)
        visiting = self._current_user.set(visitor)
        try:
            return await self.parts.call_path.call(name, arguments, caller)
        finally:
            self._current_user.reset(visiting)

    def set_current_user(self, visitor: RequestUser) -> None:
        """Whom the calls are for that the running task makes from now on."""
        self._current_user.set(visitor)

    @property
    def is_audit_failing(self) -> bool:
        """Whether calls are refused because the audit log cannot be written."""
        return self._is_audited and self.audit.is_failing

    @property
    def _is_audited(self) -> bool:
        """With one local user nobody but them would read the log."""
        return self.settings.people_mode is not PeopleMode.NONE

    async def _before_call(self, tool: str, name: str, caller: Caller) -> None:
        if not self._is_audited:
            return
        if self.settings.audit is AuditMode.BATCHED:
            self.audit.check()
            return
        agent = caller.agent.id if caller.agent is not None else None
        details = {"name": name, "agent": agent}
        await self.audit.require(
            self._create_audit_entry("tool.call.start", caller.principal.id, tool, "", details)
        )

    def _record_call(self, record: CallRecord) -> None:
        self.metrics.record_call(record)
        details = {"name": record.name, "agent": record.agent, "seconds": round(record.seconds, 3)}
        self.audit.record(
            self._create_audit_entry("tool.call", record.principal, record.tool, record.outcome, details)
        )

    def _create_audit_entry(
        self, action: str, actor: str, target: str, outcome: str, details: dict[str, Any]
    ) -> AuditEntry:
        visitor = self._current_user.get()
        return AuditEntry(
            at=time.time(),
            action=action,
            actor=actor,
            actor_name=visitor.user.name if visitor is not None else "",
            target=target,
            outcome=outcome,
            address=visitor.address if visitor is not None else "",
            details=details,
        )

    async def changed(self, visitor: RequestUser, action: str, target: str, **details: object) -> None:
        """Write down that somebody changed something; at once, or as soon as the database takes it: what was
        done is done, and whoever did it must not be told otherwise."""
        entry = AuditEntry(
            at=self.clock(),
            action=action,
            actor=visitor.user.id,
            actor_name=visitor.user.name,
            target=target,
            address=visitor.address,
            details=details,
        )
        try:
            await self.audit.write(entry)
        except StoreError:
            self.audit.record(entry)
