"""Review and acceptance of tool changes, shared by the pages and the API.

Admins accept changes of configured and registry servers for everyone. The owner of an instance accepts
changes for that instance only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

from toolyard.catalog.lock import Change, build_pins
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
    """Return the path of the page where changes of a server are reviewed and accepted."""
    if server.instance is not None:
        return f"/ui/mcp/{quote(server.instance.id, safe='')}/changes"
    return f"/ui/admin/mcp/files/{quote(server.id, safe='')}/changes"


# Servers of the configuration files.


async def find_file_changes(services: Services, request_user: RequestUser, server: Server) -> list[Change]:
    """Return the unaccepted changes in the user's current listing of a server.

    Raises LockBroken, StoreError, or ServerError if the server was never listed and cannot be listed now.
    """
    if not services.core.locks.has_lock(server):
        return []
    return await services.core.locks.changes(server, await _fetch_contents(services, request_user, server))


async def find_known_file_changes(
    services: Services, request_user: RequestUser, server: Server
) -> list[Change]:
    """Return the unaccepted changes in the cached listing, without contacting the server.

    Returns nothing if the lock file is broken, because each tool reports that already.
    """
    locks, listing = services.core.locks, services.core.tool_directory.known_listing(request_user.principal)
    catalogue = listing.catalogues.get(server.id)
    if catalogue is None or (locks.file is not None and locks.file.problem is not None):
        return []
    return await locks.changes(server, catalogue.contents)


async def accept_changes_in_file(
    services: Services, request_user: RequestUser, server: Server, keys: Collection[str]
) -> list[Change]:
    """Accept the changes with these keys for everyone.

    Raises Outdated, LockUnwritable, and the errors of ``find_file_changes``.
    """
    contents = await _fetch_contents(services, request_user, server)
    done = await services.core.locks.accept(server, contents, keys)
    await _record_acceptance(services, request_user, server.id, server.label or server.id, done)
    return done


async def _fetch_contents(services: Services, request_user: RequestUser, server: Server) -> ValidatedListing:
    listing = await services.core.tool_directory.refresh(request_user.principal, only=[server.id])
    catalogue = listing.catalogues.get(server.id)
    if catalogue is None:
        error = listing.failures.get(server.id)
        raise error or ServerError(
            "its tools have not been listed yet", hint="check that the server is enabled", server=server.id
        )
    return catalogue.contents


# Instances.


async def find_instance_changes(services: Services, instance: Instance) -> list[Change]:
    """Return the changes in the last listing of an instance that are not accepted. Raises StoreError."""
    return await _get_registry_lock(services).list_unaccepted_changes(
        PinKey(instance.server_id, instance.id), instance.core_id
    )


async def accept_changes_in_instance(
    services: Services, request_user: RequestUser, instance: Instance, keys: Collection[str]
) -> list[Change]:
    """Accept changes for one instance only. Raises Outdated or StoreError."""
    pin_key = PinKey(instance.server_id, instance.id)
    done = await _get_registry_lock(services).accept(pin_key, instance.core_id, keys)
    await _record_acceptance(services, request_user, instance.id, instance.slug, done)
    return done


# Servers of the registry.


async def find_registry_changes(services: Services, server: RegistryServer) -> list[Change]:
    """Return the changes seen in any user's listing that are not accepted for everyone.

    Raises StoreError.
    """
    return await _get_registry_lock(services).list_unaccepted_changes(PinKey(server.id), server.name)


async def accept_changes_for_everyone(
    services: Services, request_user: RequestUser, server: RegistryServer, keys: Collection[str]
) -> list[Change]:
    """Accept changes for all instances of a server. Raises Outdated or StoreError."""
    done = await _get_registry_lock(services).accept(PinKey(server.id), server.name, keys)
    await _record_acceptance(services, request_user, server.id, server.name, done)
    return done


async def count_unaccepted_tools(services: Services, servers: Iterable[RegistryServer]) -> dict[str, int]:
    """Return the number of unaccepted tools by server id, without zeros. Raises StoreError."""
    changed_ids = set(await services.database.pins.servers_with_unaccepted_listings())
    counts = {
        server.id: sum(change.blocks for change in await find_registry_changes(services, server))
        for server in servers
        if server.id in changed_ids
    }
    return {server_id: number for server_id, number in counts.items() if number}


def count_unaccepted_file_tools(services: Services, request_user: RequestUser) -> dict[str, int]:
    """Return the number of unaccepted tools by id of a configured server, from cached listings."""
    catalogues = services.core.tool_directory.known_listing(request_user.principal).catalogues
    listed = {id: catalogues[id].contents for id in services.configuration.servers if id in catalogues}
    counts = {id: len(services.core.locks.quarantine_reasons(contents)) for id, contents in listed.items()}
    return {id: number for id, number in counts.items() if number}


async def record_previewed_tools(
    services: Services, server: RegistryServer, preview: ServerPreview
) -> dict[str, str]:
    """Record the tools of a preview and return those not accepted, with reasons. Raises StoreError."""
    definitions = tuple(definition for definition, _ in preview.tools)
    if preview.error is not None or not definitions:
        return {}
    previewed = build_pins(
        ValidatedListing(server.id, "", RawListing(instructions=preview.instructions), definitions)
    )
    return dict(await _get_registry_lock(services).compare_preview(server.id, previewed))


def _get_registry_lock(services: Services) -> RegistryLock:
    lock = services.core.locks.registry
    assert lock is not None, "services with a database have a registry lock"
    return lock


async def _record_acceptance(
    services: Services, request_user: RequestUser, target: str, name: str, accepted_changes: list[Change]
) -> None:
    """Write an audit entry, and notify clients that the tool list changed."""
    tools = [change.tool or change.kind.value for change in accepted_changes]
    await services.record_change(
        request_user, "lock.accept", target, name=name, accepted=tools[:100], count=len(accepted_changes)
    )
    services.mcp.gateway.client_subscriptions.notify_tools_changed()
