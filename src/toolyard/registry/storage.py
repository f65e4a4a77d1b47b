"""Storage protocol of the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from toolyard.types.registry import Instance, InstanceState, RegistryServer

__all__ = ["RegistryStorage"]


class RegistryStorage(Protocol):
    """Storage of servers and instances, shared by all replicas. Client secrets and values are encrypted."""

    # Servers.

    async def list_servers(self) -> Sequence[RegistryServer]:
        """Return all servers, sorted by name."""
        ...

    async def get_server(self, server_id: str) -> RegistryServer | None: ...

    async def add_server(self, server: RegistryServer) -> None:
        """Add a server. Raises Taken if another server has the name."""
        ...

    async def save_server(self, server: RegistryServer) -> bool:
        """Replace a server and its choices (matched by id); return False if it no longer exists.

        Choices that are not in the new version are deleted, and instances that used one become pending.
        Raises Taken.
        """
        ...

    async def delete_server(self, server_id: str) -> bool:
        """Delete a server with its instances and their sign-ins; return False if it does not exist."""
        ...

    async def count_instances(self) -> dict[str, int]:
        """Return the number of instances of each server, by server id."""
        ...

    async def list_instance_choices(self, server_id: str) -> Mapping[str, str]:
        """Return the choice id of every instance of a server, for all users, by instance id."""
        ...

    # Instances.

    async def list_instances(self, user_id: str) -> Sequence[tuple[Instance, RegistryServer]]:
        """Return the instances of a user, sorted by slug, each with its server."""
        ...

    async def get_instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer] | None:
        """Return an instance of this user with its server; None if it belongs to another user."""
        ...

    async def add_instance(self, instance: Instance, *, max_per_user: int = 0) -> None:
        """Add an instance.

        Raises Taken if the user has the slug already, ignoring case, NotFound if the server or choice no
        longer exists, and LimitReached if the user has ``max_per_user`` instances; 0 means no limit.
        """
        ...

    async def save_instance(self, instance: Instance) -> bool:
        """Replace an instance, except its user and server; return False if it no longer exists.

        If the choice changes, its sign-in and pending sign-ins are deleted. Raises Taken or NotFound.
        """
        ...

    async def set_instance_state(self, instance_id: str, state: InstanceState, reason: str | None) -> None:
        """Store the state of an instance; do nothing if it no longer exists."""
        ...

    async def delete_instance(self, user_id: str, instance_id: str) -> bool:
        """Delete an instance with its sign-in and pending sign-ins; return False if it does not exist."""
        ...

    async def reset_instances(self, server_id: str) -> None:
        """Delete the sign-ins and values of all instances of a server, and make these instances pending.

        Used if the server's URL changes to another host. Instances without credentials are not affected.
        """
        ...
