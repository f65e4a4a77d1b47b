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

from toolyard.accounts import People
from toolyard.agents.chat.chat_settings import ChatRules
from toolyard.agents.chat.chats import Chats
from toolyard.agents.definitions.watch import AgentsNow
from toolyard.agents.models.available_models import Models
from toolyard.auth.sign_in_flow import Flow
from toolyard.auth.sign_in_target import Ourselves
from toolyard.clients.connection import unused
from toolyard.config.settings.choices import AuditMode, PeopleMode, Registration
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Parts, asked_in_chats, build
from toolyard.gateway.input_required.approvals import Approvals
from toolyard.net import Guard, Net
from toolyard.policy import refused
from toolyard.registry import Registry
from toolyard.registry.config_sign_ins import ConfigSignIns
from toolyard.registry.credentials import Credentials
from toolyard.registry.errors import NotFound
from toolyard.registry.issuer_confirmation import IssuerConfirmation
from toolyard.registry.sign_in import SignIns
from toolyard.registry.sign_out import SignOuts
from toolyard.results.retention import Bounds
from toolyard.store import Database
from toolyard.store.errors import StoreError
from toolyard.types.agent import Agent
from toolyard.types.audit import AuditEntry
from toolyard.types.call import Caller, CallRecord
from toolyard.types.config import Configuration
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.result import Result
from toolyard.types.server import Server
from toolyard.types.status import Status
from toolyard.types.tool import Definition
from toolyard.web.access.callers import Callers
from toolyard.web.access.dependencies import Visitor
from toolyard.web.access.request_context import passage_of
from toolyard.web.chat_backend import Chatting
from toolyard.web.gateway_mount import McpDoor
from toolyard.web.instance_sync import Holdings, Own
from toolyard.web.live.notices import Watchers
from toolyard.web.live.updates import Live
from toolyard.web.middleware.request_body import RequestBodies
from toolyard.web.rendering.renderer import MarkdownRenderer
from toolyard.web.server.invalidation import hear_credentials, hear_servers, hear_tokens, mind_expiry
from toolyard.web.server.metrics import Metrics
from toolyard.web.server_status import Costs, ServerRecord, records_of
from toolyard.web.tool_acceptance import changes_page

__all__ = ["CALLBACK", "DOCUMENT", "Site"]

log = logging.getLogger("toolyard.web")

CALLBACK = "/ui/auth/mcp/callback"
"""Where authorization servers send people back to."""
DOCUMENT = "/oauth/client.json"
"""Where our client id metadata document stands."""
_CONNECTING = 10.0
"""Seconds that somebody waits for a server to connect."""


