"""The credentials of one server by OAuth: sent with every request, renewed when they are refused."""

from __future__ import annotations

import asyncio
import hmac
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.discovery import find_resource
from toolyard.auth.errors import (
    AnswerRejected,
    AuthError,
    AuthUnavailable,
    ClientForgotten,
    DiscoveryFailed,
    NeverSignedIn,
    ScopeNeeded,
    SignInEnded,
    TooManyAttempts,
)
from toolyard.auth.oauth_http import Asker
from toolyard.auth.provider import Challenge
from toolyard.auth.records import Grant
from toolyard.auth.scopes import challenged_scopes
from toolyard.auth.sign_in_flow import Flow, Started
from toolyard.auth.sign_in_target import Ourselves, Target
from toolyard.auth.single_flight import Flight
from toolyard.auth.storage import AuthStorage
from toolyard.auth.token_refresh import Keeper, can_renew
from toolyard.net import Net
from toolyard.types.clock import is_recent

__all__ = ["Authorize", "OAuthProvider"]

Authorize = Callable[[str], Awaitable[AuthorizationResponse]]
"""Sends a person to a URL and returns the redirect that follows."""

_ATTEMPTS = 3
_WINDOW = 600.0
"""Seconds in which so many sign-ins make sense."""
_NEW = 60.0
"""Seconds in which a token that a refusal led to is not refreshed because of another refusal."""


