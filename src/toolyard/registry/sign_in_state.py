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

__all__ = ["InstanceNotes", "Noting"]

log = logging.getLogger("toolyard.registry")

_WANTS_A_PERSON = (NeverSignedIn, SignInEnded, ScopeNeeded)


class InstanceNotes:
    """Keeps the state of one instance for all replicas. Never raises: what is told about matters more."""

    def __init__(
        self,
        registry: RegistryStorage,
        storage: AuthStorage,
        instance_id: str,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._storage = storage
        self._instance_id = instance_id
        self._clock = clock

    async def ended(self, error: AuthError, token: str | None) -> None:
        """Signing in does not work with ``token``, or is needed."""
        state = InstanceState.PENDING if isinstance(error, NeverSignedIn) else InstanceState.NEEDS_REAUTH
        try:
            await self._registry.set_state(self._instance_id, state, error.cause)
            # Somebody may have signed in while we were refused, and theirs is the last word.
            kept = await self._storage.grant(grant_key(self._instance_id))
            if kept is None or kept.access_token == token or kept.lacks_scopes:
                return
            if kept.valid(self._clock()):
                await self._registry.set_state(self._instance_id, InstanceState.READY, None)
        except ToolyardError as trouble:
            log.warning("the state of instance %s cannot be noted: %s", self._instance_id, trouble.cause)

    async def works(self) -> None:
        """Signing in works again; for all of it, unless the server still wants more scopes."""
        try:
            kept = await self._storage.grant(grant_key(self._instance_id))
            if kept is not None and kept.lacks_scopes:
                return
            await self._registry.set_state(self._instance_id, InstanceState.READY, None)
        except ToolyardError as trouble:
            log.warning("the state of instance %s cannot be noted: %s", self._instance_id, trouble.cause)


class Noting:
    """An AuthProvider whose errors say what to do here, and whose troubles are noted, once each.

    ``expected``: somebody said that the server signs in by OAuth. Otherwise one that does not ask for that
    may want something else, and its own words are passed on.
    """

    def __init__(
        self,
        provider: OAuthProvider,
        hint: str,
        notes: InstanceNotes | None = None,
        *,
        expected: bool = True,
    ) -> None:
        self._provider = provider
        self._hint = hint
        self._expected = expected
        self._notes = notes
        self._noted: tuple[str, str | None] | None = None
        """The cause that was noted last, and the token with which it came."""

    async def headers(self) -> Mapping[str, str]:
        """See AuthProvider."""
        try:
            headers = await self._provider.headers()
        except AuthError as error:
            await self._failed(error)
            raise
        if self._noted is not None and self._provider.token not in (None, self._noted[1]):
            # Not the token that was refused: somebody signed in, or a refresh worked again.
            self._noted = None
            if self._notes is not None:
                await self._notes.works()
        return headers

    async def challenged(self, challenge: Challenge) -> bool:
        """See AuthProvider."""
        try:
            return await self._provider.challenged(challenge)
        except AuthError as error:
            if isinstance(error, NeverSignedIn) and not self._expected and not _asks_for_oauth(challenge):
                return False
            await self._failed(error)
            raise

    async def close(self) -> None:
        """End what is under way; a refresh may finish."""
        await self._provider.close()

    async def _failed(self, error: AuthError) -> None:
        if isinstance(error, _WANTS_A_PERSON):
            error.hint = self._hint
        noted = (error.cause, self._provider.token)
        if self._notes is not None and noted != self._noted:
            # Set before anything is awaited: of many calls that fail together, one writes it down.
            self._noted = noted
            await self._notes.ended(error, noted[1])


def _asks_for_oauth(challenge: Challenge) -> bool:
    return "bearer" in (challenge.header or "").lower()
