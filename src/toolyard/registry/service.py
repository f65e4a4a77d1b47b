"""Registry service: operations of admins on servers, and of users on their instances.

A slug, the prefix of an instance's tool names, is proposed from the server's address or name.
"""

from __future__ import annotations

import ipaddress
import re
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolyard.config.settings.table import Settings
from toolyard.errors import Problem
from toolyard.registry.errors import Invalid, NotFound, Taken
from toolyard.registry.server_builder import build_instance_server, build_preview_server
from toolyard.registry.validation import is_different_origin, validate_instance, validate_server
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    Instance,
    InstanceDraft,
    InstanceName,
    InstanceState,
    RegistryServer,
    ServerDraft,
)
from toolyard.types.server import Server, State, Status

if TYPE_CHECKING:
    from toolyard.store.repositories.registry import SqlRegistryStorage

__all__ = ["MAX_SLUG_CHARACTERS", "Registry", "derive_slug", "make_slug_unique"]


MAX_SLUG_CHARACTERS = 24
_FALLBACK_SLUG = "server"
_LOOPBACK_SLUG = "local"
_GENERIC_WORDS = "api apis app apps dev gateway mcp mcps prod remote server sse staging www"
_GENERIC_LABELS = frozenset(_GENERIC_WORDS.split())
"""Host name labels that do not identify a service."""
_SECOND_LEVEL_WORDS = "ac co com edu gob gov gv ltd mil ne net nom or org plc sch"
_SECOND_LEVEL_LABELS = frozenset(_SECOND_LEVEL_WORDS.split())
"""Second-level labels below country domains, such as "co" in example.co.uk."""
_SHARED_HOST_NAMES = (
    "a.run.app azurewebsites.net cloudfront.net fly.dev github.io gitlab.io herokuapp.com hf.space "
    "lambda-url.on.aws modal.run netlify.app ngrok-free.app ngrok.app ngrok.io onrender.com pages.dev "
    "railway.app trycloudflare.com up.railway.app vercel.app web.app workers.dev"
)
_SHARED_HOST_SUFFIXES = frozenset(_SHARED_HOST_NAMES.split())
"""Domains of hosting services, below which each customer has a subdomain."""
_NON_ALPHANUMERIC_PATTERN = re.compile(r"[^A-Za-z0-9]+")


def derive_slug(url: str, name: str = "") -> str:
    """Return a valid slug for a server's URL: ``github`` for ``https://api.github.com/mcp``.

    An IP address, ``localhost`` or a host of generic words says nothing about the service: then the slug
    comes from the server's name, if there is one.
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        host = ""
    from_name = _fit_slug(_transliterate_label(name)).lower() if name else ""
    found, is_specific = _pick_host_name(host)
    return (from_name if not is_specific else "") or _fit_slug(found) or from_name or _FALLBACK_SLUG


def make_slug_unique(slug: str, taken: Iterable[str]) -> str:
    """Return the slug, or the first of ``-2``, ``-3`` … appended that is not taken, ignoring case."""
    used = {other.casefold() for other in taken}
    candidate, number = slug, 2
    while candidate.casefold() in used:
        suffix = f"-{number}"
        candidate = slug[: MAX_SLUG_CHARACTERS - len(suffix)].rstrip("-") + suffix
        number += 1
    return candidate


def _pick_host_name(host: str) -> tuple[str, bool]:
    """Return the part of a host that identifies the service, and whether it does more than its address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if address.is_loopback:
            return _LOOPBACK_SLUG, False
        return str(address) if address.version == 4 else "", False
    if host == "localhost" or host.endswith(".localhost"):
        subdomain = host.removesuffix("localhost").rstrip(".")
        return subdomain or _LOOPBACK_SLUG, bool(subdomain)
    labels = [label for label in host.split(".") if label]
    if not labels:
        return "", False
    label = _pick_domain_label(labels)
    return _transliterate_label(label), label not in _GENERIC_LABELS


def _pick_domain_label(labels: list[str]) -> str:
    """Return the registered label, or a neighbouring one if that is generic."""
    # Remove the public suffix: a hosting service's domain, a second-level country domain, or one label.
    shared = [
        size for size in (3, 2) if len(labels) > size and ".".join(labels[-size:]) in _SHARED_HOST_SUFFIXES
    ]
    if shared:
        rest = labels[: -shared[0]]
    elif len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL_LABELS:
        rest = labels[:-2]
    else:
        rest = labels[:-1] or labels
    specific = [label for label in rest if label not in _GENERIC_LABELS]
    return specific[-1] if specific else rest[-1]


