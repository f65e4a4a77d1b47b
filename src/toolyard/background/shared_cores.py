"""Cores and gateways shared by clients with the same configuration and environment."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from toolyard.agents.definitions.agents_md import load_agents
from toolyard.background.attach_protocol import AttachRequest
from toolyard.background.lazy_stores import (
    APPROVALS_PATH,
    LazyApprovalStore,
    LazyPageQuestions,
    LazyRegistryPins,
    PageService,
)
from toolyard.clients.process_pool import ProcessPool
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config import load_config, load_settings
from toolyard.config.settings.table import Settings
from toolyard.config.sources.load import ConfigFile, choose_config_file
from toolyard.config.watch import ConfigBroken, watch_config
from toolyard.config.working_directories import CLIENT_DIR_VARIABLE
from toolyard.core.agents import add_stored_agents
from toolyard.core.call_approvals import CallApprovals
from toolyard.errors import ToolyardError
from toolyard.gateway.endpoint import Endpoint, make_endpoint
from toolyard.gateway.stdio.local_gateway import LocalGateway, resolve_caller
from toolyard.library import Toolyard
from toolyard.transports.stdio.supervisor import INHERITED_VARIABLES
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent
from toolyard.types.server import Configuration, StdioSpec

if TYPE_CHECKING:
    from toolyard.core.instance_sync import InstanceSync
    from toolyard.store import Database

__all__ = ["SharedCore", "SharedCores"]

log = logging.getLogger("toolyard.background")


class _ReferencedVariables(dict[str, str]):
    """An environment that records the variables that were looked up, with their values."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.values_by_name: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        self.values_by_name[name] = super().get(name)
        return super().__getitem__(name)

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.values_by_name[name] = found = super().get(name)
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        self.values_by_name[str(name)] = super().get(str(name))
        return super().__contains__(name)


@dataclass(frozen=True, slots=True)
class _CoreKey:
    """Everything that the configuration of a client is made of, apart from the contents of files."""

    file: ConfigFile
    settings: Settings
    inherited: Mapping[str, str]
    referenced: Mapping[str, str | None]

    def matches(
        self, file: ConfigFile, settings: Settings, inherited: Mapping[str, str], env: Mapping[str, str]
    ) -> bool:
        return (
            self.file == file
            and self.settings == settings
            and self.inherited == inherited
            and all(env.get(name) == value for name, value in self.referenced.items())
        )


class SharedCore:
    """One core with its gateway, for all clients to whom the same servers are configured."""

    def __init__(
        self,
        key: _CoreKey,
        configuration: Configuration,
        cwd: str,
        data_dir: Path,
        processes: ProcessPool,
        pages: PageService,
    ) -> None:
        self.key = key
        self.configuration = configuration
        self.problem: str | None = None
        """Error message of the last edit of the configuration, or None if it was applied."""
        self.client_count = 0
        self._cwd = cwd
        self.data_dir = data_dir
        self._pages = pages
        self.local = LocalGateway(
            self._with_environment(configuration),
            key.settings,
            data_dir,
            processes,
            approvals=CallApprovals(
                LazyApprovalStore(pages), find_page_url=partial(pages.make_link, APPROVALS_PATH)
            ),
            page=LazyPageQuestions(pages, key.settings.ask_wait),
            registry_pins=LazyRegistryPins(pages),
        )
        self._tasks = BackgroundTasks()

    async def open(self, path: str | None) -> None:
        """Load stored listings, and follow the configuration file from now on."""
        try:
            database = await self._pages.open_database(create=False)
        except (ToolyardError, OSError) as error:
            log.warning("the servers that were added in the pages are not available: %s", error)
            database = None
        # The first list of a client has the instances, too: many clients ask for it only once.
        sync = None if database is None else await self._sync_instances(database)
        await self.local.core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        self._tasks.spawn(self._apply_changes(path), name="configuration of a shared core")
        self._tasks.spawn(self._follow_instances(sync), name="instances of a shared core")

    async def _sync_instances(self, database: Database) -> InstanceSync:
        """Let clients use the servers that the local user added in the pages."""
        from toolyard.core.instance_sync import InstanceSync  # only with a database
        from toolyard.registry import Registry

        core = self.local.core
        sync = InstanceSync(
            Registry(database.registry, self.key.settings, clock=time.time),
            core.manager,
            core.tool_directory,
            core.updates,
            database.auth,
            self.local.gateway.on_servers_changed,
        )
        try:
            await sync.sync(LOCAL_PRINCIPAL)
        except ToolyardError as error:
            log.warning("the servers that were added in the pages cannot be read: %s", error)
        return sync

    async def _follow_instances(self, sync: InstanceSync | None) -> None:
        """Apply what the local user changes in the pages, also if they are opened later."""
        database = await self._pages.wait_for_database()
        sync = sync or await self._sync_instances(database)
        from toolyard.store.change_feed.signals import REGISTRY_CHANNEL  # loads the database library

        async with aclosing(database.signals.listen(REGISTRY_CHANNEL)) as listening:
            async for _ in listening:
                try:
                    await sync.sync(LOCAL_PRINCIPAL)
                except ToolyardError as error:
                    log.warning("the servers that were added in the pages cannot be read: %s", error)

    async def make_endpoint(self, arguments: Mapping[str, str]) -> Endpoint:
        """Return what a client with these options of ``toolyard stdio`` sees. Raises ToolyardError."""
        server, agent = arguments.get("server"), arguments.get("agent")
        file_agents = {each.id: each for each in self._read_agents()}
        agents = await add_stored_agents(file_agents, agent, self.key.settings, self.data_dir)
        caller = resolve_caller(
            self.configuration,
            agents,
            agent=agent,
            bundle=arguments.get("bundle"),
            server=server,
        )
        mode = cast("Literal['direct', 'meta'] | None", arguments.get("mode"))
        return make_endpoint(self.local.gateway, caller, server, mode)

    def make_yard(self) -> Toolyard:
        """Return what a command with this core works on. Raises AgentsError."""
        settings, core = self.key.settings, self.local.core
        return Toolyard(self.configuration, settings, self._read_agents(), self.data_dir, core=core)

    def _read_agents(self) -> Sequence[Agent]:
        return load_agents(self.key.settings.agents_path, self.data_dir)

    def _with_environment(self, configuration: Configuration) -> Configuration:
        """Return the configuration with the environment of its child processes."""
        servers = {
            id: replace(server, transport=replace(server.transport, inherited=self.key.inherited))
            if isinstance(server.transport, StdioSpec)
            else server
            for id, server in configuration.servers.items()
        }
        return replace(configuration, servers=MappingProxyType(servers))

    async def _apply_changes(self, path: str | None) -> None:
        # Of the client's environment, only the variables that the configuration refers to are kept.
        env = {name: value for name, value in self.key.referenced.items() if value is not None}
        async for change in watch_config(
            self.configuration, path, env=env, cwd=self._cwd, data_dir=self.data_dir
        ):
            if isinstance(change, ConfigBroken):
                self.problem = str(change.error)
                log.error("the changed configuration is not valid and was not applied:\n%s", change.error)
                continue
            await self.apply_configuration(change.configuration)

    async def apply_configuration(self, configuration: Configuration) -> None:
        """Use a changed configuration from now on."""
        self.problem = None
        self.configuration = configuration
        log.info("the configuration %s has changed", configuration.file or "")
        try:
            await self.local.apply_configuration(self._with_environment(configuration))
        except ToolyardError as error:
            log.error("the changed configuration was applied, with an error: %s", error)

    async def close(self) -> None:
        """Close every connection and end every child process."""
        await self._tasks.close()
        await self.local.close()


