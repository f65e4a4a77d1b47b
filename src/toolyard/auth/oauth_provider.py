"""OAuth credentials of one server: sent with every request, and renewed after a 401 or 403 response."""

from __future__ import annotations

import asyncio
import hmac
import time
import weakref
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

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
from toolyard.auth.sign_in_flow import (
    AuthorizationRequest,
    AuthorizationResponse,
    SignInFlow,
    scopes_in_challenge,
)
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage, OAuthGrant
from toolyard.auth.token_refresh import GrantRefresher, can_refresh, translate_foreign_cancellation
from toolyard.concurrency.tasks import SingleFlight
from toolyard.net import OutboundHttp
from toolyard.types.timestamps import is_recent

__all__ = ["OAuthProvider", "UserAuthorizer"]

UserAuthorizer = Callable[[str], Awaitable[AuthorizationResponse]]
"""Opens an authorization URL for the user, and returns the resulting authorization response."""

_MAX_SIGN_IN_ATTEMPTS = 3
_ATTEMPT_WINDOW_SECONDS = 600.0
"""Period in which at most ``_MAX_SIGN_IN_ATTEMPTS`` sign-ins are started."""
_NEW_GRANT_SECONDS = 60.0
"""Period after a refresh in which another challenge does not cause a second refresh.

A server that refuses a new token would refuse the next one, too."""


