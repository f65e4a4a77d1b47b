"""Names of servers and tools for pages, instead of their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends

from toolyard.types.audit import server_of_tool
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.web import service_dependencies as deps

__all__ = ["BUILT_IN_LABEL", "ServerNames", "ServerNamesReader", "ServerNamesReaderDep", "find_owners"]

BUILT_IN_LABEL = "Built-in tools"


@dataclass(frozen=True, slots=True)
class ServerNames:
    """Names by id. Deleted servers and instances have none: a part of their id is shown."""

    servers: Mapping[str, str]
    """Names of configured servers and registry servers, by id."""
    instances: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of instances, by both of their ids."""
    people: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of people that are added to their instances, by id."""

    def find(self, id_: str) -> str | None:
        """Return the name of a server or instance, or None."""
        return self.servers.get(id_) or self.instances.get(id_)

    def name_server(self, server_id: str) -> str:
        """Return the name of a server or instance, with its owner where there are several people."""
        return f"{self._name_server(server_id)}{self._name_owner(server_id)}"

    def name_tool(self, tool_id: str) -> str:
        """Return the name of a tool after that of its server. A name that no tool has stays as it is."""
        server_id = server_of_tool(tool_id)
        if server_id == tool_id:
            return tool_id
        tool = tool_id[len(server_id) + 1 :]
        separator = ": " if self.find(server_id) is not None else "/"
        return f"{self._name_server(server_id)}{separator}{tool}{self._name_owner(server_id)}"

    def _name_server(self, server_id: str) -> str:
        name = self.find(server_id)
        if name is not None:
            return name
        return server_id.partition("/")[2] if server_id.startswith("@") else server_id

    def _name_owner(self, server_id: str) -> str:
        owner = _owner_of(server_id)
        return f" ({self.people[owner]})" if owner in self.people and len(self.people) > 1 else ""


@dataclass(frozen=True, slots=True)
class ServerNamesReader:
    """Reads the names of configured servers, registry servers and instances."""

    config: deps.ConfigDep
    registry: deps.RegistryDep

    async def read(self, owners: Iterable[str], people: Mapping[str, str] | None = None) -> ServerNames:
        """Return the names of all servers, and of the instances of some owners."""
        names = {NATIVE_SERVER_ID: BUILT_IN_LABEL}
        names |= {each.id: each.label or each.id for each in self.config.configuration.servers.values()}
        names |= {each.id: each.name for each in await self.registry.list_servers()}
        instances: dict[str, str] = {}
        for each in await self.registry.list_instance_names(set(owners)):
            instances[each.id] = instances[each.core_id] = each.name
        return ServerNames(names, instances, people or {})


ServerNamesReaderDep = Annotated[ServerNamesReader, Depends()]


def find_owners(ids: Iterable[str]) -> set[str]:
    """Return the owners of the instances among ids of servers and tools."""
    return {owner for owner in map(_owner_of, ids) if owner}


def _owner_of(id_: str) -> str:
    """Return the owner in the id of an instance or its tool, or an empty string."""
    first, separator, _ = id_.partition("/")
    return first[1:] if separator and first.startswith("@") and first != NATIVE_SERVER_ID else ""
