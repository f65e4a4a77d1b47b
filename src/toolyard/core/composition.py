"""Build and connect the services of one process: connections, catalogues, policy, calls and meta tools.

Parts that only some interfaces need, such as the database and the built-in tools, are imported on first use,
so that a short command starts quickly.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from toolyard.auth import AuthProvider
from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import NameAssigner, NameTemplates
from toolyard.catalog.listing_storage import ListingStorage, MemoryListingStorage, SplitListingStorage
from toolyard.catalog.lock import LockFile, lock_path
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.lock.first_use import FirstUseLock
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import MemoryPinEntryStorage, PinEntryStorage, RegistryPinStorage
from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteListingStorage, SqlitePinEntryStorage
from toolyard.clients import Callbacks, ConnectionManager
from toolyard.clients.call_path import (
    AcceptUrlFor,
    ApprovalHandler,
    BeforeCall,
    CallPath,
    CallSettings,
    ResultStoreFor,
    TracedCallPath,
)
from toolyard.clients.callbacks import CapabilityNotOffered, InFlightCall
from toolyard.clients.connector import AuthProviderFor
from toolyard.clients.handshake import FileEraCache
from toolyard.clients.manager import CallbacksFor
from toolyard.clients.process_pool import ProcessPool
from toolyard.clients.secret_redaction import find_secrets
from toolyard.clients.tool_directory import ToolDirectory, ToolFetcher
from toolyard.config.fingerprint_key import fingerprint_key
from toolyard.config.settings.table import Settings
from toolyard.core.server_updates import ServerUpdates
from toolyard.meta_tools import CallerSearch, MetaToolLimits, MetaTools
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.protocol.mirrored_headers import HeaderParamError, find_header_params
from toolyard.results import ResultLimits
from toolyard.results.result_store import Retention
from toolyard.results.sqlite_store import RESULTS_FILE_NAME as RESULTS_NAME
from toolyard.results.sqlite_store import SqliteResultStore
from toolyard.store.lazy_database import LazyDatabase, LazyPinEntryStorage, select_catalogue_storage
from toolyard.tracing.selection import choose_tracer
from toolyard.types.account import Principal
from toolyard.types.call import CallRecord
from toolyard.types.server import Configuration, HttpSpec, Server
from toolyard.types.tool import JsonObject

if TYPE_CHECKING:
    from toolyard.agents.builtin_tools.server_factory import NativeServerSetup
    from toolyard.agents.chat.attachments import AttachmentService
    from toolyard.agents.chat.server_questions import ServerQuestions

__all__ = [
    "Core",
    "SharedQuestionHandler",
    "auth_providers_from_database",
    "build_core",
    "make_chat_callbacks",
    "make_shared_callbacks",
]


class SharedQuestionHandler(Protocol):
    """Answers questions from servers that several clients share, where no single client can be asked."""

    async def answer(
        self, owner: str, server_id: str, method: str, params: JsonObject, calls: Sequence[InFlightCall]
    ) -> JsonObject: ...


@dataclass(frozen=True, slots=True)
class Core:
    """Services of one process. Call ``close`` to release them."""

    manager: ConnectionManager
    catalogues: CatalogueCache
    tool_directory: ToolDirectory
    call_path: CallPath
    name_assigner: NameAssigner
    meta_tools: MetaTools
    updates: ServerUpdates
    locks: CombinedLocks
    close_callbacks: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Functions that release further resources, called last by ``close``."""

    async def close(self) -> None:
        """Close connections, child processes and pending fetches, then storage. Takes a bounded time."""
        await self.updates.close()
        # Connections first: a fetch that loses its connection fails with the reason, a cancelled one without.
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
    catalogue_storage: ListingStorage | None = None,
    registry_pins: RegistryPinStorage | None = None,
    config_pins: PinEntryStorage | None = None,
    accept_url_for: AcceptUrlFor | None = None,
    approve: ApprovalHandler | None = None,
    record: Callable[[CallRecord], None] | None = None,
    before_call: BeforeCall | None = None,
    with_native_tools: bool = False,
    processes: ProcessPool | None = None,
    attachments: AttachmentService | None = None,
) -> Core:
    """Build the services of one process. Nothing is started or opened yet.

    Without ``data_dir`` nothing is stored on disk.

    - ``callbacks_for`` returns the client callbacks for the servers of one principal and chat; it replaces
      ``callbacks``.
    - ``auth_provider_for`` returns the credentials of a principal; the default reads those stored by
      ``toolyard login`` in the data directory.
    - ``result_store_for`` returns the store for long results of a principal; the default is a file in the
      data directory.
    - ``catalogue_storage`` stores catalogues. With PostgreSQL it stores all of them, so that library and
      command line share them with the server; otherwise only those that the file in the data directory does
      not.
    - ``registry_pins`` stores accepted definitions of instances; ``config_pins`` those of configured servers
      without an ``mcp.lock``, if the database is PostgreSQL.
    - ``accept_url_for`` returns the page on which a changed definition can be accepted.
    - ``processes`` is shared by the cores of one process, which then share the processes of equal servers.
    - ``attachments`` are the text files that ``result_read`` reads beside long results.
    - ``with_native_tools`` adds the built-in tools, visible to callers in a chat only.

    ``close`` of the returned object does not close ``net``, ``catalogue_storage`` or ``processes`` passed in.
    """
    close_callbacks: list[Callable[[], Awaitable[None]]] = []
    if net is None:
        tracer = choose_tracer(os.environ)
        guard = AddressGuard.from_settings(settings.guard_allow, settings.guard_deny)
        net = OutboundHttp(guard, tracer=tracer)
        close_callbacks += [net.close, tracer.close]
    database = LazyDatabase(settings, data_dir)
    close_callbacks.append(database.close)
    if auth_provider_for is None:
        auth_provider_for = auth_providers_from_database(database, net)

    def on_notification(server_id: str, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/tools/list_changed":
            updates.on_list_changed(server_id)

    native = _build_native_server(settings, data_dir, net) if with_native_tools else None
    if native is not None:
        close_callbacks.append(native.close)
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
        processes=processes,
        on_notification=on_notification,
        memory_servers=None if native is None else {native.server.id: native.make_transport},
        built_in_servers=() if native is None else (native.server,),
    )
    if net.tracer.captures_content:
        net.tracer.list_secrets = partial(_list_secrets, manager)
    # Definitions pinned at first use are stored beside the catalogues: in the database if it is PostgreSQL,
    # else in the SQLite file of the data directory, else in memory.
    pin_entries: PinEntryStorage = MemoryPinEntryStorage()
    file_storage: SqliteListingStorage | None = None
    if data_dir is not None and settings.database_url is not None:
        pin_entries = config_pins or LazyPinEntryStorage(database)
    if data_dir is not None and (catalogue_storage is None or settings.database_url is None):
        file_storage = SqliteListingStorage(data_dir / CATALOGUE_FILE_NAME)
        if settings.database_url is None:
            pin_entries = SqlitePinEntryStorage(file_storage)
        close_callbacks.append(file_storage.close)
        catalogue_storage = (
            select_catalogue_storage(settings, file_storage, database)
            if catalogue_storage is None
            else SplitListingStorage(file_storage, catalogue_storage)
        )
    locks = _build_locks(
        configuration, data_dir, registry_pins, FirstUseLock(pin_entries, settings.pin_tools)
    )
    catalogues = CatalogueCache(
        ToolFetcher(manager),
        catalogue_storage or MemoryListingStorage(),
        schema_check=_check_header_params,
        on_listing=locks.check_listing,
        on_cache_hit=locks.recheck_first_use,
        key=key,
        failures=file_storage,
    )
    name_assigner = NameAssigner(NameTemplates(settings.naming_template, settings.instance_naming_template))
    tool_directory = ToolDirectory(
        manager,
        catalogues,
        name_assigner,
        None if native is None else {native.server.id: native.catalogue},
        list_deadline=settings.list_deadline,
    )
    call_settings = CallSettings(settings.write_tools, ResultLimits(settings.result_limit))
    if result_store_for is None and data_dir is not None:
        result_store_for = SqliteResultStore(
            data_dir / RESULTS_NAME, Retention(settings.result_keep, settings.result_store_limit)
        ).for_principal
    if result_store_for is not None and attachments is not None:
        result_store_for = _add_attachments(result_store_for, attachments)
    make_call_path = TracedCallPath if net.tracer.is_on else CallPath
    call_path = make_call_path(
        manager,
        tool_directory,
        call_settings,
        approve=approve,
        record=record,
        before_call=before_call,
        result_store_for=result_store_for,
        locks=locks,
        accept_url_for=accept_url_for,
    )
    meta_tools = MetaTools(tool_directory, call_path, CallerSearch(call_path), _build_meta_limits(settings))
    updates = ServerUpdates(manager, catalogues, tool_directory, call_path, meta_tools)
    return Core(
        manager,
        catalogues,
        tool_directory,
        call_path,
        name_assigner,
        meta_tools,
        updates,
        locks,
        tuple(close_callbacks),
    )