class OAuthProvider:
    """AuthProvider for one server and one storage key (which identifies the signed-in user).

    Without ``authorize``, no user can be asked to sign in: ``challenged`` then raises NeverSignedIn,
    SignInEnded or ScopeNeeded, until a ``SignInFlow`` stores a grant under the same key.
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
        self._challenge_flight: SingleFlight[Hashable, bool] = SingleFlight(cancel_when_abandoned=False)
        # By task, because ``challenged`` does not say which token was refused, and another task may have
        # replaced the cached one since. Weak keys, since a task that ends never comes back.
        self._sent_tokens: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        self._new_grant_serial: str | None = None
        self._attempt_times: list[float] = []

    @property
    def access_token(self) -> str | None:
        """The cached access token, or None."""
        return self._refresher.access_token

    async def headers(self) -> Mapping[str, str]:
        """Return the Authorization header, refreshed if about to expire; empty without a grant."""
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
        """Handle a refusal of the credentials sent by this task; return whether to retry with new ones.

        Raises AuthError if a sign-in is needed or failed, and AuthUnavailable if it could not be attempted.
        """
        task = asyncio.current_task()
        sent_token = self._sent_tokens.get(task) if task is not None else None
        # Concurrent requests refused for the same reason share one refresh or sign-in. A different reason
        # (such as another scope) needs different handling, so it is part of the key.
        reason = (challenge.status, challenge.params.get("error"), frozenset(scopes_in_challenge(challenge)))
        with translate_foreign_cancellation():
            await self._challenge_flight.wait_for_other_keys(reason)
            return await self._challenge_flight.run(
                reason, lambda: self._handle_challenge(challenge, sent_token)
            )

    async def close(self) -> None:
        """Cancel a sign-in in progress. A refresh in progress may complete for a few seconds."""
        # The flight of challenges first: it may be the one that waits for a refresh, and is cancelled without
        # cancelling that refresh.
        await self._challenge_flight.close()
        await self._refresher.close()

    async def _handle_challenge(self, challenge: Challenge, sent_token: str | None) -> bool:
        grant = await self._refresher.reload_grant()
        # Another request or replica has renewed the grant since this token was sent: retry with it.
        # Refreshing again would spend a refresh token for nothing.
        if grant is not None and grant.access_token != sent_token and grant.is_valid(self._clock()):
            return True
        if challenge.params.get("error") == "insufficient_scope":
            return await self._step_up(grant, challenge)
        if challenge.status != 401:
            return False
        if self._target.oauth.grant == "client_credentials":
            return await self._sign_in_as_client(grant, challenge)
        # Request the scopes of the previous grant again, so that none of them is lost.
        return await self._try_refresh(grant, challenge) or await self._sign_in(
            grant, challenge, _get_grant_scopes(grant)
        )

    # Without user interaction.

    async def _try_refresh(self, grant: OAuthGrant | None, challenge: Challenge) -> bool:
        # A grant that was just refreshed and is refused again needs a sign-in, not another refresh: that
        # would loop.
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
        """Return whether the server's metadata still lists the issuer of the grant.

        True if the metadata is missing or cannot be fetched.
        """
        try:
            resource = await fetch_resource_metadata(self._http_client, self._target, challenge)
        except (AuthUnavailable, DiscoveryFailed):
            return True
        issuers = () if resource is None else resource.authorization_servers
        return not issuers or grant.issuer.rstrip("/") in [issuer.rstrip("/") for issuer in issuers]

    async def _sign_in_as_client(self, grant: OAuthGrant | None, challenge: Challenge) -> bool:
        if grant is not None and self._is_new_grant(grant):
            raise SignInEnded(
                "the server refuses an access token that was just issued for it",
                hint="check client id, scopes and resource in the server's entry",
            )
        await self._obtain_grant(
            lambda: self._flow.sign_in_as_client(self._key, self._target, challenge=challenge)
        )
        return True

    async def _obtain_grant(self, sign_in: Callable[[], Awaitable[OAuthGrant]]) -> None:
        try:
            grant = await sign_in()
        except ClientForgotten:
            # Once more: the next attempt registers a new client.
            grant = await sign_in()
        self._new_grant_serial = grant.serial
        await self._refresher.reload_grant()

    def _is_new_grant(self, grant: OAuthGrant) -> bool:
        return grant.serial == self._new_grant_serial and is_recent(
            grant.issued_at, self._clock(), _NEW_GRANT_SECONDS
        )

    # With user interaction.

    async def _step_up(self, grant: OAuthGrant | None, challenge: Challenge) -> bool:
        needed = scopes_in_challenge(challenge)
        granted = _get_grant_scopes(grant)
        if grant is not None and self._is_new_grant(grant) and set(needed) <= set(granted):
            raise TooManyAttempts(
                "the server still demands more scopes after a sign-in with all scopes that it named",
                hint="the account may not have this permission",
            )
        if self._target.oauth.grant == "client_credentials":
            raise ScopeNeeded(
                f"the request needs the scopes {' '.join(needed) or '(not named)'}",
                scopes=needed,
                hint="enter them as scopes in the server's entry",
            )
        return await self._sign_in(grant, challenge, tuple(dict.fromkeys((*granted, *needed))))

    async def _sign_in(self, grant: OAuthGrant | None, challenge: Challenge, scopes: tuple[str, ...]) -> bool:
        if self._authorize is None:
            await self._store_wanted_scopes(grant, challenge)
            raise _build_sign_in_error(grant, challenge, scopes, self._refresher.refresh_error)
        authorize = self._authorize

        async def ask_user() -> OAuthGrant:
            self._check_attempts()
            request = await self._flow.begin(self._key, self._target, challenge=challenge, more_scopes=scopes)
            self._attempt_times.append(self._clock())
            return await self._finish_sign_in(request, await authorize(request.url))

        await self._obtain_grant(ask_user)
        return True

    async def _store_wanted_scopes(self, grant: OAuthGrant | None, challenge: Challenge) -> None:
        """Store the scopes that the server demands, so that the next sign-in requests them."""
        needed = scopes_in_challenge(challenge)
        if grant is None or challenge.params.get("error") != "insufficient_scope":
            return
        wanted = tuple(dict.fromkeys((*grant.wanted, *needed)))
        if not set(wanted) <= {*grant.wanted, *grant.requested}:
            # The serial is kept because the tokens do not change.
            async with self._storage.refresh_lock(self._key):
                await self._storage.swap_grant(self._key, grant.serial, replace(grant, wanted=wanted))

    async def _finish_sign_in(
        self, request: AuthorizationRequest, response: AuthorizationResponse
    ) -> OAuthGrant:
        # Compared in constant time. A sign-in that ends with the state of another is removed, so nobody
        # can complete it.
        if not hmac.compare_digest(response.params.get("state", "").encode(), request.state.encode()):
            await self._storage.take_pending(request.state)
            raise AnswerRejected("the browser returned from a different sign-in", hint="start again")
        return await self._flow.finish(response)

    def _check_attempts(self) -> None:
        now = self._clock()
        self._attempt_times = [
            then for then in self._attempt_times if is_recent(then, now, _ATTEMPT_WINDOW_SECONDS)
        ]
        if len(self._attempt_times) >= _MAX_SIGN_IN_ATTEMPTS:
            raise TooManyAttempts(
                f"the server still refuses access after {_MAX_SIGN_IN_ATTEMPTS} sign-ins",
                hint="try again later, or contact the server's operator",
            )


def _get_grant_scopes(grant: OAuthGrant | None) -> tuple[str, ...]:
    return () if grant is None else tuple(dict.fromkeys((*grant.requested, *grant.scopes)))


def _build_sign_in_error(
    grant: OAuthGrant | None, challenge: Challenge, scopes: tuple[str, ...], refresh_error: SignInEnded | None
) -> AuthError:
    if challenge.params.get("error") == "insufficient_scope":
        needed = " ".join(scopes_in_challenge(challenge)) or "(not named)"
        return ScopeNeeded(
            f"the request needs the scopes {needed}", scopes=scopes, hint="sign in again to grant them"
        )
    error: AuthError
    if grant is None:
        error = NeverSignedIn("the server requires a sign-in", hint="sign in to the server first")
    else:
        cause = "the sign-in has expired or was revoked" if refresh_error is None else refresh_error.cause
        error = SignInEnded(cause, hint="sign in again")
    error.challenge = challenge.header
    return error
