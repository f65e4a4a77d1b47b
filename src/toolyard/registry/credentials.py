"""Who each principal is to each server: the credentials that connections ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from toolyard.auth import AuthProvider, Challenge
from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.lazy_storage import LazyAuthStorage
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_target import Ourselves, Target
from toolyard.auth.storage import AuthStorage
from toolyard.net import Net
from toolyard.registry.server_builder import oauth_spec
from toolyard.registry.service import Registry
from toolyard.registry.sign_in_state import InstanceNotes, Noting
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.registry import AuthChoice, RegistryServer, grant_key
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = ["Credentials", "can_sign_in", "choice_target", "config_key", "config_target", "has_authorization"]

_NOWHERE = Ourselves("http://127.0.0.1/callback")
"""Connections never send a person anywhere."""


class Credentials:
    """Gives every connection its AuthProvider. ``registry`` keeps the states of instances, where there are
    any."""

    def __init__(
        self,
        registry: Registry | None,
        storage: AuthStorage,
        net: Net,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._storage = storage if isinstance(storage, LazyAuthStorage) else LazyAuthStorage.over(storage)
        self._net = net
        self._clock = clock

    def auth_for(self, server: Server, principal: Principal) -> AuthProvider | None:
        """The credentials of a principal for a server; None where it needs none beside its headers.

        Nothing is read or asked before they are used.
        """
        spec = server.transport
        if not isinstance(spec, HttpSpec) or spec.auth_provider_id is not None:
            return None
        if server.instance is not None:
            return self._of_instance(server, spec)
        if server.provenance.source == "registry" or has_authorization(spec):
            return None
        return self._of_config(server, spec, principal)

    def _of_instance(self, server: Server, spec: HttpSpec) -> AuthProvider | None:
        if server.instance is None or server.oauth is None:
            return None
        key = grant_key(server.instance.id)
        target = Target(spec.url, server.oauth, server.private_addresses)
        notes = None
        if self._registry is not None:
            notes = InstanceNotes(self._registry.storage, self._storage, server.instance.id, self._clock)
        hint = "press Connect or Reconnect on the page of your instances"
        return Noting(self._provider(target, key), hint, notes)

    def _of_config(self, server: Server, spec: HttpSpec, principal: Principal) -> AuthProvider:
        try:
            target = config_target(server, spec)
        except RegistrationFailed as error:
            return _Broken(error)
        hint = f"run `toolyard login {server.id}`"
        if self._registry is not None and can_sign_in(server, principal):
            hint = "press Connect or Reconnect on the page of the server"
        elif not server.shared and principal.id != LOCAL.id:
            hint = f'set "shared": true for it; then `toolyard login {server.id}` signs in for everybody'
        provider = self._provider(target, config_key(server, principal))
        return Noting(provider, hint, expected=server.oauth is not None)

    def _provider(self, target: Target, key: str) -> OAuthProvider:
        return OAuthProvider(
            target, net=self._net, storage=self._storage, ourselves=_NOWHERE, key=key, clock=self._clock
        )


def config_key(server: Server, principal: Principal) -> str:
    """The key under which somebody's sign-in to a server of a file is kept."""
    return f"user:{LOCAL.id if server.shared else principal.id}:{server.id}"


def config_target(server: Server, spec: HttpSpec) -> Target:
    """A server of a file to sign in to. Raises RegistrationFailed where its key file cannot be read."""
    oauth = server.oauth or OAuthSpec()
    key = None
    if oauth.private_key_file is not None:
        # Beside the file that names it, as everybody expects who writes a bare name there.
        place = Path(server.provenance.file or "").parent / Path(oauth.private_key_file).expanduser()
        try:
            key = place.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "it is not a text file"
            raise RegistrationFailed(
                f"the private key file {place} cannot be read: {words}", hint="check privateKeyFile"
            ) from None
    return Target(spec.url, oauth, server.private_addresses, key)


def choice_target(server: RegistryServer, choice: AuthChoice) -> Target:
    """Return the sign-in target of one choice of a registry server."""
    oauth = oauth_spec(choice)
    return Target(server.url, oauth, server.private_addresses, registration=choice.registration)


def can_sign_in(server: Server, principal: Principal) -> bool:
    """Whether a person can sign in to a server of a file, for nobody but themself."""
    spec = server.transport
    if not isinstance(spec, HttpSpec) or spec.auth_provider_id is not None or has_authorization(spec):
        return False
    by_itself = server.oauth is not None and server.oauth.grant == "client_credentials"
    return not by_itself and (not server.shared or principal.id == LOCAL.id)


def has_authorization(spec: HttpSpec) -> bool:
    """Whether an entry brings its own header, so that nobody signs in."""
    return any(name.lower() == "authorization" for name in spec.headers)


class _Broken:
    """Credentials that cannot be made."""

    def __init__(self, error: RegistrationFailed) -> None:
        self._error = error

    async def headers(self) -> Mapping[str, str]:
        raise RegistrationFailed(self._error.cause, hint=self._error.hint)

    async def challenged(self, challenge: Challenge) -> bool:
        return False