class SharedCores:
    """The shared cores of one data directory."""

    def __init__(self, data_dir: Path, pages: PageService, processes: ProcessPool | None = None) -> None:
        """``processes`` are shared with others, who close them. Raises ConfigError."""
        self._data_dir = data_dir
        self._pages = pages
        self._settings_signature = self._sign_settings()
        self.settings = load_settings(data_dir)
        self._owns_processes = processes is None
        self._processes = processes or ProcessPool(self.settings.max_stdio_servers)
        self.cores: list[SharedCore] = []
        self._opening = asyncio.Lock()

    async def find_core(self, hello: AttachRequest, *, is_current: bool = False) -> SharedCore:
        """Return the core of a client; it is opened for the first one. Raises ToolyardError or OSError.

        ``is_current``: the files are read now, as a command does that may follow a change at once.
        """
        client_env = {**hello.environment, CLIENT_DIR_VARIABLE: hello.cwd}
        env = _ReferencedVariables(client_env)
        inherited = {
            name: hello.environment[name] for name in INHERITED_VARIABLES if name in hello.environment
        }
        path = hello.arguments.get("config")
        # One client at a time: two that start together must get one core, not two.
        async with self._opening:
            self._reload_settings()
            file = choose_config_file(path, env, Path(hello.cwd), self._data_dir)
            for core in self.cores:
                # Compared with the plain environment, because ``env`` would record the variables of other
                # cores as referenced by this one.
                if core.key.matches(file, self.settings, inherited, client_env):
                    if is_current:
                        configuration = await asyncio.to_thread(
                            load_config, path, env=client_env, cwd=hello.cwd, data_dir=self._data_dir
                        )
                        if configuration != core.configuration:
                            await core.apply_configuration(configuration)
                    return core
            configuration = await asyncio.to_thread(
                load_config, path, env=env, cwd=hello.cwd, data_dir=self._data_dir
            )
            key = _CoreKey(file, self.settings, inherited, env.values_by_name)
            core = SharedCore(key, configuration, hello.cwd, self._data_dir, self._processes, self._pages)
            await core.open(path)
            self.cores.append(core)
            return core

    def _reload_settings(self) -> None:
        signature = self._sign_settings()
        if signature != self._settings_signature:
            self.settings = load_settings(self._data_dir)
            self._settings_signature = signature

    def _sign_settings(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._data_dir / "toolyard.toml")
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    async def close(self) -> None:
        """Close all cores."""
        cores, self.cores = self.cores, []
        for core in cores:
            await core.close()
        if self._owns_processes:
            await self._processes.close()
