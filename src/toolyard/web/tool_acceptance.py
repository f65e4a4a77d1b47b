"""What servers have that was not accepted: to look at, and to accept. For pages and API alike.

Admins accept for servers, of the files and of the registry, and so for everyone; the owner of an instance
accepts for that instance alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

from toolyard.catalog.lock import Change, pin_contents
from toolyard.catalog.lock.registry_lock import RegistryLock
from toolyard.catalog.lock.storage import PinKey
from toolyard.errors import ServerError
from toolyard.types.catalog import RawListing, ValidatedListing
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.server import Server

if TYPE_CHECKING:
    from toolyard.web.access.dependencies import RequestUser
    from toolyard.web.server_preview import ServerPreview
    from toolyard.web.services import Services

__all__ = [
    "accept_changes_for_everyone",
    "accept_changes_in_file",
    "accept_changes_in_instance",
    "build_changes_path",
    "count_unaccepted_file_tools",
    "count_unaccepted_tools",
    "find_file_changes",
    "find_instance_changes",
    "find_known_file_changes",
    "find_registry_changes",
    "record_previewed_tools",
]


def build_changes_path(server: Server) -> str:
    """The page where what became different about a server is accepted."""
    if server.instance is not None:
        return f"/ui/mcp/{quote(server.instance.id, safe='')}/changes"
    return f"/ui/admin/mcp/files/{quote(server.id, safe='')}/changes"


# Servers of the files.


async def find_file_changes(site: Services, visitor: RequestUser, server: Server) -> list[Change]:
    """What a server has, as the visitor last got it, that is not accepted. Raises LockBroken,
    StoreError, and ServerError where the server was never listed and cannot be."""
    if not site.parts.locks.has_lock(server):
        return []
    return await site.parts.locks.changes(server, await _fetch_contents(site, visitor, server))


async def find_known_file_changes(site: Services, visitor: RequestUser, server: Server) -> list[Change]:
    """The same of what is known without asking; nothing of a broken lock, which is told with every tool."""
    locks, roster = site.parts.locks, site.parts.tool_directory.known_listing(visitor.principal)
    catalogue = roster.catalogues.get(server.id)
    if catalogue is None or (locks.file is not None and locks.file.problem is not None):
        return []
    return await locks.changes(server, catalogue.contents)


async def accept_changes_in_file(
    site: Services, visitor: RequestUser, server: Server, keys: Collection[str]
) -> list[Change]:
    """Accept the changes of these keys for everyone. Raises Outdated, LockUnwritable, and what
    ``changes_in_file`` raises."""
    contents = await _fetch_contents(site, visitor, server)
    done = await site.parts.locks.accept(server, contents, keys)
    await _record_acceptance(site, visitor, server.id, server.label or server.id, done)
    return done


async def _fetch_contents(site: Services, visitor: RequestUser, server: Server) -> ValidatedListing:
    roster = await site.parts.tool_directory.refresh(visitor.principal, only=[server.id])
    catalogue = roster.catalogues.get(server.id)
    if catalogue is None:
        error = roster.failures.get(server.id)
        raise error or ServerError("it was not listed yet", hint="it may be disabled", server=server.id)
    return catalogue.contents


# Instances.


async def find_instance_changes(site: Services, instance: Instance) -> list[Change]:
    """What an instance was given last that its owner may not use yet. Raises StoreError."""
    return await _get_registry_lock(site).changes(PinKey(instance.server_id, instance.id), instance.core_id)


async def accept_changes_in_instance(
    site: Services, visitor: RequestUser, instance: Instance, keys: Collection[str]
) -> list[Change]:
    """Accept changes for one instance alone. Raises Outdated, StoreError."""
    place = PinKey(instance.server_id, instance.id)
    done = await _get_registry_lock(site).accept(place, instance.core_id, keys)
    await _record_acceptance(site, visitor, instance.id, instance.slug, done)
    return done


# Servers of the registry.


async def find_registry_changes(site: Services, server: RegistryServer) -> list[Change]:
    """What anybody was given of a server that was not accepted for everyone. Raises StoreError."""
    return await _get_registry_lock(site).changes(PinKey(server.id), server.name)


async def accept_changes_for_everyone(
    site: Services, visitor: RequestUser, server: RegistryServer, keys: Collection[str]
) -> list[Change]:
    """Accept changes for everybody's instances of a server. Raises Outdated, StoreError."""
    done = await _get_registry_lock(site).accept(PinKey(server.id), server.name, keys)
    await _record_acceptance(site, visitor, server.id, server.name, done)
    return done


async def count_unaccepted_tools(site: Services, servers: Iterable[RegistryServer]) -> dict[str, int]:
    """How many tools of servers are not accepted for everyone, by id, where there are any. Raises
    StoreError."""
    different = set(await site.database.pins.servers_with_unaccepted_listings())
    found = {
        server.id: sum(change.blocks for change in await find_registry_changes(site, server))
        for server in servers
        if server.id in different
    }
    return {server_id: number for server_id, number in found.items() if number}


def count_unaccepted_file_tools(site: Services, visitor: RequestUser) -> dict[str, int]:
    """The same for servers of the files, as far as they were listed."""
    known = site.parts.tool_directory.known_listing(visitor.principal).catalogues
    listed = {id: known[id].contents for id in site.configuration.servers if id in known}
    found = {id: len(site.parts.locks.quarantine_reasons(contents)) for id, contents in listed.items()}
    return {id: number for id, number in found.items() if number}


async def record_previewed_tools(
    site: Services, server: RegistryServer, preview: ServerPreview
) -> dict[str, str]:
    """Which tools of those that an admin was shown are not accepted, and why. Raises StoreError."""
    definitions = tuple(definition for definition, _ in preview.tools)
    if preview.error is not None or not definitions:
        return {}
    now = pin_contents(
        ValidatedListing(server.id, "", RawListing(instructions=preview.instructions), definitions)
    )
    return dict(await _get_registry_lock(site).compare_preview(server.id, now))


def _get_registry_lock(site: Services) -> RegistryLock:
    lock = site.parts.locks.registry
    assert lock is not None, "the site has a database"
    return lock


async def _record_acceptance(
    site: Services, visitor: RequestUser, target: str, name: str, accepted_changes: list[Change]
) -> None:
    """Write it down, and let clients know that there are other tools."""
    tools = [change.tool or change.kind.value for change in accepted_changes]
    await site.changed(
        visitor, "lock.accept", target, name=name, accepted=tools[:100], count=len(accepted_changes)
    )
    site.mcp.gateway.client_subscriptions.notify_tools_changed()
