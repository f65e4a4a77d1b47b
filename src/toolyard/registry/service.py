"""The registry: what admins do with servers and users with their instances of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from toolyard.config.settings.table import Settings
from toolyard.errors import Problem
from toolyard.registry.errors import Invalid, NotFound, Taken
from toolyard.registry.form_input import InstanceDraft, ServerDraft
from toolyard.registry.server_builder import build_instance_server, build_preview_server
from toolyard.registry.slugs import make_slug_unique, propose
from toolyard.registry.storage import RegistryStorage
from toolyard.registry.validation import is_different_origin, validate_instance, validate_server
from toolyard.types.registry import AuthChoice, AuthKind, Instance, InstanceState, RegistryServer
from toolyard.types.server import Server
from toolyard.types.status import State, Status

__all__ = ["Registry"]

_MAX_SLUG_ATTEMPTS = 5


class Registry:
    """Servers and instances, with every rule about them. Who may call what is for the doors to say."""

    def __init__(
        self, storage: RegistryStorage, settings: Settings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.storage = storage
        self._catalog_ttl = settings.instance_catalog_ttl
        self._clock = clock

    # Servers.

    async def servers(self) -> Sequence[RegistryServer]:
        """All, by name."""
        return await self.storage.servers()

    async def server(self, server_id: str) -> RegistryServer:
        """One of them. Raises NotFound."""
        server = await self.storage.server(server_id)
        if server is None:
            raise _server_not_found()
        return server

    async def count_instances(self) -> dict[str, int]:
        """How many instances each server has, by server id."""
        return await self.storage.count_instances()

    async def add_server(self, draft: ServerDraft) -> RegistryServer:
        """A new server. Its address is not asked. Raises Invalid or Taken."""
        server = validate_server(draft, None, self._clock())
        await self.storage.add_server(server)
        return server

    async def edit_server(self, server_id: str, draft: ServerDraft) -> RegistryServer:
        """Replace a server. Where its URL leads to another host, what users gave for the old one is dropped.

        Raises Invalid, Taken or NotFound.
        """
        old = await self.server(server_id)
        server = validate_server(draft, old, self._clock())
        if not is_different_origin(old.url, server.url):
            await self._save_server(server)
            return server
        # At no moment may a value stand beside an address that it was not given for, and a name that is
        # taken must cost nobody a sign-in: everything but the address first, the address between two drops.
        await self._save_server(replace(server, url=old.url))
        await self.storage.reset_instances(server.id)
        await self._save_server(server)
        await self.storage.reset_instances(server.id)
        return server

    async def set_server_enabled(self, server_id: str, enabled: bool) -> RegistryServer:
        """Switch a server on or off for everybody. Nothing else changes. Raises NotFound."""
        server = replace(await self.server(server_id), enabled=enabled, updated_at=self._clock())
        await self._save_server(server)
        return server

    async def set_issuer(self, seen: RegistryServer, choice: AuthChoice, issuer: str) -> RegistryServer:
        """Store the confirmed issuer of a choice.

        ``seen`` and ``choice`` are the entry for which it was confirmed. Raises NotFound, or Invalid if the
        address or the choice has been edited since.
        """
        server = await self.server(seen.id)
        if server.url != seen.url or server.choice(choice.id) != choice:
            hint = "check the entry, then confirm again"
            raise Invalid([Problem("the entry was edited meanwhile", path="choice_id", hint=hint)])
        choices = tuple(replace(each, issuer=issuer) if each == choice else each for each in server.choices)
        server = replace(server, choices=choices, updated_at=self._clock())
        await self._save_server(server)
        return server

    async def delete_server(self, server_id: str) -> None:
        """With its instances and their sign-ins. Raises NotFound."""
        if not await self.storage.delete_server(server_id):
            raise _server_not_found()

    async def _save_server(self, server: RegistryServer) -> None:
        if not await self.storage.save_server(server):
            raise _server_not_found()

    # Instances.

    async def instances(self, user_id: str) -> Sequence[tuple[Instance, RegistryServer]]:
        """All of one user, by slug, each with its server."""
        return await self.storage.instances(user_id)

    async def instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer]:
        """One of this user's, with its server. Raises NotFound, for another user's too."""
        found = await self.storage.instance(user_id, instance_id)
        if found is None:
            raise _instance_not_found()
        return found

    async def create_instance(self, user_id: str, draft: InstanceDraft) -> Instance:
        """A new instance of a server. Raises Invalid, Taken, or NotFound where there is no such server."""
        server = await self.server(draft.server_id)
        given = bool((draft.slug or "").strip())
        for last in (*[False] * (_MAX_SLUG_ATTEMPTS - 1), True):
            slug = "" if given else await self.propose_slug(user_id, server.url)
            instance = validate_instance(draft, server, user_id, None, slug, self._clock())
            try:
                await self.storage.add_instance(instance)
            except Taken:
                # Of two who create at once, one gets the proposed slug, and the other the next.
                if given or last:
                    raise
                continue
            return instance
        raise AssertionError("the last try raises")

    async def edit_instance(self, user_id: str, instance_id: str, draft: InstanceDraft) -> Instance:
        """Replace an instance. Another way of signing in needs a new sign-in or value.

        Raises Invalid, Taken or NotFound.
        """
        old, server = await self.instance(user_id, instance_id)
        instance = validate_instance(draft, server, user_id, old, old.slug, self._clock())
        await self._save_instance(instance)
        return instance

    async def set_instance_enabled(self, user_id: str, instance_id: str, enabled: bool) -> Instance:
        """Switch an instance on or off. Nothing else changes. Raises NotFound."""
        old, _ = await self.instance(user_id, instance_id)
        instance = replace(old, enabled=enabled, updated_at=self._clock())
        await self._save_instance(instance)
        return instance

    async def delete_instance(self, user_id: str, instance_id: str) -> None:
        """With its sign-in. Raises NotFound."""
        if not await self.storage.delete_instance(user_id, instance_id):
            raise _instance_not_found()

    async def propose_slug(self, user_id: str, url: str) -> str:
        """A slug from a server's address that this user does not have yet."""
        taken = [instance.slug for instance, _ in await self.storage.instances(user_id)]
        return make_slug_unique(propose(url), taken)

    async def _save_instance(self, instance: Instance) -> None:
        if not await self.storage.save_instance(instance):
            raise _instance_not_found()

    # For the core.

    def build_instance_server(self, instance: Instance, server: RegistryServer) -> Server:
        """The instance as the core knows servers."""
        return build_instance_server(instance, server, ttl=self._catalog_ttl)

    def build_preview_server(self, server: RegistryServer) -> Server:
        """The server itself, for the admin's look at it."""
        return build_preview_server(server)

    async def record_status(self, instance_id: str, status: Status) -> None:
        """Keep what a connection's record says about the instance of its principal."""
        found = await self.storage.instance(status.principal, instance_id)
        if found is None:
            return
        instance, server = found
        choice = server.choice(instance.choice_id)
        learned = _state_from_status(status, choice.kind if choice is not None else AuthKind.PUBLIC)
        if learned is not None and learned != (instance.state, instance.reason):
            await self.storage.set_instance_state(instance_id, *learned)


def _state_from_status(status: Status, auth_kind: AuthKind) -> tuple[InstanceState, str | None] | None:
    """What a record tells that outlives its process; None where it tells nothing."""
    if status.state is State.READY:
        return InstanceState.READY, None
    if status.state is State.FAILED:
        return InstanceState.FAILED, status.cause
    if status.state is not State.NEEDS_AUTH:
        return None
    if auth_kind is AuthKind.PUBLIC:
        return InstanceState.FAILED, "the server wants a sign-in, which its entry here does not offer"
    if status.reason == "never_signed_in":
        return InstanceState.PENDING, status.cause
    return InstanceState.NEEDS_REAUTH, status.cause


def _server_not_found() -> NotFound:
    return NotFound("there is no such server", hint="it may have been deleted")


def _instance_not_found() -> NotFound:
    return NotFound("there is no such instance", hint="it may have been deleted")