def _add_attachments(result_store_for: ResultStoreFor, attachments: AttachmentService) -> ResultStoreFor:
    from toolyard.agents.chat.attachments import ResultsWithAttachments  # needed only with chats

    return lambda principal: ResultsWithAttachments(result_store_for(principal), attachments, principal.id)


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


def _list_secrets(manager: ConnectionManager) -> Iterable[str]:
    return chain.from_iterable(map(find_secrets, manager.servers.values()))


def _build_native_server(settings: Settings, data_dir: Path | None, net: OutboundHttp) -> NativeServerSetup:
    # Imported here because only interfaces with a chat need it.
    from toolyard.agents.builtin_tools.server_factory import build_native_server

    # Native results stay within the limits of both modes, so that they are never truncated and stored:
    # reading a fetched page from the result store would lose the marks around untrusted text.
    max_characters = min(settings.result_limit, settings.meta_result_limit)
    return build_native_server(settings.workspace_root, data_dir, net, max_characters)


def _build_meta_limits(settings: Settings) -> MetaToolLimits:
    return MetaToolLimits(
        settings.meta_schema_limit,
        settings.meta_result_limit,
        settings.meta_description_limit,
        settings.meta_call_timeout,
        settings.meta_threshold,
    )


def make_chat_callbacks(
    questions: Callable[[], ServerQuestions],
    page: SharedQuestionHandler | None = None,
    *,
    has_model: Callable[[Principal], bool],
) -> CallbacksFor:
    """Return callbacks that forward elicitation of servers to the user's chat, and sampling to the model, if
    the user has one.

    If no user is present to answer, the server receives the action "cancel". Questions from a server that
    several clients share go to the ``page`` where they cannot be attributed to one of them.
    """

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        async def elicit(server_id: str, params: JsonObject) -> JsonObject:
            return await questions().elicit(principal.id, server_id, params, chat_id=chat)

        async def sample(server_id: str, params: JsonObject) -> JsonObject:
            return await questions().sample(principal.id, server_id, params, chat_id=chat)

        shared = None if page is None or chat is not None else partial(page.answer, principal.id)
        sampling = sample if has_model(principal) else None
        return Callbacks(elicit, elicitation_urls=True, sampling=sampling, shared=shared)

    return callbacks_for


