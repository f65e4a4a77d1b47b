"""What servers have that was not accepted: to look at, and to accept. For pages and API alike.

Admins accept for servers, of the files and of the registry, and so for everyone; the owner of an instance
accepts for that instance alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

from toolyard.catalog.lock import Change, pins_of
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import Place
from toolyard.errors import ServerError
from toolyard.types.catalog import Contents, Listing
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.server import Server

if TYPE_CHECKING:
    from toolyard.web.access.dependencies import Visitor
    from toolyard.web.server_preview import Preview
    from toolyard.web.services import Site

__all__ = [
    "accept_for_everyone",
    "accept_in_file",
    "accept_in_instance",
    "changes_for_everyone",
    "changes_in_file",
    "changes_in_instance",
    "changes_known",
    "changes_page",
    "looked_at",
    "unaccepted",
    "unaccepted_in_files",
]


def changes_page(server: Server) -> str:
    """The page where what became different about a server is accepted."""
    if server.instance is not None:
        return f"/ui/mcp/{quote(server.instance.id, safe='')}/changes"
    return f"/ui/admin/mcp/files/{quote(server.id, safe='')}/changes"


# Servers of the files.


async def changes_in_file(site: Site, visitor: Visitor, server: Server) -> list[Change]:
    """What a server has, as the visitor last got it, that is not accepted. Raises LockBroken,
    StoreError, and ServerError where the server was never listed and cannot be."""
    if not site.parts.locks.holds(server):
        return []
    return await site.parts.locks.changes(server, await _listed(site, visitor, server))


async def changes_known(site: Site, visitor: Visitor, server: Server) -> list[Change]:
    """The same of what is known without asking; nothing of a broken lock, which is told with every tool."""
    locks, roster = site.parts.locks, site.parts.rosters.known(visitor.principal)
    catalogue = roster.catalogues.get(server.id)
    if catalogue is None or (locks.file is not None and locks.file.problem is not None):
        return []
    return await locks.changes(server, catalogue.contents)


async def accept_in_file(site: Site, visitor: Visitor, server: Server, keys: Collection[str]) -> list[Change]:
    """Accept the changes of these keys for everyone. Raises Outdated, LockUnwritable, and what
    ``changes_in_file`` raises."""
    contents = await _listed(site, visitor, server)
    done = await site.parts.locks.accept(server, contents, keys)
    await _tell(site, visitor, server.id, server.label or server.id, done)
    return done


async def _listed(site: Site, visitor: Visitor, server: Server) -> Contents:
    roster = await site.parts.rosters.current(visitor.principal, only=[server.id])
    catalogue = roster.catalogues.get(server.id)
    if catalogue is None:
        error = roster.failures.get(server.id)
        raise error or ServerError("it was not listed yet", hint="it may be disabled", server=server.id)
    return catalogue.contents


# Instances.


async def changes_in_instance(site: Site, instance: Instance) -> list[Change]:
    """What an instance was given last that its owner may not use yet. Raises StoreError."""
    return await _registry(site).changes(Place(instance.server_id, instance.id), instance.core_id)


async def accept_in_instance(
    site: Site, visitor: Visitor, instance: Instance, keys: Collection[str]
) -> list[Change]:
    """Accept changes for one instance alone. Raises Outdated, StoreError."""
    place = Place(instance.server_id, instance.id)
    done = await _registry(site).accept(place, instance.core_id, keys)
    await _tell(site, visitor, instance.id, instance.slug, done)
    return done


# Servers of the registry.


async def changes_for_everyone(site: Site, server: RegistryServer) -> list[Change]:
    """What anybody was given of a server that was not accepted for everyone. Raises StoreError."""
    return await _registry(site).changes(Place(server.id), server.name)


async def accept_for_everyone(
    site: Site, visitor: Visitor, server: RegistryServer, keys: Collection[str]
) -> list[Change]:
    """Accept changes for everybody's instances of a server. Raises Outdated, StoreError."""
    done = await _registry(site).accept(Place(server.id), server.name, keys)
    await _tell(site, visitor, server.id, server.name, done)
    return done


async def unaccepted(site: Site, servers: Iterable[RegistryServer]) -> dict[str, int]:
    """How many tools of servers are not accepted for everyone, by id, where there are any. Raises
    StoreError."""
    different = set(await site.database.pins.different())
    found = {
        server.id: sum(change.blocks for change in await changes_for_everyone(site, server))
        for server in servers
        if server.id in different
    }
    return {server_id: number for server_id, number in found.items() if number}


def unaccepted_in_files(site: Site, visitor: Visitor) -> dict[str, int]:
    """The same for servers of the files, as far as they were listed."""
    known = site.parts.rosters.known(visitor.principal).catalogues
    listed = {id: known[id].contents for id in site.configuration.servers if id in known}
    found = {id: len(site.parts.locks.reasons(contents)) for id, contents in listed.items()}
    return {id: number for id, number in found.items() if number}


async def looked_at(site: Site, server: RegistryServer, seen: Preview) -> dict[str, str]:
    """Which tools of those that an admin was shown are not accepted, and why. Raises StoreError."""
    definitions = tuple(definition for definition, _ in seen.tools)
    if seen.error is not None or not definitions:
        return {}
    now = pins_of(Contents(server.id, "", Listing(instructions=seen.instructions), definitions))
    return dict(await _registry(site).looked(server.id, now))


def _registry(site: Site) -> RegistryLock:
    lock = site.parts.locks.registry
    assert lock is not None, "the site has a database"
    return lock


async def _tell(site: Site, visitor: Visitor, target: str, name: str, done: list[Change]) -> None:
    """Write it down, and let clients know that there are other tools."""
    tools = [change.tool or change.kind.value for change in done]
    await site.changed(visitor, "lock.accept", target, name=name, accepted=tools[:100], count=len(done))
    site.mcp.gateway.hub.tools_changed()