class OAuthProvider:
    """An AuthProvider for one server and one key (whoever is signed in).

    Without ``authorize`` nobody can be asked: then a server that wants a sign-in makes ``challenged`` raise
    NeverSignedIn, SignInEnded or ScopeNeeded, and a later ``Flow`` under the same key helps.
    """

    def __init__(
        self,
        target: Target,
        *,
        net: Net,
        storage: AuthStorage,
        ourselves: Ourselves,
        key: str | None = None,
        authorize: Authorize | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._storage = storage
        self._key = key or target.url
        self._authorize = authorize
        self._clock = clock
        self._asker = Asker(net, target.reach)
        self._flow = Flow(net, storage, ourselves, clock=clock)
        self._keeper = Keeper(self._key, target, storage, self._asker, clock)
        self._flight: Flight[bool] = Flight()
        self._sent: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        self._made: str | None = None
        self._attempts: list[float] = []

    @property
    def token(self) -> str | None:
        """The access token that is held right now; None where there is none."""
        return self._keeper.token

    async def headers(self) -> Mapping[str, str]:
        """The bearer token, refreshed where it was about to run out; nothing where there is none."""
        grant = await self._keeper.current()
        task = asyncio.current_task()
        if grant is None:
            if task is not None:
                self._sent.pop(task, None)
            return {}
        if task is not None:
            self._sent[task] = grant.access_token
        return {"Authorization": f"Bearer {grant.access_token}"}

    async def challenged(self, challenge: Challenge) -> bool:
        """The server refused what ``headers`` gave to this task. True: there is something better now.

        Raises AuthError where a sign-in is needed or did not work, AuthUnavailable where it could not be
        tried.
        """
        task = asyncio.current_task()
        sent = self._sent.get(task) if task is not None else None
        # Whoever was refused for another reason needs something else.
        why = (challenge.status, challenge.params.get("error"), frozenset(challenged_scopes(challenge)))
        return await self._flight.join(lambda: self._improve(challenge, sent), why)

    async def close(self) -> None:
        """End what is under way; a refresh may finish."""
        await self._flight.close()
        await self._keeper.close()

    async def _improve(self, challenge: Challenge, sent: str | None) -> bool:
        grant = await self._keeper.reread()
        if grant is not None and grant.access_token != sent and grant.valid(self._clock()):
            return True
        if challenge.params.get("error") == "insufficient_scope":
            return await self._step_up(grant, challenge)
        if challenge.status != 401:
            return False
        if self._target.oauth.grant == "client_credentials":
            return await self._by_ourselves(grant, challenge)
        # What was allowed before is asked for again, so that nothing of it is lost.
        return await self._refreshed(grant, challenge) or await self._sign_in(grant, challenge, _had(grant))

    # Without a person.

    async def _refreshed(self, grant: Grant | None, challenge: Challenge) -> bool:
        if grant is None or not can_renew(grant, self._target) or self._is_new(grant):
            return False
        if not await self._still_named(grant, challenge):
            return False
        try:
            fresh = await self._keeper.renew(grant)
        except SignInEnded:
            return False
        self._made = fresh.serial if fresh is not None else None
        return fresh is not None and fresh.valid(self._clock())

    async def _still_named(self, grant: Grant, challenge: Challenge) -> bool:
        """Whether the server still signs in where the grant comes from. If it does not say, it does."""
        try:
            resource = await find_resource(self._asker, self._target, challenge)
        except (AuthUnavailable, DiscoveryFailed):
            return True
        named = () if resource is None else resource.authorization_servers
        return not named or grant.issuer.rstrip("/") in [issuer.rstrip("/") for issuer in named]

    async def _by_ourselves(self, grant: Grant | None, challenge: Challenge) -> bool:
        if grant is not None and self._is_new(grant):
            raise SignInEnded(
                "the server refuses the token that was just issued for it",
                hint="check client id, scopes and resource in the server's entry",
            )
        await self._obtain(challenge)
        return True

    async def _obtain(self, challenge: Challenge) -> None:
        for last in (False, True):
            try:
                grant = await self._flow.obtain(self._key, self._target, challenge=challenge)
            except ClientForgotten:
                if last:
                    raise
                continue
            await self._use(grant)
            return

    def _is_new(self, grant: Grant) -> bool:
        return grant.serial == self._made and is_recent(grant.issued_at, self._clock(), _NEW)

    # With a person.

    async def _step_up(self, grant: Grant | None, challenge: Challenge) -> bool:
        asked = challenged_scopes(challenge)
        had = _had(grant)
        if grant is not None and self._is_new(grant) and set(asked) <= set(had):
            raise TooManyAttempts(
                "the server still wants more scopes after a sign-in with all that it asked for",
                hint="the account may not have this permission",
            )
        if self._target.oauth.grant == "client_credentials":
            raise ScopeNeeded(
                f"this needs the scopes {' '.join(asked) or '(not named)'}",
                scopes=asked,
                hint="enter them as scopes in the server's entry",
            )
        return await self._sign_in(grant, challenge, tuple(dict.fromkeys((*had, *asked))))

    async def _sign_in(self, grant: Grant | None, challenge: Challenge, scopes: tuple[str, ...]) -> bool:
        if self._authorize is None:
            await self._remember(grant, challenge)
            raise _wanted(grant, challenge, scopes, self._keeper.refusal)
        for last in (False, True):
            self._check_attempts()
            started = await self._flow.begin(self._key, self._target, challenge=challenge, more_scopes=scopes)
            self._attempts.append(self._clock())
            response = await self._authorize(started.url)
            try:
                grant = await self._finish(started, response)
            except ClientForgotten:
                if last:
                    raise
                continue
            await self._use(grant)
            break
        return True

    async def _remember(self, grant: Grant | None, challenge: Challenge) -> None:
        """Keep the scopes that the server asks for, so that the next sign-in asks for them, too."""
        asked = challenged_scopes(challenge)
        if grant is None or challenge.params.get("error") != "insufficient_scope":
            return
        wanted = tuple(dict.fromkeys((*grant.wanted, *asked)))
        if not set(wanted) <= {*grant.wanted, *grant.requested}:
            # Its serial stays: its tokens are the same.
            async with self._storage.refreshing(self._key):
                await self._storage.swap_grant(self._key, grant.serial, replace(grant, wanted=wanted))

    async def _finish(self, started: Started, response: AuthorizationResponse) -> Grant:
        if not hmac.compare_digest(response.params.get("state", "").encode(), started.state.encode()):
            await self._storage.take_pending(started.state)
            raise AnswerRejected("the browser came back from another sign-in", hint="begin it again")
        return await self._flow.finish(response)

    def _check_attempts(self) -> None:
        now = self._clock()
        self._attempts = [then for then in self._attempts if is_recent(then, now, _WINDOW)]
        if len(self._attempts) >= _ATTEMPTS:
            raise TooManyAttempts(
                f"the server still refuses after {_ATTEMPTS} sign-ins",
                hint="try again later, or ask those who run it",
            )

    async def _use(self, grant: Grant) -> None:
        self._made = grant.serial
        await self._keeper.reread()


def _had(grant: Grant | None) -> tuple[str, ...]:
    return () if grant is None else tuple(dict.fromkeys((*grant.requested, *grant.scopes)))


def _wanted(
    grant: Grant | None, challenge: Challenge, scopes: tuple[str, ...], refusal: SignInEnded | None
) -> AuthError:
    if challenge.params.get("error") == "insufficient_scope":
        asked = " ".join(challenged_scopes(challenge)) or "(not named)"
        return ScopeNeeded(
            f"this needs the scopes {asked}", scopes=scopes, hint="sign in again to allow them"
        )
    error: AuthError
    if grant is None:
        error = NeverSignedIn("the server wants you to sign in", hint="sign in to it first")
    else:
        cause = "the sign-in has run out or was taken back" if refusal is None else refusal.cause
        error = SignInEnded(cause, hint="sign in again")
    error.challenge = challenge.header
    return error
