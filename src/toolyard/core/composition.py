"""The composition root: builds the rooms from settings. What a door does not need it does not load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolyard.auth import AuthProvider
from toolyard.catalog.cache import Catalogues
from toolyard.catalog.exposed_names import Naming, Templates
from toolyard.catalog.lock import LockKeeper, lock_path
from toolyard.catalog.lock.combined_locks import Locks
from toolyard.catalog.lock.first_use import FirstUseLock, MemoryEntries
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import EntryStorage, PinStorage
from toolyard.catalog.split_storage import DividedStorage
from toolyard.catalog.sqlite_storage import FILE_NAME, SqliteEntries, SqliteStorage
from toolyard.catalog.storage import CatalogueStorage, MemoryStorage
from toolyard.clients import Callbacks, ClientManager
from toolyard.clients.call_path import AcceptAt, Approve, BeforeCall, CallPath, CallRules, HandlesFor
from toolyard.clients.connector import AuthFor
from toolyard.clients.file_era_cache import FileEras
from toolyard.clients.manager import CallbacksFor
from toolyard.clients.tool_directory import Rosters
from toolyard.clients.tool_fetcher import Fetcher
from toolyard.config.fingerprint_key import fingerprint_key
from toolyard.config.settings.table import Settings
from toolyard.meta import Budgets, Finder, MetaTools
from toolyard.net import Guard, Net
from toolyard.protocol.mirrored_headers import HeaderParamError, header_params
from toolyard.results import Limits
from toolyard.results.retention import Bounds
from toolyard.results.sqlite_store import FILE_NAME as RESULTS_NAME
from toolyard.results.sqlite_store import ResultStore
from toolyard.store.lazy_database import LazyDatabase
from toolyard.store.lazy_listings import LazyEntries, common_storage
from toolyard.types.call import CallRecord
from toolyard.types.config import Configuration
from toolyard.types.principal import Principal
from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import JsonObject

if TYPE_CHECKING:
    from toolyard.agents.builtin_tools.server_factory import Native
    from toolyard.agents.chat.elicitation import Questions

__all__ = ["Parts", "asked_in_chats", "build", "stored_sign_ins"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The core, built. ``close`` ends it."""

    manager: ClientManager
    catalogues: Catalogues
    rosters: Rosters
    calls: CallPath
    naming: Naming
    meta: MetaTools
    locks: Locks = Locks()  # noqa: RUF009 - frozen
    closing: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What is closed after everything else."""
    changing: dict[str, bool] = field(default_factory=dict[str, bool])
    """Servers that said that they have other tools, and whether they said it again before that was done: one
    that says nothing else must not fill the process with work."""

    # Changes. Of servers that did not change, nothing is closed or forgotten.

    async def update(self, configuration: Configuration) -> set[str]:
        """Take over changed config files; the ids of the servers that are different now."""
        touched = await self.manager.update(configuration.servers.values())
        self.calls.servers_changed(touched)
        return touched

    async def sync(self, owner: str, servers: Iterable[Server]) -> set[str]:
        """Take over all instances that one owner has now; the ids of those that are different.

        Raises ValueError for a server that is no instance of this owner.
        """
        before = set(self.manager.servers)
        touched = await self.manager.sync(owner, servers)
        self.calls.servers_changed(touched)
        # Of one that this process has never seen, nothing is held that could be wrong.
        for server_id in touched & before:
            await self.catalogues.forget(server_id)
        return touched

    async def leave(self, principal_id: str) -> None:
        """A principal is gone: close their connections, forget their instances and what was prepared."""
        await self.sync(principal_id, ())
        await self.manager.close_principal(principal_id)
        self.calls.leave(principal_id)
        self.meta.leave(principal_id)

    async def reconnect(self, server_id: str, principal: Principal) -> None:
        """The principal has other credentials for a server now: nothing that came with the old ones counts,
        and the next use connects. Raises Unreachable where there is no such server for them."""
        await self.manager.restart(server_id, principal)
        server = self.manager.find(server_id, principal)
        whose = None if server is not None and server.shared else principal
        self.rosters.forget((server_id,), whose)
        await self.catalogues.forget(server_id, whose)

    async def list_changed(self, server_id: str) -> None:
        """The server says that it has other tools now. Said again meanwhile, it is done once more."""
        try:
            while True:
                self.changing[server_id] = False
                await self.catalogues.list_changed(server_id)
                self.rosters.recheck((server_id,))
                if not self.changing.get(server_id):
                    return
        finally:
            self.changing.pop(server_id, None)

    async def close(self) -> None:
        """End connections, children and fetches, then storage. Bounded."""
        # Connections first: a fetch that loses its own says why, one that is cancelled says nothing.
        self.rosters.close()
        await self.manager.close_all()
        await self.rosters.late.close()
        await self.catalogues.close()
        for close in self.closing:
            await close()


def build(
    configuration: Configuration,
    settings: Settings,
    *,
    data_dir: Path | None,
    callbacks: Callbacks | None = None,
    callbacks_for: CallbacksFor | None = None,
    auth_providers: Mapping[str, AuthProvider] | None = None,
    auth_for: AuthFor | None = None,
    net: Net | None = None,
    handles: HandlesFor | None = None,
    storage: CatalogueStorage | None = None,
    pins: PinStorage | None = None,
    config_pins: EntryStorage | None = None,
    accept_at: AcceptAt | None = None,
    approve: Approve | None = None,
    record: Callable[[CallRecord], None] | None = None,
    before: BeforeCall | None = None,
    on_list_changed: Callable[[str], None] | None = None,
    native: bool = False,
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
        net = Net(Guard.of(settings.guard_allow, settings.guard_deny))
        closing.append(net.close)
    database = LazyDatabase(settings, data_dir)
    closing.append(database.close)
    if auth_for is None:
        auth_for = stored_sign_ins(database, net)

    changing: dict[str, bool] = {}

    def told(server_id: str, method: str, params: Mapping[str, Any]) -> None:
        if method != "notifications/tools/list_changed" or on_list_changed is None:
            return
        again = server_id in changing
        changing[server_id] = again
        if not again:
            on_list_changed(server_id)

    own = _native(settings, data_dir, net) if native else None
    if own is not None:
        closing.append(own.close)
    key = cache(partial(fingerprint_key, settings.secret_key, data_dir))
    manager = ClientManager(
        configuration.servers.values(),
        callbacks=callbacks,
        callbacks_for=callbacks_for,
        auth_providers=auth_providers,
        auth_for=auth_for,
        net=net,
        eras=None if data_dir is None else FileEras(data_dir / "eras.json", key),
        most_children=settings.max_stdio_servers,
        on_told=told,
        memory_servers=None if own is None else {own.server.id: own.transport},
        built_in=() if own is None else (own.server,),
    )
    entries: EntryStorage = MemoryEntries()
    if data_dir is not None and settings.database_url is not None:
        entries = config_pins or LazyEntries(database)
    if data_dir is not None and (storage is None or settings.database_url is None):
        file = SqliteStorage(data_dir / FILE_NAME)
        if settings.database_url is None:
            entries = SqliteEntries(file)
        closing.append(file.close)
        storage = (
            common_storage(settings, file, database) if storage is None else DividedStorage(file, storage)
        )
    locks = _locks(configuration, data_dir, pins, FirstUseLock(entries, settings.pin_tools))
    catalogues = Catalogues(
        Fetcher(manager),
        storage or MemoryStorage(),
        check=_header_marks,
        met=locks.met,
        recheck=locks.recheck,
        key=key,
    )
    naming = Naming(Templates(settings.naming_template, settings.instance_naming_template))
    rosters = Rosters(manager, catalogues, naming, None if own is None else {own.server.id: own.catalogue})
    rules = CallRules(settings.write_tools, Limits(settings.result_limit))
    if handles is None and data_dir is not None:
        handles = ResultStore(
            data_dir / RESULTS_NAME, Bounds(settings.result_keep, settings.result_store_limit)
        ).of
    calls = CallPath(
        manager,
        rosters,
        rules,
        approve=approve,
        record=record,
        before=before,
        handles=handles,
        locks=locks,
        accept_at=accept_at,
    )
    meta = MetaTools(rosters, calls, Finder(calls), _budgets(settings))
    return Parts(manager, catalogues, rosters, calls, naming, meta, locks, tuple(closing), changing)


def _locks(
    configuration: Configuration, data_dir: Path | None, pins: PinStorage | None, first_use: FirstUseLock
) -> Locks:
    file = None
    if configuration.file is not None or data_dir is not None:
        file = LockKeeper(lock_path(configuration.file, data_dir or Path()))
    return Locks(file, None if pins is None else RegistryLock(pins), first_use)


def _native(settings: Settings, data_dir: Path | None, net: Net) -> Native:
    from toolyard.agents.builtin_tools.server_factory import native_server  # for doors with a chat

    # In either mode a result is within the limit: nothing of a page is ever read again without its fence.
    most = min(settings.result_limit, settings.meta_result_limit)
    return native_server(settings.workspace_root, data_dir, net, most)


def _budgets(settings: Settings) -> Budgets:
    return Budgets(
        settings.meta_schema_limit,
        settings.meta_result_limit,
        settings.meta_description_limit,
        settings.meta_call_timeout,
        settings.meta_threshold,
    )


def asked_in_chats(questions: Callable[[], Questions], *, sampling: bool) -> CallbacksFor:
    """Servers ask people in their chats. ``questions`` puts it to them; ``sampling``: a model can be asked
    for a server. Where nobody is there to answer, the server hears that it was cancelled."""

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        async def elicit(server_id: str, params: JsonObject) -> JsonObject:
            return await questions().elicit(principal.id, server_id, params, chat=chat)

        async def sample(server_id: str, params: JsonObject) -> JsonObject:
            return await questions().sample(principal.id, server_id, params, chat=chat)

        return Callbacks(elicit, elicitation_urls=True, sampling=sample if sampling else None)

    return callbacks_for


def stored_sign_ins(database: LazyDatabase, net: Net) -> AuthFor:
    """The credentials that `toolyard login` has kept. The database is opened when one is first needed."""
    made: list[AuthFor] = []

    def auth_for(server: Server, principal: Principal) -> AuthProvider | None:
        if not made:
            # Only servers behind a URL come here, and only they need it.
            from toolyard.auth.lazy_storage import LazyAuthStorage
            from toolyard.registry.credentials import Credentials

            made.append(Credentials(None, LazyAuthStorage(database.auth), net).auth_for)
        return made[0](server, principal)

    return auth_for


def _header_marks(server: Server, input_schema: JsonObject) -> str | None:
    """Over HTTP a tool that marks its parameters for headers wrongly must not be used."""
    if not isinstance(server.transport, HttpSpec):
        return None
    try:
        header_params(input_schema)
    except HeaderParamError as error:
        return str(error)
    return None
