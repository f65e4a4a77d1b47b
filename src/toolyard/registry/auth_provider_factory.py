"""Credentials of connections: an AuthProvider for each server and principal.

The results of authentication are recorded: hints for users in errors, and the state of registry instances.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.auth import AuthProvider, Challenge
from toolyard.auth.errors import AuthError, NeverSignedIn, RegistrationFailed, ScopeNeeded, SignInEnded
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage, LazyAuthStorage
from toolyard.config.file_io import decode_utf8, read_regular_file
from toolyard.errors import ConfigError, ToolyardError
from toolyard.net import OutboundHttp
from toolyard.registry.server_builder import build_oauth_spec
from toolyard.registry.service import Registry
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.registry import AuthChoice, InstanceState, RegistryServer, grant_key
from toolyard.types.server import HttpSpec, OAuthSpec, Server

if TYPE_CHECKING:
    from toolyard.store.repositories.registry import SqlRegistryStorage

__all__ = [
    "AuthProviderFactory",
    "InstanceStateRecorder",
    "StateRecordingAuthProvider",
    "build_config_target",
    "can_sign_in",
    "choice_target",
    "config_grant_key",
    "has_authorization_header",
]


log = logging.getLogger("toolyard.registry")

_INTERACTIVE_SIGN_IN_ERRORS = (NeverSignedIn, SignInEnded, ScopeNeeded)
_CONNECTION_IDENTITY = ClientIdentity("http://127.0.0.1/callback")
"""Placeholder: connections never start a sign-in, so the redirect URI is not used."""


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
        has_pages: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``has_pages``: whether people can sign in on pages of this process, for the hints."""
        self._registry = registry
        self._has_pages = has_pages
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
        hint = "press Connect or Reconnect on the page Instances"
        if not self._has_pages:
            hint += ", in the web app"
        return StateRecordingAuthProvider(self._build_oauth_provider(target, key), hint, recorder)

    def _build_config_provider(self, server: Server, spec: HttpSpec, principal: Principal) -> AuthProvider:
        try:
            target = build_config_target(server, spec)
        except RegistrationFailed as error:
            # Report the error with the connection's status, not to the caller that opens connections.
            return _UnavailableAuthProvider(error)
        hint = f"run `toolyard login {server.id}`"
        if self._registry is not None and self._has_pages and can_sign_in(server, principal):
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


class InstanceStateRecorder:
    """Stores the state of one instance for all replicas.

    Never raises, so that a storage error does not replace the error that is being recorded.
    """

    def __init__(
        self,
        registry_storage: SqlRegistryStorage,
        auth_storage: AuthStorage,
        instance_id: str,
        clock: Callable[[], float],
    ) -> None:
        self._registry_storage = registry_storage
        self._auth_storage = auth_storage
        self._instance_id = instance_id
        self._clock = clock

    async def record_failure(self, error: AuthError, access_token: str | None) -> None:
        """Record that a sign-in is needed or that ``access_token`` was refused."""
        state = InstanceState.PENDING if isinstance(error, NeverSignedIn) else InstanceState.NEEDS_REAUTH
        try:
            await self._registry_storage.set_instance_state(self._instance_id, state, error.cause)
            # The user may have signed in since the refused request was sent. Reading the grant after the
            # state is written ensures that the newer sign-in determines the final state.
            grant = await self._auth_storage.get_grant(grant_key(self._instance_id))
            if grant is None or grant.access_token == access_token or grant.needs_unrequested_scopes:
                return
            if grant.is_valid(self._clock()):
                await self._registry_storage.set_instance_state(self._instance_id, InstanceState.READY, None)
        except ToolyardError as storage_error:
            self._log_storage_error(storage_error)

    async def record_success(self) -> None:
        """Record that authentication works again, unless the server still demands more scopes."""
        try:
            grant = await self._auth_storage.get_grant(grant_key(self._instance_id))
            if grant is not None and grant.needs_unrequested_scopes:
                return
            await self._registry_storage.set_instance_state(self._instance_id, InstanceState.READY, None)
        except ToolyardError as storage_error:
            self._log_storage_error(storage_error)

    def _log_storage_error(self, error: ToolyardError) -> None:
        log.warning("the state of instance %s cannot be stored: %s", self._instance_id, error.cause)


class StateRecordingAuthProvider:
    """AuthProvider that adds ``hint`` to sign-in errors, and records each distinct failure once.

    ``oauth_expected`` means that the server is configured for OAuth. Otherwise, a challenge that is not for a
    bearer token may mean another kind of authentication, and the server's own response is passed on.
    """

    def __init__(
        self,
        provider: OAuthProvider,
        hint: str,
        recorder: InstanceStateRecorder | None = None,
        *,
        oauth_expected: bool = True,
    ) -> None:
        self._provider = provider
        self._hint = hint
        self._oauth_expected = oauth_expected
        self._recorder = recorder
        self._last_failure: tuple[str, str | None] | None = None
        """Cause and access token of the last recorded failure."""

    @property
    def access_token(self) -> str | None:
        """The access token in use, or None."""
        return self._provider.access_token

    async def headers(self) -> Mapping[str, str]:
        """Return the headers with the credentials, and record a success after an earlier failure."""
        try:
            headers = await self._provider.headers()
        except AuthError as error:
            await self._record_failure(error)
            raise
        if self._last_failure is not None and self._provider.access_token not in (
            None,
            self._last_failure[1],
        ):
            # A token other than the refused one: the user signed in, or a refresh succeeded.
            self._last_failure = None
            if self._recorder is not None:
                await self._recorder.record_success()
        return headers

    async def challenged(self, challenge: Challenge) -> bool:
        """Handle a 401 or 403 response; return whether to retry once with new credentials."""
        try:
            return await self._provider.challenged(challenge)
        except AuthError as error:
            if (
                isinstance(error, NeverSignedIn)
                and not self._oauth_expected
                and not _is_bearer_challenge(challenge)
            ):
                return False
            await self._record_failure(error)
            raise

    async def close(self) -> None:
        """Cancel a sign-in in progress. A refresh in progress may complete for a few seconds."""
        await self._provider.close()

    async def _record_failure(self, error: AuthError) -> None:
        if isinstance(error, _INTERACTIVE_SIGN_IN_ERRORS):
            error.hint = self._hint
        failure = (error.cause, self._provider.access_token)
        if self._recorder is not None and failure != self._last_failure:
            # Set before the first await, so that only one of many concurrent failures is stored.
            self._last_failure = failure
            await self._recorder.record_failure(error, failure[1])


def _is_bearer_challenge(challenge: Challenge) -> bool:
    return "bearer" in (challenge.header or "").lower()
