"""The objects that one server process works with: construction, start and shutdown."""

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
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config.settings.choices import AuditMode, PeopleMode, Registration
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core, make_chat_callbacks
from toolyard.gateway.http.event_streams import StreamLimits
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
from toolyard.types.call import Caller, CallRecord, ToolCall
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
"""Path of the redirect URI that authorization servers send the browser back to."""
CLIENT_DOCUMENT_PATH = "/oauth/client.json"
"""Path of our OAuth client ID metadata document."""
_CONNECT_WAIT_SECONDS = 10.0
"""Maximum time that a restart request waits for the server to connect, in seconds."""


class Services:
    """The services of one process. Create with ``await Services.open(...)``; call ``close`` at the end."""

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
        """URL of the listening socket, used if no public URL is configured."""
        self.clock = time.time
        self.is_stopping = False
        self.stop_event = asyncio.Event()
        """Set when the process begins to stop; long-lived streams end then."""
        self.revision = 0
        """Incremented when the configuration or the agents change. Part of cache keys."""
        self.loaded_agents = LoadedAgents(settings.agents_path or data_dir / "AGENTS.md", tuple(agents))
        """The agents in use, with the problems of the current file."""
        self.config_problem: str | None = None
        """Error message of the last configuration edit, or None if it was applied."""
        self.net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
        self.people = AccountService(database.accounts, settings, clock=time.time)
        self.registry = Registry(database.registry, settings, clock=time.time)
        flow = SignInFlow(self.net, database.auth, self.build_client_identity(settings.public_url or address))
        self.sign_ins = InstanceSignIns(flow, self.registry, database.auth)
        self.config_sign_ins = ConfigSignIns(flow, database.auth)
        self.issuers = IssuerConfirmation(flow, self.registry, database.auth)
        self.sign_outs = SignOuts(database.auth, self.net, self.spawn)
        self.page_url = (settings.public_url or address).rstrip("/")
        """Base URL of the pages, for links sent outside of a page."""
        self.approvals = CallApprovals(database.approvals, f"{self.page_url}/ui/approvals", clock=time.time)
        self.chats = ChatService(
            database.chats,
            database.approvals,
            Models.from_settings(settings),
            WebChatBackend(self),
            ChatLimits.from_settings(settings),
        )
        # The core and the chats need each other. Chats get the services, and the core gets callbacks that
        # look up the chats when they are called.
        self.core = self._build_core()
        self.body_limits = RequestBodyLimits(settings)
        self.stream_limits = StreamLimits(settings.max_streams_per_person, settings.max_streams)
        self.mcp = GatewayMount(self)
        self.metrics = Metrics(self.core.manager.statuses)
        self.gateway_notices = GatewayNotices(self)
        self.instance_sync = InstanceSync(
            self.registry, self.core, database.auth, self.gateway_notices.notify_servers_changed
        )
        self._caller_cache = CallerCache(agents, configuration.bundles)
        self._tasks = BackgroundTasks()
        self._end_work_task: asyncio.Task[None] | None = None
        # A context variable, because the core calls our audit hooks without the user of the request.
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
        """Open the database and create all services, without connecting to any server.

        Raises ToolyardError.
        """
        database = await Database.open_from_settings(settings, data_dir)
        services = cls(configuration, settings, data_dir, agents, database=database, address=address)
        await services.chats.open(resume_any_chat=True)
        for watch in (
            handle_token_changes,
            handle_credential_changes,
            handle_server_changes,
            recheck_listeners_periodically,
        ):
            services.spawn(watch(services))
        for run in (database.watch_key, services.gateway_notices.run, services.mcp.gateway.remote_calls.run):
            services.spawn(run())
        return services

    def _build_core(self) -> Core:
        credentials = AuthProviderFactory(self.registry, self.database.auth, self.net)
        sampling = bool(self.chats.models.choices)
        return build_core(
            self.configuration,
            self.settings,
            data_dir=self.data_dir,
            auth_provider_for=credentials.auth_provider_for,
            net=self.net,
            result_store_for=self.database.results.with_retention(
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
        """Close connections, end child processes and flush the audit log. Bounded in time; idempotent."""
        self.is_stopping = True
        await self.end_work()
        await self.net.close()
        # Last, because ending turns and connections still write to it.
        await self.database.close()

    def stop(self) -> None:
        """Begin to stop: end long-lived streams and report the process as not ready."""
        self.is_stopping = True
        self.stop_event.set()
        self.live_updates.close()
        self.mcp.stop()

    async def end_work(self) -> None:
        """End background tasks, server connections and child processes, so that open requests complete.

        The work is done once; further callers await the same task.
        """
        if self._end_work_task is None:
            self._end_work_task = asyncio.get_running_loop().create_task(self._end_work())
        # A caller that is cancelled must not leave the shutdown half done for the others.
        await asyncio.shield(self._end_work_task)

    async def _end_work(self) -> None:
        # Background tasks end first, so that nothing begins new work; chats end before the connections that
        # their turns use.
        await self._tasks.close()
        await self.chats.close()
        await self.mcp.close()
        await self.core.close()
        await self.chats.models.close()
        await self.markdown_renderer.close()

    # Callers, instances, and our identity as an OAuth client.

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents in use, by id."""
        return self._caller_cache.agents

    def get_caller(
        self, request_user: RequestUser, *, agent: str | None = None, bundles: Iterable[str] = ()
    ) -> Caller:
        """Return the cached caller for a user, an agent and bundles.

        Raises AgentsError for an unknown agent and ConfigError for an unknown bundle.
        """
        return self._caller_cache.get(request_user, agent, bundles)

    def get_chat_caller(self, request_user: RequestUser, agent: str, surface: Surface) -> Caller:
        """Return a caller with the view of the model in a chat of this user with this agent.

        For inspection only: no tool is called with it. Raises AgentsError for an unknown agent and
        ConfigError for an unknown bundle.
        """
        return self._caller_cache.get(request_user, agent, (), chat_surface=surface)

    def apply_agents(self, loaded: LoadedAgents) -> None:
        """Use newly loaded agents, and the problems of their file, from now on."""
        self.loaded_agents = loaded
        if loaded.agents == tuple(self.agents.values()):
            return
        self.revision += 1
        self._caller_cache.set_agents(loaded.agents)
        self.mcp.gateway.client_subscriptions.notify_tools_changed()

    async def sync_instances(self, request_user: RequestUser) -> None:
        """Synchronise the user's instances from the database to the core. Cheap if nothing changed."""
        await self.instance_sync.sync(request_user.principal)

    async def list_instances(self, principal: Principal) -> Sequence[InstanceWithServer]:
        """Synchronise the instances of a principal to the core and return each with its server."""
        return await self.instance_sync.sync(principal)

    async def list_visible_instances(self, request_user: RequestUser) -> Sequence[InstanceWithServer]:
        """Return the user's instances that their token covers."""
        return await self.instance_sync.sync_covered(request_user.principal, request_user.scope)

    async def find_instance(self, request_user: RequestUser, instance_id: str) -> InstanceWithServer:
        """Return one of the user's instances. Raises NotFound, also if their token does not cover it."""
        return await self.instance_sync.find(request_user.principal, request_user.scope, instance_id)

    async def reconnect_instance(
        self, request_user: RequestUser, instance: Instance, registered: RegistryServer
    ) -> None:
        """Reconnect an instance, list its tools and store the resulting state."""
        server = self.instance_sync.get_server(instance, registered)
        if server.enabled:
            await self.core.reconnect(server.id, request_user.principal)
            await self.core.tool_directory.refresh(request_user.principal, fresh=True, only=[server.id])
            await self.sync_instances(request_user)

    def get_status(self, server: Server, principal: Principal) -> Status:
        """Return the status of a server for a principal, with secrets redacted."""
        manager = self.core.manager
        if manager.find(server.id, principal) is None:
            return initial_status(server, principal)
        return self.core.call_path.redact_status(manager.status(server.id, principal=principal))

    def base_url(self, request: Request) -> str:
        """Return the URL under which users reach this server, without a trailing slash."""
        return (self.settings.public_url or get_request_context(request.scope).origin).rstrip("/")

    def build_client_identity(self, base_url: str) -> ClientIdentity:
        """Return our OAuth client identity for a user who reached us under ``base_url``."""
        public = self.settings.public_url
        # Authorization servers fetch the document, and the client id must be an https URL.
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
        """Connect the servers whose connection all users share, and list their tools."""
        alone = self.settings.people_mode is PeopleMode.NONE
        servers = self.configuration.servers
        shared_ids = [
            id_
            for id_ in (servers if server_ids is None else server_ids)
            if id_ in servers and servers[id_].enabled and (alone or servers[id_].shared)
        ]
        if shared_ids:
            await self.core.manager.connect(shared_ids)
            await self.core.tool_directory.refresh(LOCAL_PRINCIPAL, only=shared_ids)

    async def restart_server(self, request_user: RequestUser, server_id: str) -> None:
        """Close all connections of a configured server and forget its failure.

        A shared server is connected again; returns after at most _CONNECT_WAIT_SECONDS. Raises NotFound.
        """
        if server_id not in self.configuration.servers:
            hint = "GET /api/v1/status lists the servers"
            raise NotFound(f"server '{server_id}' is not configured", hint=hint)
        await self.core.manager.restart(server_id)
        await self.record_change(request_user, "server.restart", server_id)
        # Unlike wait_for, this does not cancel the task after the timeout: it goes on in the background.
        await asyncio.wait(
            [self.spawn(self.connect_shared_servers([server_id]))], timeout=_CONNECT_WAIT_SECONDS
        )

    async def reconfigure(self, configuration: Configuration) -> None:
        """Apply a changed configuration. Servers with an unchanged entry stay connected."""
        self.configuration = configuration
        self.revision += 1
        self._caller_cache.set_bundles(configuration.bundles)
        touched = await self.core.update_configuration(configuration)
        self.gateway_notices.notify_servers_changed(None, touched)
        if self.settings.warm:
            self.spawn(self.connect_shared_servers(touched))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background until it ends or the services close. Failures are logged."""
        return self._tasks.spawn(work)

    def _on_list_changed(self, server_id: str) -> None:
        if not self.is_stopping:
            self.spawn(self.core.handle_list_changed(server_id))

    async def _fetch_records(self, caller: Caller) -> dict[str, ServerRecord]:
        return {f"{each.kind}:{each.id}": each for each in await list_server_records(self, caller)}

    # Tool calls and the audit log.

    async def find_tool(self, caller: Caller, name: str) -> Definition:
        """Return one tool visible to the caller, by its exposed name, listing as few servers as possible.

        Raises ToolRefused, or the ServerError of a server that may have the tool but could not be listed.
        """
        calls, tool_directory = self.core.call_path, self.core.tool_directory
        if await tool_directory.locate_tool(name, caller.principal) is None:
            # The tool may belong to a server that could not be listed. Report its failure, unless the policy
            # would hide the tool from this caller anyway.
            for server_id, failure in tool_directory.known_listing(caller.principal).failures.items():
                if calls.can_see_unknown_tool(server_id, name, caller):
                    calls.redact_error(failure)
                    raise failure
        visible_tools = calls.visible_tools(tool_directory.known_listing(caller.principal), caller)
        if name not in visible_tools:
            raise build_refusal(name, visible_tools)
        return visible_tools[name]

    async def call_tool(
        self,
        request_user: RequestUser,
        name: str,
        arguments: Mapping[str, Any],
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
    ) -> Result:
        """Call a tool for a user. Raises ToolRefused or a ServerError."""
        caller = self.get_caller(request_user, agent=agent, bundles=bundles)
        await self.sync_instances(request_user)
        previous_user = self._current_user.set(request_user)
        try:
            return await self.core.call_path.call(ToolCall(name, arguments), caller)
        finally:
            self._current_user.reset(previous_user)

    def set_current_user(self, request_user: RequestUser) -> None:
        """Attribute the further tool calls of the running task to this user in the audit log."""
        self._current_user.set(request_user)

    @property
    def is_audit_failing(self) -> bool:
        """True if calls are refused because the audit log cannot be written."""
        return self._is_audited and self.audit.is_failing

    @property
    def _is_audited(self) -> bool:
        """True unless the only user is the local one, who would be the only reader of the log."""
        return self.settings.people_mode is not PeopleMode.NONE

    async def _before_call(self, tool: str, name: str, caller: Caller) -> None:
        if not self._is_audited:
            return
        # Batched entries are written later, so that a call is only refused while the log is failing.
        # Otherwise the start of the call must be stored before the call is made.
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
        request_user = self._current_user.get()
        return AuditEntry(
            at=time.time(),
            action=action,
            actor=actor,
            actor_name=request_user.user.name if request_user is not None else "",
            target=target,
            outcome=outcome,
            address=request_user.address if request_user is not None else "",
            details=details,
        )

    async def record_change(
        self, request_user: RequestUser, action: str, target: str, **details: object
    ) -> None:
        """Write an audit entry about a change that a user made.

        If the database is unavailable, the entry is queued: the change has happened, so its request must not
        fail because of the log.
        """
        entry = AuditEntry(
            at=self.clock(),
            action=action,
            actor=request_user.user.id,
            actor_name=request_user.user.name,
            target=target,
            address=request_user.address,
            details=details,
        )
        try:
            await self.audit.write(entry)
        except StoreError:
            self.audit.record(entry)