def make_shared_callbacks(page: SharedQuestionHandler | None) -> CallbacksFor:
    """Return callbacks for servers that only gateway clients use.

    A question that cannot be attributed to one client goes to the ``page``; without one it is cancelled.
    """

    async def cancel(
        owner: str, server_id: str, method: str, params: JsonObject, calls: Sequence[InFlightCall]
    ) -> JsonObject:
        if method != "elicitation/create":
            raise CapabilityNotOffered(method)
        return {"action": "cancel"}

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        shared = partial(cancel if page is None else page.answer, principal.id)
        return Callbacks(offers={"elicitation": {"form": {}, "url": {}}}, shared=shared)

    return callbacks_for


def auth_providers_from_database(database: LazyDatabase, net: OutboundHttp) -> AuthProviderFor:
    """Return a provider of the credentials stored by ``toolyard login``.

    It opens the database on first use.
    """
    factories: list[AuthProviderFor] = []

    def auth_provider_for(server: Server, principal: Principal) -> AuthProvider | None:
        if not factories:
            # Imported on first use: only HTTP servers need credentials, and these modules load slowly.
            from toolyard.auth.storage import LazyAuthStorage
            from toolyard.registry.auth_provider_factory import AuthProviderFactory

            factories.append(
                AuthProviderFactory(None, LazyAuthStorage(database.open_auth_storage), net).auth_provider_for
            )
        return factories[0](server, principal)

    return auth_provider_for


def _check_header_params(server: Server, input_schema: JsonObject) -> str | None:
    """Return why ``x-mcp-header`` marks of a schema are invalid; such a tool must not be used over HTTP."""
    if not isinstance(server.transport, HttpSpec):
        return None
    try:
        find_header_params(input_schema)
    except HeaderParamError as error:
        return str(error)
    return None
