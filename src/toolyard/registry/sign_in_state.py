"""What connections learn about a sign-in, told to its user: by a hint that fits, in an instance's state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from toolyard.auth import Challenge
from toolyard.auth.errors import AuthError, NeverSignedIn, ScopeNeeded, SignInEnded
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.storage import AuthStorage
from toolyard.errors import ToolyardError
from toolyard.registry.storage import RegistryStorage
from toolyard.types.registry import InstanceState, grant_key

__all__ = ["InstanceStateRecorder", "StateRecordingAuthProvider"]

log = logging.getLogger("toolyard.registry")

_INTERACTIVE_SIGN_IN_ERRORS = (NeverSignedIn, SignInEnded, ScopeNeeded)


class InstanceStateRecorder:
    """Keeps the state of one instance for all replicas. Never raises: what is told about matters more."""

    def __init__(
        self,
        registry_storage: RegistryStorage,
        auth_storage: AuthStorage,
        instance_id: str,
        clock: Callable[[], float],
    ) -> None:
        self._registry_storage = registry_storage
        self._auth_storage = auth_storage
        self._instance_id = instance_id
        self._clock = clock

    async def record_failure(self, error: AuthError, access_token: str | None) -> None:
        """Signing in does not work with ``token``, or is needed."""
        state = InstanceState.PENDING if isinstance(error, NeverSignedIn) else InstanceState.NEEDS_REAUTH
        try:
            await self._registry_storage.set_instance_state(self._instance_id, state, error.cause)
            # Somebody may have signed in while we were refused, and theirs is the last word.
            kept = await self._auth_storage.grant(grant_key(self._instance_id))
            if kept is None or kept.access_token == access_token or kept.lacks_scopes:
                return
            if kept.is_valid(self._clock()):
                await self._registry_storage.set_instance_state(self._instance_id, InstanceState.READY, None)
        except ToolyardError as trouble:
            log.warning("the state of instance %s cannot be noted: %s", self._instance_id, trouble.cause)

    async def record_success(self) -> None:
        """Signing in works again; for all of it, unless the server still wants more scopes."""
        try:
            kept = await self._auth_storage.grant(grant_key(self._instance_id))
            if kept is not None and kept.lacks_scopes:
                return
            await self._registry_storage.set_instance_state(self._instance_id, InstanceState.READY, None)
        except ToolyardError as trouble:
            log.warning("the state of instance %s cannot be noted: %s", self._instance_id, trouble.cause)


class StateRecordingAuthProvider:
    """An AuthProvider whose errors say what to do here, and whose troubles are noted, once each.

    ``expected``: somebody said that the server signs in by OAuth. Otherwise one that does not ask for that
    may want something else, and its own words are passed on.
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
        """The cause that was noted last, and the token with which it came."""

    async def headers(self) -> Mapping[str, str]:
        """See AuthProvider."""
        try:
            headers = await self._provider.headers()
        except AuthError as error:
            await self._record_failure(error)
            raise
        if self._last_failure is not None and self._provider.access_token not in (
            None,
            self._last_failure[1],
        ):
            # Not the token that was refused: somebody signed in, or a refresh worked again.
            self._last_failure = None
            if self._recorder is not None:
                await self._recorder.record_success()
        return headers

    async def challenged(self, challenge: Challenge) -> bool:
        """See AuthProvider."""
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
        """End what is under way; a refresh may finish."""
        await self._provider.close()

    async def _record_failure(self, error: AuthError) -> None:
        if isinstance(error, _INTERACTIVE_SIGN_IN_ERRORS):
            error.hint = self._hint
        noted = (error.cause, self._provider.access_token)
        if self._recorder is not None and noted != self._last_failure:
            # Set before anything is awaited: of many calls that fail together, one writes it down.
            self._last_failure = noted
            await self._recorder.record_failure(error, noted[1])


def _is_bearer_challenge(challenge: Challenge) -> bool:
    return "bearer" in (challenge.header or "").lower()