def _transliterate_label(label: str) -> str:
    """Return an international label in Latin letters if most of it can be converted, else its IDNA form."""
    try:
        word = label.encode("ascii").decode("idna") if label.startswith("xn--") else label
    except UnicodeError:
        word = label
    plain = unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode()
    # Of a name in another script, few or no letters remain, which would be a meaningless slug.
    return plain if len(plain) * 2 > len(word) else _encode_idna(label)


def _encode_idna(label: str) -> str:
    try:
        return label.encode("idna").decode()
    except UnicodeError:
        return ""


def _fit_slug(word: str) -> str:
    return _NON_ALPHANUMERIC_PATTERN.sub("-", word).strip("-")[:MAX_SLUG_CHARACTERS].rstrip("-")


_MAX_SLUG_ATTEMPTS = 5


class Registry:
    """Manages servers and instances, and enforces the rules for them.

    Does not check permissions: that is up to the interfaces.
    """

    def __init__(
        self, storage: SqlRegistryStorage, settings: Settings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.storage = storage
        self.list_instances = storage.list_instances
        self._catalog_ttl = settings.instance_catalog_ttl
        self._instance_limit = settings.instance_limit
        self._clock = clock

    # Servers.

    async def list_servers(self) -> Sequence[RegistryServer]:
        """Return all servers, sorted by name."""
        return await self.storage.list_servers()

    async def get_server(self, server_id: str) -> RegistryServer:
        """Return a server. Raises NotFound."""
        server = await self.storage.get_server(server_id)
        if server is None:
            raise _server_not_found()
        return server

    async def count_instances(self) -> dict[str, int]:
        """Return the number of instances of each server, by server id."""
        return await self.storage.count_instances()

    def check_server(self, draft: ServerDraft, old: RegistryServer | None = None) -> RegistryServer:
        """Return the server that a draft describes, without storing it. Raises Invalid."""
        return validate_server(draft, old, self._clock())

    async def add_server(self, draft: ServerDraft) -> RegistryServer:
        """Add a server, without contacting it. Raises Invalid or Taken."""
        server = self.check_server(draft)
        await self.storage.add_server(server)
        return server

    async def edit_server(self, server_id: str, draft: ServerDraft) -> RegistryServer:
        """Replace a server. If its URL changes to another origin, users' credentials for it are deleted.

        Raises Invalid, Taken or NotFound.
        """
        old = await self.get_server(server_id)
        server = validate_server(draft, old, self._clock())
        if not is_different_origin(old.url, server.url):
            await self._save_server(server)
            return server
        # Credentials must never be stored together with an address that they were not entered for, and a
        # rejected name must not delete them. So save everything except the address first, which raises
        # Taken; then delete the credentials both before and after the new address is saved, because a user
        # may enter some in between.
        await self._save_server(replace(server, url=old.url))
        await self.storage.reset_instances(server.id)
        await self._save_server(server)
        await self.storage.reset_instances(server.id)
        return server

    async def set_server_enabled(self, server_id: str, enabled: bool) -> RegistryServer:
        """Enable or disable a server for all users. Raises NotFound."""
        server = replace(await self.get_server(server_id), enabled=enabled, updated_at=self._clock())
        await self._save_server(server)
        return server

    async def set_issuer(self, seen: RegistryServer, choice: AuthChoice, issuer: str) -> RegistryServer:
        """Store the confirmed issuer of a choice.

        ``seen`` and ``choice`` are the server and choice as shown to the admin. Raises NotFound, or Invalid
        if the URL or the choice has been edited since.
        """
        server = await self.get_server(seen.id)
        if server.url != seen.url or server.find_choice(choice.id) != choice:
            hint = "check the entry, then confirm again"
            raise Invalid(
                [Problem("the entry has been edited since you loaded it", path="choice_id", hint=hint)]
            )
        choices = tuple(replace(each, issuer=issuer) if each == choice else each for each in server.choices)
        server = replace(server, choices=choices, updated_at=self._clock())
        await self._save_server(server)
        return server

    async def delete_server(self, server_id: str) -> None:
        """Delete a server with its instances and their sign-ins. Raises NotFound."""
        if not await self.storage.delete_server(server_id):
            raise _server_not_found()

    async def _save_server(self, server: RegistryServer) -> None:
        if not await self.storage.save_server(server):
            raise _server_not_found()

    # Instances.

    async def list_instance_names(self, owners: Collection[str]) -> Sequence[InstanceName]:
        """Return the names of all instances of some users."""
        return await self.storage.list_instance_names(owners) if owners else ()

    async def get_instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer]:
        """Return an instance of this user with its server. Raises NotFound, also for another user's."""
        row = await self.storage.get_instance(user_id, instance_id)
        if row is None:
            raise _instance_not_found()
        return row

    async def create_instance(self, user_id: str, draft: InstanceDraft) -> Instance:
        """Create an instance of a server.

        Raises Invalid, Taken, LimitReached, or NotFound if the server does not exist.
        """
        server = await self.get_server(draft.server_id)
        has_slug = bool((draft.slug or "").strip())
        for is_last_attempt in (*[False] * (_MAX_SLUG_ATTEMPTS - 1), True):
            slug = "" if has_slug else await self.propose_slug(user_id, server.url, server.name)
            instance = validate_instance(draft, server, user_id, None, slug, self._clock())
            try:
                await self.storage.add_instance(instance, max_per_user=self._instance_limit)
            except Taken:
                # A concurrent request may have taken the proposed slug: propose the next one.
                if has_slug or is_last_attempt:
                    raise
                continue
            return instance
        raise AssertionError("the last attempt raises")

    async def edit_instance(self, user_id: str, instance_id: str, draft: InstanceDraft) -> Instance:
        """Replace an instance. A different sign-in method needs a new sign-in or value.

        Raises Invalid, Taken or NotFound.
        """
        old, server = await self.get_instance(user_id, instance_id)
        instance = validate_instance(draft, server, user_id, old, old.slug, self._clock())
        await self._save_instance(instance)
        return instance

    async def set_instance_enabled(self, user_id: str, instance_id: str, enabled: bool) -> Instance:
        """Enable or disable an instance. Raises NotFound."""
        old, _ = await self.get_instance(user_id, instance_id)
        instance = replace(old, enabled=enabled, updated_at=self._clock())
        await self._save_instance(instance)
        return instance

    async def delete_instance(self, user_id: str, instance_id: str) -> None:
        """Delete an instance with its sign-in. Raises NotFound."""
        if not await self.storage.delete_instance(user_id, instance_id):
            raise _instance_not_found()

    async def propose_slug(self, user_id: str, url: str, name: str = "") -> str:
        """Return a slug derived from a server's address or name that the user does not have yet."""
        taken = [instance.slug for instance, _ in await self.storage.list_instances(user_id)]
        return make_slug_unique(derive_slug(url, name), taken)

    async def _save_instance(self, instance: Instance) -> None:
        if not await self.storage.save_instance(instance):
            raise _instance_not_found()

    # Servers for the connection manager.

    def build_instance_server(self, instance: Instance, server: RegistryServer) -> Server:
        """Return the server definition of an instance, with its credentials."""
        return build_instance_server(instance, server, ttl=self._catalog_ttl)

    def build_preview_server(self, server: RegistryServer) -> Server:
        """Return the server definition for an admin's preview, without credentials."""
        return build_preview_server(server)

    async def record_status(self, instance_id: str, status: Status) -> None:
        """Store the instance state that follows from the status of a connection."""
        row = await self.storage.get_instance(status.principal, instance_id)
        if row is None:
            return
        instance, server = row
        choice = server.find_choice(instance.choice_id)
        auth_kind = choice.kind if choice is not None else AuthKind.PUBLIC
        new_state = _state_from_status(status, auth_kind, instance.state)
        if new_state is not None and new_state != (instance.state, instance.reason):
            await self.storage.set_instance_state(instance_id, *new_state)


def _state_from_status(
    status: Status, auth_kind: AuthKind, old_state: InstanceState
) -> tuple[InstanceState, str | None] | None:
    """Return the instance state and reason to store for a status; None for a transient status."""
    if status.state is State.READY:
        return InstanceState.READY, None
    if status.state is State.FAILED:
        # A server that cannot be reached now still waits for the user's first sign-in.
        is_pending = auth_kind is AuthKind.OAUTH and old_state is InstanceState.PENDING
        return InstanceState.PENDING if is_pending else InstanceState.FAILED, status.cause
    if status.state is not State.NEEDS_AUTH:
        return None
    if auth_kind is AuthKind.PUBLIC:
        return InstanceState.FAILED, "the server requires a sign-in, but its entry here offers none"
    if status.reason == "never_signed_in":
        return InstanceState.PENDING, status.cause
    return InstanceState.NEEDS_REAUTH, status.cause


def _server_not_found() -> NotFound:
    return NotFound("server not found", hint="it may have been deleted")


def _instance_not_found() -> NotFound:
    return NotFound("instance not found", hint="it may have been deleted")
