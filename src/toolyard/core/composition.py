"""The composition root: builds the rooms from settings. What a door does not need it does not load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolyard.auth import AuthProvider
from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import NameAssigner, NameTemplates
from toolyard.catalog.lock import LockFile, lock_path
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.lock.first_use import FirstUseLock, MemoryPinEntryStorage
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import PinEntryStorage, RegistryPinStorage
from toolyard.catalog.split_storage import SplitCatalogueStorage
from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteCatalogueStorage, SqlitePinEntryStorage
from toolyard.catalog.storage import CatalogueStorage, MemoryCatalogueStorage
from toolyard.clients import Callbacks, ConnectionManager
from toolyard.clients.call_path import (
    AcceptUrlFor,
    ApprovalHandler,
    BeforeCall,
    CallPath,
    CallSettings,
    ResultStoreFor,
)
from toolyard.clients.connector import AuthProviderFor
from toolyard.clients.handshake import FileEraCache
from toolyard.clients.manager import CallbacksFor
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.clients.tool_fetcher import ToolFetcher
from toolyard.config.fingerprint_key import fingerprint_key
from toolyard.config.settings.table import Settings
from toolyard.meta import CallerSearch, MetaToolLimits, MetaTools
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.protocol.mirrored_headers import HeaderParamError, find_header_params
from toolyard.results import ResultLimits
from toolyard.results.retention import Retention
from toolyard.results.sqlite_store import RESULTS_FILE_NAME as RESULTS_NAME
from toolyard.results.sqlite_store import SqliteResultStore
from toolyard.store.lazy_database import LazyDatabase
from toolyard.store.lazy_listings import LazyPinEntryStorage, select_catalogue_storage
from toolyard.types.call import CallRecord
from toolyard.types.config import Configuration
from toolyard.types.principal import Principal
from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import JsonObject

if TYPE_CHECKING:
    from toolyard.agents.builtin_tools.server_factory import NativeServerSetup
    from toolyard.agents.chat.elicitation import ServerQuestions

__all__ = ["Parts", "auth_providers_from_database", "build_core", "make_chat_callbacks"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The core, built. ``close`` ends it."""

    manager: ConnectionManager
    catalogues: CatalogueCache
    tool_directory: ToolDirectory
    call_path: CallPath
    name_assigner: NameAssigner
    meta_tools: MetaTools
    locks: CombinedLocks = CombinedLocks()  # noqa: RUF009 - frozen
    close_callbacks: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What is closed after everything else."""
    pending_list_changes: dict[str, bool] = field(default_factory=dict[str, bool])
    """Servers that said that they have other tools, and whether they said it again before that was done: one
    that says nothing else must not fill the process with work."""

    # Changes. Of servers that did not change, nothing is closed or forgotten.

    async def update_configuration(self, configuration: Configuration) -> set[str]:
        """Take over changed config files; the ids of the servers that are different now."""
        touched = await self.manager.update(configuration.servers.values())
        self.call_path.invalidate_servers(touched)
        return touched

    async def sync_instances(self, owner: str, servers: Iterable[Server]) -> set[str]:
        """Take over all instances that one owner has now; the ids of those that are different.

        Raises ValueError for a server that is no instance of this owner.
        """
        before = set(self.manager.servers)
        touched = await self.manager.sync_instances(owner, servers)
        self.call_path.invalidate_servers(touched)
        # Of one that this process has never seen, nothing is held that could be wrong.
        for server_id in touched & before:
            await self.catalogues.forget(server_id)
        return touched

    async def forget_principal(self, principal_id: str) -> None:
        """A principal is gone: close their connections, forget their instances and what was prepared."""
        await self.sync_instances(principal_id, ())
        await self.manager.close_principal(principal_id)
        self.call_path.forget_principal(principal_id)
        self.meta_tools.forget_principal(principal_id)

    async def reconnect(self, server_id: str, principal: Principal) -> None:
        """The principal has other credentials for a server now: nothing that came with the old ones counts,
        and the next use connects. Raises Unreachable where there is no such server for them."""
        await self.manager.restart(server_id, principal)
        server = self.manager.find(server_id, principal)
        whose = None if server is not None and server.shared else principal
        self.tool_directory.forget_servers((server_id,), whose)
        await self.catalogues.forget(server_id, whose)

    async def handle_list_changed(self, server_id: str) -> None:
        """The server says that it has other tools now. Said again meanwhile, it is done once more."""
        try:
            while True:
                self.pending_list_changes[server_id] = False
                await self.catalogues.list_changed(server_id)
                self.tool_directory.require_recheck((server_id,))
                if not self.pending_list_changes.get(server_id):
                    return
        finally:
            self.pending_list_changes.pop(server_id, None)

    async def close(self) -> None:
        """End connections, children and fetches, then storage. Bounded."""
        # Connections first: a fetch that loses its own says why, one that is cancelled says nothing.
        self.tool_directory.close()
        await self.manager.close_all()
        await self.tool_directory.deferred.close()
        await self.catalogues.close()
        for close in self.close_callbacks:
            await close()


def build_core(
    configuration: Configuration,
    settings: Settings,
    *,
    data_dir: Path | None,
    callbacks: Callbacks | None = None,
    callbacks_for: CallbacksFor | None = None,
    auth_providers: Mapping[str, AuthProvider] | None = None,
    auth_provider_for: AuthProviderFor | None = None,
    net: OutboundHttp | None = None,
    result_store_for: ResultStoreFor | None = None,
    catalogue_storage: CatalogueStorage | None = None,
    registry_pins: RegistryPinStorage | None = None,
    config_pins: PinEntryStorage | None = None,
    accept_url_for: AcceptUrlFor | None = None,
    approve: ApprovalHandler | None = None,
    record: Callable[[CallRecord], None] | None = None,
    before_call: BeforeCall | None = None,
    on_list_changed: Callable[[str], None] | None = None,
    with_native_tools: bool = False,
) -> Parts:
    """The core for one process. Nothing is started or opened. Without a data directory nothing is kept.

    ``callbacks_for`` says what can be done for the servers of each principal and chat, in place of
    ``callbacks``. ``auth_for`` gives each principal's credentials, in place of what ``toolyard login`` left
    in the data directory; ``handles`` their store for long results, in place of a file there. ``storage``
    keeps catalogues: all of them where it is PostgreSQL, which library and command line then use too, else
    those that are not in their file in the data directory. ``pins`` keeps what was accepted of instances,
    ``config_pins`` that of configured servers without an ``mcp.lock`` where the database is PostgreSQL, and
    ``accept_at`` says where people accept. A ``net`` or ``storage`` that is given is not closed with the
    rest. ``native`` adds the native tools, which only callers of a chat see.
    """
    closing: list[Callable[[], Awaitable[None]]] = []
    if net is None:
        net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
        closing.append(net.close)
    database = LazyDatabase(settings, data_dir)
    closing.append(database.close)
    if auth_provider_for is None:
        auth_provider_for = auth_providers_from_database(database, net)

    changing: dict[str, bool] = {}

    def told(server_id: str, method: str, params: Mapping[str, Any]) -> None:
        if method != "notifications/tools/list_changed" or on_list_changed is None:
            return
        again = server_id in changing
        changing[server_id] = again
        if not again:
            on_list_changed(server_id)

    own = _build_native_server(settings, data_dir, net) if with_native_tools else None
    if own is not None:
        closing.append(own.close)
    key = cache(partial(fingerprint_key, settings.secret_key, data_dir))
    manager = ConnectionManager(
        configuration.servers.values(),
        callbacks=callbacks,
        callbacks_for=callbacks_for,
        auth_providers=auth_providers,
        auth_provider_for=auth_provider_for,
        net=net,
        eras=None if data_dir is None else FileEraCache(data_dir / "eras.json", key),
        max_child_processes=settings.max_stdio_servers,
        on_notification=told,
        memory_servers=None if own is None else {own.server.id: own.transport},
        built_in_servers=() if own is None else (own.server,),
    )
    entries: PinEntryStorage = MemoryPinEntryStorage()
    if data_dir is not None and settings.database_url is not None:
        entries = config_pins or LazyPinEntryStorage(database)
    if data_dir is not None and (catalogue_storage is None or settings.database_url is None):
        file = SqliteCatalogueStorage(data_dir / CATALOGUE_FILE_NAME)
        if settings.database_url is None:
            entries = SqlitePinEntryStorage(file)
        closing.append(file.close)
        catalogue_storage = (
            select_catalogue_storage(settings, file, database)
            if catalogue_storage is None
            else SplitCatalogueStorage(file, catalogue_storage)
        )
    locks = _build_locks(configuration, data_dir, registry_pins, FirstUseLock(entries, settings.pin_tools))
    catalogues = CatalogueCache(
        ToolFetcher(manager),
        catalogue_storage or MemoryCatalogueStorage(),
        schema_check=_check_header_params,
        on_listing=locks.check_listing,
        on_cache_hit=locks.recheck_first_use,
        key=key,
    )
    naming = NameAssigner(NameTemplates(settings.naming_template, settings.instance_naming_template))
    rosters = ToolDirectory(
        manager, catalogues, naming, None if own is None else {own.server.id: own.catalogue}
    )
    rules = CallSettings(settings.write_tools, ResultLimits(settings.result_limit))
    if result_store_for is None and data_dir is not None:
        result_store_for = SqliteResultStore(
            data_dir / RESULTS_NAME, Retention(settings.result_keep, settings.result_store_limit)
        ).for_principal
    calls = CallPath(
        manager,
        rosters,
        rules,
        approve=approve,
        record=record,
        before_call=before_call,
        result_store_for=result_store_for,
        locks=locks,
        accept_url_for=accept_url_for,
    )
    meta = MetaTools(rosters, calls, CallerSearch(calls), _build_meta_limits(settings))
    return Parts(manager, catalogues, rosters, calls, naming, meta, locks, tuple(closing), changing)


def _build_locks(
    configuration: Configuration,
    data_dir: Path | None,
    pins: RegistryPinStorage | None,
    first_use: FirstUseLock,
) -> CombinedLocks:
    file = None
    if configuration.file is not None or data_dir is not None:
        file = LockFile(lock_path(configuration.file, data_dir or Path()))
    return CombinedLocks(file, None if pins is None else RegistryLock(pins), first_use)


def _build_native_server(settings: Settings, data_dir: Path | None, net: OutboundHttp) -> NativeServerSetup:
    from toolyard.agents.builtin_tools.server_factory import build_native_server  # for doors with a chat

    # In either mode a result is within the limit: nothing of a page is ever read again without its fence.
    most = min(settings.result_limit, settings.meta_result_limit)
    return build_native_server(settings.workspace_root, data_dir, net, most)


def _build_meta_limits(settings: Settings) -> MetaToolLimits:
    return MetaToolLimits(
        settings.meta_schema_limit,
        settings.meta_result_limit,
        settings.meta_description_limit,
        settings.meta_call_timeout,
        settings.meta_threshold,
    )


def make_chat_callbacks(questions: Callable[[], ServerQuestions], *, sampling: bool) -> CallbacksFor:
    """Servers ask people in their chats. ``questions`` puts it to them; ``sampling``: a model can be asked
    for a server. Where nobody is there to answer, the server hears that it was cancelled."""

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        async def elicit(server_id: str, params: JsonObject) -> JsonObject:
            return await questions().elicit(principal.id, server_id, params, chat_id=chat)

        async def sample(server_id: str, params: JsonObject) -> JsonObject:
            return await questions().sample(principal.id, server_id, params, chat_id=chat)

        return Callbacks(elicit, elicitation_urls=True, sampling=sample if sampling else None)

    return callbacks_for


def auth_providers_from_database(database: LazyDatabase, net: OutboundHttp) -> AuthProviderFor:
    """The credentials that `toolyard login` has kept. The database is opened when one is first needed."""
    made: list[AuthProviderFor] = []

    def auth_provider_for(server: Server, principal: Principal) -> AuthProvider | None:
        if not made:
            # Only servers behind a URL come here, and only they need it.
            from toolyard.auth.lazy_storage import LazyAuthStorage
            from toolyard.registry.credentials import AuthProviderFactory

            made.append(
                AuthProviderFactory(None, LazyAuthStorage(database.open_auth_storage), net).auth_provider_for
            )
        return made[0](server, principal)

    return auth_provider_for


def _check_header_params(server: Server, input_schema: JsonObject) -> str | None:
    """Over HTTP a tool that marks its parameters for headers wrongly must not be used."""
    if not isinstance(server.transport, HttpSpec):
        return None
    try:
        find_header_params(input_schema)
    except HeaderParamError as error:
        return str(error)
    return None
