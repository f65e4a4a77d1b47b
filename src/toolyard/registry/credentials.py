"""Credentials of connections: an AuthProvider for each server and principal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from toolyard.auth import AuthProvider, Challenge
from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage, LazyAuthStorage
from toolyard.config.file_reader import decode_utf8, read_regular_file
from toolyard.errors import ConfigError
from toolyard.net import OutboundHttp
from toolyard.registry.server_builder import build_oauth_spec
from toolyard.registry.service import Registry
from toolyard.registry.sign_in_state import InstanceStateRecorder, StateRecordingAuthProvider
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.registry import AuthChoice, RegistryServer, grant_key
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = [
    "AuthProviderFactory",
    "build_config_target",
    "can_sign_in",
    "choice_target",
    "config_grant_key",
    "has_authorization_header",
]

_CONNECTION_IDENTITY = ClientIdentity("http://127.0.0.1/callback")
"""Placeholder: connections never start a sign-in, so the redirect address is not used."""


class AuthProviderFactory:
    """Creates the AuthProvider of each connection.

    With a ``registry``, the outcome of authentication is recorded in the states of its instances.
    """

    def __init__(
        self,
        registry: Registry | None,
        storage: AuthStorage,
        net: OutboundHttp,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._storage = storage if isinstance(storage, LazyAuthStorage) else LazyAuthStorage.wrap(storage)
        self._net = net
        self._clock = clock

    def auth_provider_for(self, server: Server, principal: Principal) -> AuthProvider | None:
        """Return the provider of a principal's credentials for a server.

        None if the server needs none beyond its configured headers. The storage and the network are not
        accessed before the provider is used.
        """
        spec = server.transport
        if not isinstance(spec, HttpSpec) or spec.auth_provider_id is not None:
            return None
        if server.instance is not None:
            return self._build_instance_provider(server, spec)
        # A registry server without an instance is an admin's preview, which has no credentials.
        if server.provenance.source == "registry" or has_authorization_header(spec):
            return None
        return self._build_config_provider(server, spec, principal)

    def _build_instance_provider(self, server: Server, spec: HttpSpec) -> AuthProvider | None:
        if server.instance is None or server.oauth is None:
            return None
        key = grant_key(server.instance.id)
        target = SignInTarget(spec.url, server.oauth, server.private_addresses)
        recorder = None
        if self._registry is not None:
            recorder = InstanceStateRecorder(
                self._registry.storage, self._storage, server.instance.id, self._clock
            )
        hint = "press Connect or Reconnect on the page of your instances"
        return StateRecordingAuthProvider(self._build_oauth_provider(target, key), hint, recorder)

    def _build_config_provider(self, server: Server, spec: HttpSpec, principal: Principal) -> AuthProvider:
        try:
            target = build_config_target(server, spec)
        except RegistrationFailed as error:
            # Report the error with the connection's status, not to the caller that opens connections.
            return _UnavailableAuthProvider(error)
        hint = f"run `toolyard login {server.id}`"
        if self._registry is not None and can_sign_in(server, principal):
            hint = "press Connect or Reconnect on the page of the server"
        elif not server.shared and principal.id != LOCAL_PRINCIPAL.id:
            hint = f'set "shared": true for it; then run `toolyard login {server.id}` to sign in for everyone'
        provider = self._build_oauth_provider(target, config_grant_key(server, principal))
        return StateRecordingAuthProvider(provider, hint, oauth_expected=server.oauth is not None)

    def _build_oauth_provider(self, target: SignInTarget, key: str) -> OAuthProvider:
        return OAuthProvider(
            target,
            net=self._net,
            storage=self._storage,
            client_identity=_CONNECTION_IDENTITY,
            key=key,
            clock=self._clock,
        )


def config_grant_key(server: Server, principal: Principal) -> str:
    """Return the storage key of a principal's sign-in to a server from a configuration file."""
    return f"user:{LOCAL_PRINCIPAL.id if server.shared else principal.id}:{server.id}"


def build_config_target(server: Server, spec: HttpSpec) -> SignInTarget:
    """Return the sign-in target of a server from a configuration file.

    Raises RegistrationFailed if its private key file cannot be read.
    """
    oauth = server.oauth or OAuthSpec()
    private_key = None
    if oauth.private_key_file is not None:
        # A relative path is resolved against the folder of the configuration file.
        path = Path(server.provenance.file or "").parent / Path(oauth.private_key_file).expanduser()
        try:
            private_key = decode_utf8(read_regular_file(path))
        except ConfigError as error:
            raise RegistrationFailed(
                f"the private key file {path} cannot be read: {error.problems[0].message}",
                hint="check privateKeyFile",
            ) from None
    return SignInTarget(spec.url, oauth, server.private_addresses, private_key)


def choice_target(server: RegistryServer, choice: AuthChoice) -> SignInTarget:
    """Return the sign-in target of one choice of a registry server."""
    oauth = build_oauth_spec(choice)
    return SignInTarget(server.url, oauth, server.private_addresses, registration=choice.registration)


def can_sign_in(server: Server, principal: Principal) -> bool:
    """Return whether a user can sign in individually to a server from a configuration file.

    For a shared server only the local user can, on behalf of everyone.
    """
    spec = server.transport
    if not isinstance(spec, HttpSpec) or spec.auth_provider_id is not None or has_authorization_header(spec):
        return False
    is_automatic = server.oauth is not None and server.oauth.grant == "client_credentials"
    return not is_automatic and (not server.shared or principal.id == LOCAL_PRINCIPAL.id)


def has_authorization_header(spec: HttpSpec) -> bool:
    """Return whether the entry has a fixed Authorization header, which replaces any sign-in."""
    return any(name.lower() == "authorization" for name in spec.headers)


class _UnavailableAuthProvider:
    """AuthProvider that raises a configuration error when it is used."""

    def __init__(self, error: RegistrationFailed) -> None:
        self._error = error

    async def headers(self) -> Mapping[str, str]:
        raise RegistrationFailed(self._error.cause, hint=self._error.hint)

    async def challenged(self, challenge: Challenge) -> bool:
        return False
