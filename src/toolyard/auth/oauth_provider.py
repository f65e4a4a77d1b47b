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
from toolyard.auth.discovery import fetch_resource_metadata
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
from toolyard.auth.oauth_http import OAuthHttpClient
from toolyard.auth.provider import Challenge
from toolyard.auth.records import OAuthGrant
from toolyard.auth.scopes import scopes_in_challenge
from toolyard.auth.sign_in_flow import AuthorizationRequest, SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.single_flight import SingleFlightTask
from toolyard.auth.storage import AuthStorage
from toolyard.auth.token_refresh import GrantRefresher, can_refresh
from toolyard.net import OutboundHttp
from toolyard.types.clock import is_recent

__all__ = ["OAuthProvider", "UserAuthorizer"]

UserAuthorizer = Callable[[str], Awaitable[AuthorizationResponse]]
"""Sends a person to a URL and returns the redirect that follows."""

_MAX_SIGN_IN_ATTEMPTS = 3
_ATTEMPT_WINDOW_SECONDS = 600.0
"""Seconds in which so many sign-ins make sense."""
_NEW_GRANT_SECONDS = 60.0
"""Seconds in which a token that a refusal led to is not refreshed because of another refusal."""


class OAuthProvider:
    """An AuthProvider for one server and one key (whoever is signed in).

    Without ``authorize`` nobody can be asked: then a server that wants a sign-in makes ``challenged`` raise
    NeverSignedIn, SignInEnded or ScopeNeeded, and a later ``Flow`` under the same key helps.
    """

    def __init__(
        self,
        target: SignInTarget,
        *,
        net: OutboundHttp,
        storage: AuthStorage,
        client_identity: ClientIdentity,
        key: str | None = None,
        authorize: UserAuthorizer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._storage = storage
        self._key = key or target.url
        self._authorize = authorize
        self._clock = clock
        self._http_client = OAuthHttpClient(net, target.address_policy)
        self._flow = SignInFlow(net, storage, client_identity, clock=clock)
        self._refresher = GrantRefresher(self._key, target, storage, self._http_client, clock)
        self._challenge_flight: SingleFlightTask[bool] = SingleFlightTask()
        self._sent_tokens: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        self._new_grant_serial: str | None = None
        self._attempt_times: list[float] = []

    @property
    def access_token(self) -> str | None:
        """The access token that is held right now; None where there is none."""
        return self._refresher.access_token

    async def headers(self) -> Mapping[str, str]:
        """The bearer token, refreshed where it was about to run out; nothing where there is none."""
        grant = await self._refresher.get_current_grant()
        task = asyncio.current_task()
        if grant is None:
            if task is not None:
                self._sent_tokens.pop(task, None)
            return {}
        if task is not None:
            self._sent_tokens[task] = grant.access_token
        return {"Authorization": f"Bearer {grant.access_token}"}

    async def challenged(self, challenge: Challenge) -> bool:
        """The server refused what ``headers`` gave to this task. True: there is something better now.

        Raises AuthError where a sign-in is needed or did not work, AuthUnavailable where it could not be
        tried.
        """
        task = asyncio.current_task()
        sent = self._sent_tokens.get(task) if task is not None else None
        # Whoever was refused for another reason needs something else.
        why = (challenge.status, challenge.params.get("error"), frozenset(scopes_in_challenge(challenge)))
        return await self._challenge_flight.run(lambda: self._handle_challenge(challenge, sent), why)

    async def close(self) -> None:
        """End what is under way; a refresh may finish."""
        await self._challenge_flight.close()
        await self._refresher.close()

    async def _handle_challenge(self, challenge: Challenge, sent_token: str | None) -> bool:
        grant = await self._refresher.reload_grant()
        if grant is not None and grant.access_token != sent_token and grant.is_valid(self._clock()):
            return True
        if challenge.params.get("error") == "insufficient_scope":
            return await self._step_up(grant, challenge)
        if challenge.status != 401:
            return False
        if self._target.oauth.grant == "client_credentials":
            return await self._sign_in_as_client(grant, challenge)
        # What was allowed before is asked for again, so that nothing of it is lost.
        return await self._try_refresh(grant, challenge) or await self._sign_in(
            grant, challenge, _get_grant_scopes(grant)
        )

    # Without a person.

    async def _try_refresh(self, grant: OAuthGrant | None, challenge: Challenge) -> bool:
        if grant is None or not can_refresh(grant, self._target) or self._is_new_grant(grant):
            return False
        if not await self._is_issuer_still_named(grant, challenge):
            return False
        try:
            fresh = await self._refresher.refresh(grant)
        except SignInEnded:
            return False
        self._new_grant_serial = fresh.serial if fresh is not None else None
        return fresh is not None and fresh.is_valid(self._clock())

    async def _is_issuer_still_named(self, grant: OAuthGrant, challenge: Challenge) -> bool:
        """Whether the server still signs in where the grant comes from. If it does not say, it does."""
        try:
            resource = await fetch_resource_metadata(self._http_client, self._target, challenge)
        except (AuthUnavailable, DiscoveryFailed):
            return True
        named = () if resource is None else resource.authorization_servers
        return not named or grant.issuer.rstrip("/") in [issuer.rstrip("/") for issuer in named]

    async def _sign_in_as_client(self, grant: OAuthGrant | None, challenge: Challenge) -> bool:
        if grant is not None and self._is_new_grant(grant):
            raise SignInEnded(
                "the server refuses the token that was just issued for it",
                hint="check client id, scopes and resource in the server's entry",
            )
        await self._obtain_client_grant(challenge)
        return True

    async def _obtain_client_grant(self, challenge: Challenge) -> None:
        for last in (False, True):
            try:
                grant = await self._flow.sign_in_as_client(self._key, self._target, challenge=challenge)
            except ClientForgotten:
                if last:
                    raise
                continue
            await self._use_grant(grant)
            return

    def _is_new_grant(self, grant: OAuthGrant) -> bool:
        return grant.serial == self._new_grant_serial and is_recent(
            grant.issued_at, self._clock(), _NEW_GRANT_SECONDS
        )

    # With a person.

    async def _step_up(self, grant: OAuthGrant | None, challenge: Challenge) -> bool:
        asked = scopes_in_challenge(challenge)
        had = _get_grant_scopes(grant)
        if grant is not None and self._is_new_grant(grant) and set(asked) <= set(had):
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

    async def _sign_in(self, grant: OAuthGrant | None, challenge: Challenge, scopes: tuple[str, ...]) -> bool:
        if self._authorize is None:
            await self._store_wanted_scopes(grant, challenge)
            raise _build_sign_in_error(grant, challenge, scopes, self._refresher.refresh_error)
        for last in (False, True):
            self._check_attempts()
            started = await self._flow.begin(self._key, self._target, challenge=challenge, more_scopes=scopes)
            self._attempt_times.append(self._clock())
            response = await self._authorize(started.url)
            try:
                grant = await self._finish_sign_in(started, response)
            except ClientForgotten:
                if last:
                    raise
                continue
            await self._use_grant(grant)
            break
        return True

    async def _store_wanted_scopes(self, grant: OAuthGrant | None, challenge: Challenge) -> None:
        """Keep the scopes that the server asks for, so that the next sign-in asks for them, too."""
        asked = scopes_in_challenge(challenge)
        if grant is None or challenge.params.get("error") != "insufficient_scope":
            return
        wanted = tuple(dict.fromkeys((*grant.wanted, *asked)))
        if not set(wanted) <= {*grant.wanted, *grant.requested}:
            # Its serial stays: its tokens are the same.
            async with self._storage.refresh_lock(self._key):
                await self._storage.swap_grant(self._key, grant.serial, replace(grant, wanted=wanted))

    async def _finish_sign_in(
        self, request: AuthorizationRequest, response: AuthorizationResponse
    ) -> OAuthGrant:
        if not hmac.compare_digest(response.params.get("state", "").encode(), request.state.encode()):
            await self._storage.take_pending(request.state)
            raise AnswerRejected("the browser came back from another sign-in", hint="begin it again")
        return await self._flow.finish(response)

    def _check_attempts(self) -> None:
        now = self._clock()
        self._attempt_times = [
            then for then in self._attempt_times if is_recent(then, now, _ATTEMPT_WINDOW_SECONDS)
        ]
        if len(self._attempt_times) >= _MAX_SIGN_IN_ATTEMPTS:
            raise TooManyAttempts(
                f"the server still refuses after {_MAX_SIGN_IN_ATTEMPTS} sign-ins",
                hint="try again later, or ask those who run it",
            )

    async def _use_grant(self, grant: OAuthGrant) -> None:
        self._new_grant_serial = grant.serial
        await self._refresher.reload_grant()


def _get_grant_scopes(grant: OAuthGrant | None) -> tuple[str, ...]:
    return () if grant is None else tuple(dict.fromkeys((*grant.requested, *grant.scopes)))


def _build_sign_in_error(
    grant: OAuthGrant | None, challenge: Challenge, scopes: tuple[str, ...], refresh_error: SignInEnded | None
) -> AuthError:
    if challenge.params.get("error") == "insufficient_scope":
        asked = " ".join(scopes_in_challenge(challenge)) or "(not named)"
        return ScopeNeeded(
            f"this needs the scopes {asked}", scopes=scopes, hint="sign in again to allow them"
        )
    error: AuthError
    if grant is None:
        error = NeverSignedIn("the server wants you to sign in", hint="sign in to it first")
    else:
        cause = "the sign-in has run out or was taken back" if refresh_error is None else refresh_error.cause
        error = SignInEnded(cause, hint="sign in again")
    error.challenge = challenge.header
    return error