class Site:
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
        self.stopping = False
        self.stopped = asyncio.Event()
        """Set once nobody shall come any more, for streams to end."""
        self.edition = 0
        """Counts the configurations and agents that were in force: what is prepared for one is of its own."""
        self.agents_now = AgentsNow(settings.agents_path or data_dir / "AGENTS.md", tuple(agents))
        """The agents in force, and what is wrong with the file as it is now."""
        self.config_problem: str | None = None
        """Why the last edit of the configuration is not in force; None where it is."""
        self.net = Net(Guard.of(settings.guard_allow, settings.guard_deny))
        self.people = People(database.people, settings, clock=time.time)
        self.registry = Registry(database.registry, settings, clock=time.time)
        flow = Flow(self.net, database.auth, self.ourselves(settings.public_url or address))
        self.sign_ins = SignIns(flow, self.registry, database.auth)
        self.config_sign_ins = ConfigSignIns(flow, database.auth)
        self.issuers = IssuerConfirmation(flow, self.registry, database.auth)
        self.sign_outs = SignOuts(database.auth, self.net, self.spawn)
        self.page_url = (settings.public_url or address).rstrip("/")
        """Where pages are, for links that are not followed from a page."""
        self.approvals = Approvals(database.approvals, f"{self.page_url}/ui/approvals", clock=time.time)
        self.chats = Chats(
            database.chats,
            database.approvals,
            Models.of(settings),
            Chatting(self),
            ChatRules.of(settings),
        )
        self.parts = self._build()
        self.bodies = RequestBodies(settings)
        self.mcp = McpDoor(self)
        self.metrics = Metrics(self.parts.manager.statuses)
        self.watchers = Watchers(self)
        self.holdings = Holdings(self.registry, self.parts, database.auth, self.watchers.changed)
        self._callers = Callers(agents, configuration.bundles)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._visiting: ContextVar[Visitor | None] = ContextVar("visiting", default=None)
        self.costs = Costs()
        self.markdown = MarkdownRenderer()
        self.live: Live[Caller, ServerRecord] = Live(self._look)

    @classmethod
    async def open(
        cls,
        configuration: Configuration,
        settings: Settings,
        data_dir: Path,
        agents: Sequence[Agent] = (),
        *,
        address: str = "",
    ) -> Site:
        """Open the database and build the rest; nothing is connected yet. Raises ToolyardError."""
        database = await Database.of(settings, data_dir)
        site = cls(configuration, settings, data_dir, agents, database=database, address=address)
        await site.chats.open(everybodys=True)
        for hear in (hear_tokens, hear_credentials, hear_servers, mind_expiry):
            site.spawn(hear(site))
        for run in (site.watchers.run, site.mcp.gateway.handing.run):
            site.spawn(run())
        return site

    def _build(self) -> Parts:
        credentials = Credentials(self.registry, self.database.auth, self.net)
        sampling = bool(self.chats.models.choices)
        return build(
            self.configuration,
            self.settings,
            data_dir=self.data_dir,
            auth_for=credentials.auth_for,
            net=self.net,
            handles=self.database.results.within(
                Bounds(self.settings.result_keep, self.settings.result_store_limit)
            ).of,
            storage=self.database.catalogues,
            pins=self.database.pins,
            config_pins=self.database.config_pins,
            accept_at=lambda server: self.page_url + changes_page(server),
            approve=self.approvals,
            record=self._called,
            before=self._before_call,
            callbacks_for=asked_in_chats(lambda: self.chats.questions, sampling=sampling),
            on_list_changed=self._list_changed,
            native=True,
        )

    async def close(self) -> None:
        """Close connections, end children, write down what was noted. Bounded; may be called twice."""
        self.stopping = True
        await self.end_work()
        await self.net.close()
        await self.database.close()

    def stop(self) -> None:
        """Nobody shall come any more: streams end, and whoever asks hears that we are not ready."""
        self.stopping = True
        self.stopped.set()
        self.live.close()
        self.mcp.stop()

    async def end_work(self) -> None:
        """End what runs by itself and what open requests wait for: connections and children. Once: who asks
        again waits for the same end."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end_work())
        await asyncio.shield(self._ending)

    async def _end_work(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.chats.close()
        await self.mcp.close()
        await self.parts.close()
        await self.chats.models.close()
        await self.markdown.close()

    # Who calls, what they have, and who we are.

    @property
    def agents(self) -> Mapping[str, Agent]:
        """By id."""
        return self._callers.agents

    def caller(self, visitor: Visitor, *, agent: str | None = None, bundles: Iterable[str] = ()) -> Caller:
        """Who calls, kept for the next time. Raises AgentsError or ConfigError for what there is not."""
        return self._callers.of(visitor, agent, bundles)

    def as_in_chat(self, visitor: Visitor, agent: str, surface: Surface) -> Caller:
        """As the model of a chat of this visitor's, with this agent, would see things by this way. Nothing is
        called in its name. Raises AgentsError or ConfigError for what there is not."""
        return self._callers.of(visitor, agent, (), in_chat=surface)

    def take_agents(self, now: AgentsNow) -> None:
        """Other agents are in force, or something else is wrong with their file: at once, for everyone."""
        self.agents_now = now
        if now.agents == tuple(self.agents.values()):
            return
        self.edition += 1
        self._callers.change_agents(now.agents)
        self.mcp.gateway.hub.tools_changed()

    async def enter(self, visitor: Visitor) -> None:
        """Let the core know the instances that this user has now. Cheap where nothing changed."""
        await self.holdings.of(visitor.principal)

    async def instances(self, principal: Principal) -> Sequence[Own]:
        """The instances that somebody has now, each with its server; the core knows them after this."""
        return await self.holdings.of(principal)

    async def instances_for(self, visitor: Visitor) -> Sequence[Own]:
        """The visitor's instances, as far as their token reaches."""
        return await self.holdings.covered(visitor.principal, visitor.scope)

    async def instance(self, visitor: Visitor, instance_id: str) -> Own:
        """One of the visitor's, as far as their token reaches. Raises NotFound."""
        return await self.holdings.one(visitor.principal, visitor.scope, instance_id)

    async def test(self, visitor: Visitor, instance: Instance, registered: RegistryServer) -> None:
        """Connect an instance anew and list its tools; its state tells afterwards what came of it."""
        server = self.holdings.server(instance, registered)
        if server.enabled:
            await self.parts.reconnect(server.id, visitor.principal)
            await self.parts.rosters.current(visitor.principal, fresh=True, only=[server.id])
            await self.enter(visitor)

    def status(self, server: Server, principal: Principal) -> Status:
        """How a server is for somebody, without its secrets."""
        manager = self.parts.manager
        if manager.find(server.id, principal) is None:
            return unused(server, principal)
        return self.parts.calls.hushed(manager.status(server.id, principal=principal))

    def base_url(self, request: Request) -> str:
        """Under which address people reach us, without a slash at the end."""
        return (self.settings.public_url or passage_of(request.scope).origin).rstrip("/")

    def ourselves(self, base_url: str) -> Ourselves:
        """Who we are to authorization servers, for somebody who reached us under this address."""
        public = self.settings.public_url
        document = f"{public.rstrip('/')}{DOCUMENT}" if public and public.startswith("https://") else None
        return Ourselves(
            redirect_uri=base_url + CALLBACK,
            client_uri=public,
            document_url=document,
            dynamic_first=self.settings.oauth_registration is Registration.DYNAMIC,
        )

    # Servers of the configuration.

    async def warm(self, server_ids: Iterable[str] | None = None) -> None:
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
            await self.parts.rosters.current(LOCAL, only=wanted)

    async def restart(self, visitor: Visitor, server_id: str) -> None:
        """Close all connections of a server of the configuration and forget why it failed. Where there is one
        for all, it is connected again; whoever waits does so for some seconds. Raises NotFound."""
        if server_id not in self.configuration.servers:
            hint = "GET /api/v1/status lists them"
            raise NotFound(f"there is no server '{server_id}' in the configuration", hint=hint)
        await self.parts.manager.restart(server_id)
        await self.changed(visitor, "server.restart", server_id)
        await asyncio.wait([self.spawn(self.warm([server_id]))], timeout=_CONNECTING)

    async def reconfigure(self, configuration: Configuration) -> None:
        """Take over a changed configuration: only servers whose entry changed are touched."""
        self.configuration = configuration
        self.edition += 1
        self._callers.change(configuration.bundles)
        touched = await self.parts.update(configuration)
        self.watchers.changed(None, touched)
        if self.settings.warm:
            self.spawn(self.warm(touched))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside everything else; it ends with the site."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("something that runs by itself failed", exc_info=error)

    def _list_changed(self, server_id: str) -> None:
        if not self.stopping:
            self.spawn(self.parts.list_changed(server_id))

    async def _look(self, caller: Caller) -> dict[str, ServerRecord]:
        return {f"{each.kind}:{each.id}": each for each in await records_of(self, caller)}

    # What is done, and written down.

    async def find(self, caller: Caller, name: str) -> Definition:
        """One tool that this caller gets to see, by its exposed name; lists no more servers than that takes.

        Raises what ``call`` raises before it calls.
        """
        calls, rosters = self.parts.calls, self.parts.rosters
        if await rosters.locate(name, caller.principal) is None:
            for server_id, failure in rosters.known(caller.principal).failures.items():
                if calls.may_see(server_id, name, caller):
                    calls.hush(failure)
                    raise failure
        shown = calls.shown(rosters.known(caller.principal), caller)
        if name not in shown:
            raise refused(name, shown)
        return shown[name]

    async def call(
        self,
        visitor: Visitor,
        name: str,
        arguments: Mapping[str, Any],
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
    ) -> Result:
        """Call a tool for a visitor. Raises ToolRefused or a ServerError."""
        caller = self.caller(visitor, agent=agent, bundles=bundles)
        await self.enter(visitor)
        visiting = self._visiting.set(visitor)
        try:
            return await self.parts.calls.call(name, arguments, caller)
        finally:
            self._visiting.reset(visiting)

    def visiting(self, visitor: Visitor) -> None:
        """Whom the calls are for that the running task makes from now on."""
        self._visiting.set(visitor)

    @property
    def audit_failing(self) -> bool:
        """Whether calls are refused because the audit log cannot be written."""
        return self._audited and self.audit.failing

    @property
    def _audited(self) -> bool:
        """With one local user nobody but them would read the log."""
        return self.settings.people_mode is not PeopleMode.NONE

    async def _before_call(self, tool: str, name: str, caller: Caller) -> None:
        if not self._audited:
            return
        if self.settings.audit is AuditMode.BATCHED:
            self.audit.check()
            return
        agent = caller.agent.id if caller.agent is not None else None
        details = {"name": name, "agent": agent}
        await self.audit.require(self._entry("tool.call.start", caller.principal.id, tool, "", details))

    def _called(self, record: CallRecord) -> None:
        self.metrics.called(record)
        details = {"name": record.name, "agent": record.agent, "seconds": round(record.seconds, 3)}
        self.audit.note(self._entry("tool.call", record.principal, record.tool, record.outcome, details))

    def _entry(
        self, action: str, actor: str, target: str, outcome: str, details: dict[str, Any]
    ) -> AuditEntry:
        visitor = self._visiting.get()
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

    async def changed(self, visitor: Visitor, action: str, target: str, **details: object) -> None:
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
            self.audit.note(entry)
