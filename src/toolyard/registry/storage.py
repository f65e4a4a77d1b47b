"""What this room needs of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from toolyard.types.registry import Instance, InstanceState, RegistryServer

__all__ = ["RegistryStorage"]


class RegistryStorage(Protocol):
    """Servers and instances; shared by every replica. Encrypts client secrets and values."""

    # Servers.

    async def servers(self) -> Sequence[RegistryServer]:
        """All, by name."""
        ...

    async def server(self, server_id: str) -> RegistryServer | None: ...

    async def add_server(self, server: RegistryServer) -> None:
        """Raises Taken where a server has this name."""
        ...

    async def save_server(self, server: RegistryServer) -> bool:
        """Replace it, with its choices (by their ids). Choices that are gone are deleted, and instances that
        used one become pending. False: there is none any more. Raises Taken."""
        ...

    async def delete_server(self, server_id: str) -> bool:
        """With its instances and their sign-ins."""
        ...

    async def count_instances(self) -> dict[str, int]:
        """How many instances each server has, by server id."""
        ...

    async def list_instance_choices(self, server_id: str) -> Mapping[str, str]:
        """The ids of all instances of a server, whoever's, each with the id of the choice that it uses."""
        ...

    # Instances.

    async def instances(self, user_id: str) -> Sequence[tuple[Instance, RegistryServer]]:
        """All of one user, by slug, each with its server."""
        ...

    async def instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer] | None:
        """One of this user's; another user's is None."""
        ...

    async def add_instance(self, instance: Instance) -> None:
        """Raises Taken where this user has the slug, without regard to case; NotFound where the server or
        choice is gone."""
        ...

    async def save_instance(self, instance: Instance) -> bool:
        """Replace it (never user and server). Where its choice is another one, its sign-in is dropped, and
        those that were begun. False: it is gone. Raises Taken, NotFound."""
        ...

    async def set_instance_state(self, instance_id: str, state: InstanceState, reason: str | None) -> None:
        """Note what was learned about it; nothing where it is gone."""
        ...

    async def delete_instance(self, user_id: str, instance_id: str) -> bool:
        """With its sign-in, and every sign-in of it that was begun."""
        ...

    async def reset_instances(self, server_id: str) -> None:
        """Drop the sign-ins and given values of all instances of a server that have any to give, and make
        them pending: its URL changed host."""
        ...
