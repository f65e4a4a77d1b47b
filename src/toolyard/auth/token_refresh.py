"""Token refresh for one storage key: at most one refresh at a time among all tasks and replicas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime

from yarl import URL

from toolyard.auth.errors import AuthUnavailable, ClientForgotten, SignInEnded, TokenRefused
from toolyard.auth.oauth_http import OAuthHttpClient
from toolyard.auth.sign_in_target import SignInTarget, with_current_secret
from toolyard.auth.storage import AuthStorage, OAuthGrant, new_serial
from toolyard.auth.token_endpoint import TokenResponse, request_tokens, revoke_tokens
from toolyard.concurrency.tasks import SingleFlight
from toolyard.net import is_same_origin

__all__ = ["GrantRefresher", "can_refresh", "refresh_grant", "translate_foreign_cancellation"]

_MISSING_GRANT_RECHECK_SECONDS = 10.0
"""Interval between storage lookups while no grant exists; a challenge triggers one at any time."""
_GRANT_CACHE_SECONDS = 60.0
"""Time for which a cached grant is used before the storage is read again, to notice a sign-out."""
_RETRY_DELAY_SECONDS = 30.0
"""Delay after a failed refresh before a request attempts it again."""
_CLOSE_TIMEOUT_SECONDS = 5.0
_PERMANENT_ERROR_CODES = ("invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type")


class GrantRefresher:
    """Caches and refreshes the grant of one key in one process."""

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
        self._refresh_flight: SingleFlight[None, OAuthGrant | None] = SingleFlight(
            cancel_when_abandoned=False
        )
        self._retry_at = 0.0
        self.refresh_error: SignInEnded | None = None
        """The error of the last refresh, if the authorization server refused it."""

    @property
    def access_token(self) -> str | None:
        """The cached access token, valid or not."""
        return None if self._cached_grant is None else self._cached_grant.access_token

    async def get_current_grant(self) -> OAuthGrant | None:
        """Return the grant for the next request, refreshed if it is about to expire, or None.

        An expired grant is returned if it cannot be refreshed: the server's challenge then says what to do,
        and a server that also allows anonymous access must not treat us as anonymous.

        Raises TokenRefused if the configured client credentials are wrong.
        """
        now = self._clock()
        # Comparisons with 0: after the clock was set back, the cache counts as outdated.
        if (
            not 0
            <= now - self._last_read_at
            < (_MISSING_GRANT_RECHECK_SECONDS if self._cached_grant is None else _GRANT_CACHE_SECONDS)
        ):
            # If the storage is unavailable, continue with the cached grant. If the server refuses that, the
            # storage is read again and its error is reported.
            with contextlib.suppress(AuthUnavailable):
                await self.reload_grant()
        grant = self._cached_grant
        if grant is None or grant.is_fresh(now):
            return grant
        if not can_refresh(grant, self._target):
            if not grant.is_valid(now) and now - self._last_read_at >= _MISSING_GRANT_RECHECK_SECONDS:
                grant = await self.reload_grant()
        elif not 0 < self._retry_at - now <= _RETRY_DELAY_SECONDS:
            grant = await self._try_refresh(grant, now)
        return grant

    async def reload_grant(self) -> OAuthGrant | None:
        """Read the grant from the storage and cache it.

        A grant for another origin is deleted: the server's URL was changed. Raises AuthUnavailable if the
        storage cannot be read.
        """
        self._last_read_at = self._clock()
        grant = await self._storage.get_grant(self._key)
        if grant is not None and not is_same_origin(URL(grant.server_url), URL(self._target.url)):
            await self._storage.drop_grant(self._key)
            grant = None
        self._cached_grant = grant
        return grant

    async def refresh(self, refused_grant: OAuthGrant) -> OAuthGrant | None:
        """Return a newer grant than the refused one: from the storage, or refreshed now.

        Raises the errors of ``refresh_grant``.
        """
        try:
            # The shared refresh is cancelled by ``close`` only: to a caller that goes on, that is a failure.
            with translate_foreign_cancellation():
                self._cached_grant = await self._refresh_flight.run(
                    None,
                    lambda: refresh_grant(
                        self._key, self._target, self._storage, self._http_client, refused_grant, self._clock
                    ),
                )
        except SignInEnded as error:
            self.refresh_error = error
            raise
        self.refresh_error = None
        return self._cached_grant

    async def close(self) -> None:
        """Let a running refresh complete for up to five seconds.

        If the refresh token was rotated, the new one is the only one that works, and it must be stored.
        """
        await self._refresh_flight.close(_CLOSE_TIMEOUT_SECONDS)

    async def _try_refresh(self, grant: OAuthGrant, now: float) -> OAuthGrant | None:
        try:
            return await self.refresh(grant)
        except AuthUnavailable:
            # Return the grant even if it has expired: the server may use another authorization server by
            # now, which its challenge will show.
            self._retry_at = now + _RETRY_DELAY_SECONDS
            return grant
        except SignInEnded:
            return await self.reload_grant()


@contextlib.contextmanager
def translate_foreign_cancellation() -> Generator[None]:
    """Raise AuthUnavailable in place of CancelledError if only the awaited task was cancelled."""
    try:
        yield
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is not None and caller.cancelling():
            raise
        raise AuthUnavailable(
            "obtaining new credentials was cancelled before it completed", hint="try again"
        ) from None


def can_refresh(grant: OAuthGrant, target: SignInTarget) -> bool:
    """Return whether new tokens can be obtained without user interaction."""
    return grant.refresh_token is not None or target.oauth.grant == "client_credentials"


async def refresh_grant(
    key: str,
    target: SignInTarget,
    storage: AuthStorage,
    http_client: OAuthHttpClient,
    stale_grant: OAuthGrant,
    clock: Callable[[], float],
) -> OAuthGrant | None:
    """Refresh a grant under the storage's lock; return the new grant, or the one stored meanwhile.

    Raises SignInEnded if the authorization server refuses (after a permanent error the refresh token is
    deleted), TokenRefused if it does not accept the configured client credentials, and AuthUnavailable.
    """
    # Refresh tokens are often single-use: two concurrent refreshes would make the server revoke both. The
    # lock serialises them among replicas, and the serial shows whether another one has refreshed already.
    async with storage.refresh_lock(key):
        stored = await storage.get_grant(key)
        if stored is None or stored.serial != stale_grant.serial:
            return stored
        if not can_refresh(stored, target):
            raise SignInEnded("the sign-in has expired", hint="sign in again")
        # Stored before the request: if this process is killed before it has stored the answer, the next one
        # knows why the refresh token no longer works.
        if stored.refresh_token is not None and not await storage.swap_grant(
            key, stored.serial, replace(stored, refresh_began_at=clock())
        ):
            return await storage.get_grant(key)
        try:
            fresh = _apply_tokens(stored, await _request_new_tokens(http_client, target, stored, clock()))
        except TokenRefused as error:
            if error.code == "invalid_client" and not isinstance(error, ClientForgotten):
                # The configured credentials are wrong. Once corrected, the refresh token works again.
                raise
            if isinstance(error, ClientForgotten):
                await storage.drop_client(stored.client)
            # The refresh token will never work again, so it is removed, or each request would try it. Other
            # codes may be temporary.
            if error.code in _PERMANENT_ERROR_CODES:
                await storage.swap_grant(key, stored.serial, _without_refresh_token(stored))
            raise SignInEnded(
                f"the sign-in cannot be refreshed: {error.cause}{_describe_lost_answer(stored, error)}",
                hint="sign in again",
            ) from None
        # A swap and not a plain write: signing in or out does not take the refresh lock, and must win.
        if await storage.swap_grant(key, stored.serial, fresh):
            return fresh
        # The user signed in or out during the refresh.
        stored = await storage.get_grant(key)
    if stored is None:
        # The sign-out revoked the old tokens, but not the ones just received.
        await revoke_tokens(http_client, fresh, target, clock())
    return stored


async def _request_new_tokens(
    http_client: OAuthHttpClient, target: SignInTarget, grant: OAuthGrant, now: float
) -> TokenResponse:
    # Before any request: the secret that an operator entered must not go to an issuer that the entry no
    # longer names (docs/decisions/0081-secrets-go-to-confirmed-issuers.md).
    if grant.client.origin == "entered" and not target.trusts(grant.issuer):
        raise SignInEnded(
            f"the sign-in was issued by {grant.issuer}, but the server's entry now names another issuer",
            hint="sign in again",
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
        # A server that does not rotate refresh tokens omits it (RFC 6749, section 6).
        refresh_token=tokens.refresh_token or grant.refresh_token,
        issued_at=tokens.issued_at,
        expires_at=tokens.expires_at,
        refresh_began_at=None,
        serial=new_serial(),
    )


def _describe_lost_answer(grant: OAuthGrant, error: TokenRefused) -> str:
    """Return the likely reason why a refresh token is refused whose last use got no answer, or nothing."""
    if grant.refresh_began_at is None or error.code != "invalid_grant":
        return ""
    began_at = datetime.fromtimestamp(grant.refresh_began_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"; the last refresh, at {began_at}, got no response, because Toolyard was killed or lost the "
        "connection, and the new tokens were lost with it"
    )


def _without_refresh_token(grant: OAuthGrant) -> OAuthGrant:
    """Return the grant without its refresh token; the access token stays usable until it expires.

    An access token without a known expiry counts as expired.
    """
    expires_at = grant.issued_at if grant.expires_at is None else grant.expires_at
    return replace(
        grant, refresh_token=None, expires_at=expires_at, refresh_began_at=None, serial=new_serial()
    )
