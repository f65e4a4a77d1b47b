"""Recording of authentication results: hints for users in errors, and the state of registry instances."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from toolyard.auth import Challenge
from toolyard.auth.errors import AuthError, NeverSignedIn, ScopeNeeded, SignInEnded
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.storage import AuthStorage
from toolyard.errors import ToolyardError
from toolyard.types.registry import InstanceState, grant_key

if TYPE_CHECKING:
    from toolyard.store.repositories.registry import SqlRegistryStorage

__all__ = ["InstanceStateRecorder", "StateRecordingAuthProvider"]

log = logging.getLogger("toolyard.registry")

_INTERACTIVE_SIGN_IN_ERRORS = (NeverSignedIn, SignInEnded, ScopeNeeded)


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
