"""The services of a process with chats: models, registry, audit log, core and the chats themselves."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypedDict, Unpack

from toolyard.agents.chat.attachments import AttachmentService
from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.tool_set import ToolSetSource
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.models.available_models import Models
from toolyard.catalog.lock.storage import PinEntryStorage, RegistryPinStorage
from toolyard.catalog.storage import ListingStorage
from toolyard.clients.call_path import AcceptUrlFor, ApprovalHandler, BeforeCall, ResultStoreFor
from toolyard.clients.process_pool import ProcessPool
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config.settings.table import Settings
from toolyard.core.audit import AuditRecorder
from toolyard.core.composition import Core, SharedQuestionHandler, build_core, make_chat_callbacks
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.registry import Registry
from toolyard.registry.auth_provider_factory import AuthProviderFactory
from toolyard.registry.model_registry import ModelRegistry
from toolyard.store import Database
from toolyard.tracing.selection import choose_tracer
from toolyard.types.account import Principal
from toolyard.types.server import Configuration

__all__ = ["ChatServices"]


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
        sign_ins = AuthProviderFactory(self.registry, self.database.auth, self.net)
        return build_core(
            configuration,
            self.settings,
            data_dir=self.data_dir,
            auth_provider_for=sign_ins.auth_provider_for,
            net=self.net,
            approve=approve,
            record=self.audit.record_call,
            # The chats need the core, so that they are looked up when a server asks.
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
