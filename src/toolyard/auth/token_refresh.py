"""The tokens of one key, kept fresh: one refresh at a time, among tasks and among replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from yarl import URL

from toolyard.auth.errors import AuthUnavailable, ClientForgotten, SignInEnded, TokenRefused
from toolyard.auth.oauth_http import OAuthHttpClient
from toolyard.auth.records import OAuthGrant, new_serial
from toolyard.auth.revocation import revoke_tokens
from toolyard.auth.sign_in_target import SignInTarget, with_current_secret
from toolyard.auth.single_flight import SingleFlightTask
from toolyard.auth.storage import AuthStorage
from toolyard.auth.token_endpoint import TokenResponse, request_tokens
from toolyard.net import is_same_origin

__all__ = ["GrantRefresher", "can_refresh", "refresh_grant"]

_MISSING_GRANT_RECHECK_SECONDS = 10.0
"""Seconds for which nobody looks again whether there is a sign-in by now, unless the server refuses."""
_GRANT_CACHE_SECONDS = 60.0
"""Seconds for which a sign-in that is held is not looked up again: somebody may have signed out since."""
_RETRY_DELAY_SECONDS = 30.0
"""Seconds without another try before a request, after a refresh could not be had."""
_CLOSE_TIMEOUT_SECONDS = 5.0
_PERMANENT_ERROR_CODES = ("invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type")


class GrantRefresher:
    """Holds the grant of one key for one process."""

    def __init__(
        self,
        key: str,
        target: SignInTarget,
        storage: AuthStorage,
        http_client: OAuthHttpClient,
        clock: Callable[[], float],
    ) -> None:
        self._key = key
        self._target = target
        self._storage = storage
        self._http_client = http_client
        self._clock = clock
        self._cached_grant: OAuthGrant | None = None
        self._last_read_at = -_GRANT_CACHE_SECONDS
        self._refresh_flight: SingleFlightTask[OAuthGrant | None] = SingleFlightTask()
        self._retry_at = 0.0
        self.refresh_error: SignInEnded | None = None
        """Why the last refresh was refused."""

    @property
    def access_token(self) -> str | None:
        """The access token that is held, whether it can be sent or not."""
        return None if self._cached_grant is None else self._cached_grant.access_token

    async def get_current_grant(self) -> OAuthGrant | None:
        """The grant whose access token is to be sent, refreshed where it was about to run out; None where
        there is none. One that has run out is sent all the same where no other can be had: how the server
        refuses it tells what to do, and one that also serves strangers must not take us for one.

        Raises TokenRefused where what the operator entered is wrong.
        """
        now = self._clock()
        if (
            not 0
            <= now - self._last_read_at
            < (_MISSING_GRANT_RECHECK_SECONDS if self._cached_grant is None else _GRANT_CACHE_SECONDS)
        ):
            # Without the storage we go on with what we have. A server that wants more refuses, and then it
            # is asked again, and its trouble told.
            with contextlib.suppress(AuthUnavailable):
                await self.reload_grant()
        grant = self._cached_grant
        if grant is None or grant.is_fresh(now):
            return grant
        if not can_refresh(grant, self._target):
            if not grant.is_valid(now) and not 0 <= now - self._last_read_at < _MISSING_GRANT_RECHECK_SECONDS:
                grant = await self.reload_grant()
        elif not 0 < self._retry_at - now <= _RETRY_DELAY_SECONDS:
            grant = await self._try_refresh(grant, now)
        return grant

    async def reload_grant(self) -> OAuthGrant | None:
        """What is stored by now, by whomever. Tokens of another origin are dropped: the URL was changed.

        Raises AuthUnavailable where the storage cannot be read.
        """
        self._last_read_at = self._clock()
        grant = await self._storage.grant(self._key)
        if grant is not None and not is_same_origin(URL(grant.server_url), URL(self._target.url)):
            await self._storage.drop_grant(self._key)
            grant = None
        self._cached_grant = grant
        return grant

    async def refresh(self, refused_grant: OAuthGrant) -> OAuthGrant | None:
        """Another grant than this one, which the server refused: stored by somebody else, or refreshed now.

        Raises what ``renew`` raises.
        """
        try:
            self._cached_grant = await self._refresh_flight.run(
                lambda: refresh_grant(
                    self._key, self._target, self._storage, self._http_client, refused_grant, self._clock
                )
            )
        except SignInEnded as error:
            self.refresh_error = error
            raise
        self.refresh_error = None
        return self._cached_grant

    async def close(self) -> None:
        """Let a refresh that is under way finish, for a moment: its token may be the only one that works."""
        await self._refresh_flight.close(_CLOSE_TIMEOUT_SECONDS)

    async def _try_refresh(self, grant: OAuthGrant, now: float) -> OAuthGrant | None:
        try:
            return await self.refresh(grant)
        except AuthUnavailable:
            # Even if it has run out: the server may have moved to another authorization server by now.
            self._retry_at = now + _RETRY_DELAY_SECONDS
            return grant
        except SignInEnded:
            return await self.reload_grant()


def can_refresh(grant: OAuthGrant, target: SignInTarget) -> bool:
    """Whether new tokens can be had without anybody signing in."""
    return grant.refresh_token is not None or target.oauth.grant == "client_credentials"


async def refresh_grant(
    key: str,
    target: SignInTarget,
    storage: AuthStorage,
    http_client: OAuthHttpClient,
    stale_grant: OAuthGrant,
    clock: Callable[[], float],
) -> OAuthGrant | None:
    """Replace a grant by a newer one, alone among all who share the storage.

    Raises SignInEnded where the authorization server refuses (if for good, the refresh token is dropped),
    TokenRefused where it does not accept what the operator entered, and AuthUnavailable.
    """
    async with storage.refresh_lock(key):
        kept = await storage.grant(key)
        if kept is None or kept.serial != stale_grant.serial:
            return kept
        if not can_refresh(kept, target):
            raise SignInEnded("the sign-in has run out", hint="sign in again")
        try:
            fresh = _apply_tokens(kept, await _request_new_tokens(http_client, target, kept, clock()))
        except TokenRefused as error:
            if error.code == "invalid_client" and not isinstance(error, ClientForgotten):
                # What the operator entered is wrong; once that is mended, the refresh token works again.
                raise
            if isinstance(error, ClientForgotten):
                await storage.drop_client(kept.client)
            if error.code in _PERMANENT_ERROR_CODES:
                await storage.swap_grant(key, kept.serial, _without_refresh_token(kept))
            raise SignInEnded(
                f"the sign-in cannot be refreshed: {error.cause}", hint="sign in again"
            ) from None
        if await storage.swap_grant(key, kept.serial, fresh):
            return fresh
        # Somebody signed in or out while we asked.
        kept = await storage.grant(key)
    if kept is None:
        # What was given back then is not what we got.
        await revoke_tokens(http_client, fresh, target, clock())
    return kept


async def _request_new_tokens(
    http_client: OAuthHttpClient, target: SignInTarget, grant: OAuthGrant, now: float
) -> TokenResponse:
    if grant.client.origin == "entered" and not target.trusts(grant.issuer):
        raise SignInEnded(
            f"the sign-in is of {grant.issuer}, and the entry names another issuer now", hint="sign in again"
        )
    client = with_current_secret(grant.client, target)
    form = {"grant_type": "client_credentials"}
    if target.oauth.grant == "client_credentials":
        if grant.requested:
            form["scope"] = " ".join(grant.requested)
    else:
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token or ""}
    if grant.resource is not None:
        form["resource"] = grant.resource
    return await request_tokens(
        http_client, grant.token_endpoint, client, form, now, private_key=target.private_key
    )


def _apply_tokens(grant: OAuthGrant, tokens: TokenResponse) -> OAuthGrant:
    return replace(
        grant,
        scopes=grant.scopes if tokens.scopes is None else tokens.scopes,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or grant.refresh_token,
        issued_at=tokens.issued_at,
        expires_at=tokens.expires_at,
        serial=new_serial(),
    )


def _without_refresh_token(grant: OAuthGrant) -> OAuthGrant:
    """Without the refresh token; the access token lives until it runs out."""
    until = grant.issued_at if grant.expires_at is None else grant.expires_at
    return replace(grant, refresh_token=None, expires_at=until, serial=new_serial())
