"""The tokens of one key, kept fresh: one refresh at a time, among tasks and among replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from yarl import URL

from toolyard.auth.errors import AuthUnavailable, ClientForgotten, SignInEnded, TokenRefused
from toolyard.auth.oauth_http import Asker
from toolyard.auth.records import Grant, new_serial
from toolyard.auth.revocation import give_back
from toolyard.auth.sign_in_target import Target, up_to_date
from toolyard.auth.single_flight import Flight
from toolyard.auth.storage import AuthStorage
from toolyard.auth.token_endpoint import Tokens, request_tokens
from toolyard.net import same_origin

__all__ = ["Keeper", "can_renew", "renew"]

_ABSENT = 10.0
"""Seconds for which nobody looks again whether there is a sign-in by now, unless the server refuses."""
_HELD = 60.0
"""Seconds for which a sign-in that is held is not looked up again: somebody may have signed out since."""
_PAUSE = 30.0
"""Seconds without another try before a request, after a refresh could not be had."""
_FINISH = 5.0
_FINAL = ("invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type")


class Keeper:
    """Holds the grant of one key for one process."""

    def __init__(
        self, key: str, target: Target, storage: AuthStorage, asker: Asker, clock: Callable[[], float]
    ) -> None:
        self._key = key
        self._target = target
        self._storage = storage
        self._asker = asker
        self._clock = clock
        self._held: Grant | None = None
        self._looked = -_HELD
        self._flight: Flight[Grant | None] = Flight()
        self._not_before = 0.0
        self.refusal: SignInEnded | None = None
        """Why the last refresh was refused."""

    @property
    def token(self) -> str | None:
        """The access token that is held, whether it can be sent or not."""
        return None if self._held is None else self._held.access_token

    async def current(self) -> Grant | None:
        """The grant whose access token is to be sent, refreshed where it was about to run out; None where
        there is none. One that has run out is sent all the same where no other can be had: how the server
        refuses it tells what to do, and one that also serves strangers must not take us for one.

        Raises TokenRefused where what the operator entered is wrong.
        """
        now = self._clock()
        if not 0 <= now - self._looked < (_ABSENT if self._held is None else _HELD):
            # Without the storage we go on with what we have. A server that wants more refuses, and then it
            # is asked again, and its trouble told.
            with contextlib.suppress(AuthUnavailable):
                await self.reread()
        grant = self._held
        if grant is None or grant.fresh(now):
            return grant
        if not can_renew(grant, self._target):
            if not grant.valid(now) and not 0 <= now - self._looked < _ABSENT:
                grant = await self.reread()
        elif not 0 < self._not_before - now <= _PAUSE:
            grant = await self._renewed(grant, now)
        return grant

    async def reread(self) -> Grant | None:
        """What is stored by now, by whomever. Tokens of another origin are dropped: the URL was changed.

        Raises AuthUnavailable where the storage cannot be read.
        """
        self._looked = self._clock()
        grant = await self._storage.grant(self._key)
        if grant is not None and not same_origin(URL(grant.server_url), URL(self._target.url)):
            await self._storage.drop_grant(self._key)
            grant = None
        self._held = grant
        return grant

    async def renew(self, refused: Grant) -> Grant | None:
        """Another grant than this one, which the server refused: stored by somebody else, or refreshed now.

        Raises what ``renew`` raises.
        """
        try:
            self._held = await self._flight.join(
                lambda: renew(self._key, self._target, self._storage, self._asker, refused, self._clock)
            )
        except SignInEnded as error:
            self.refusal = error
            raise
        self.refusal = None
        return self._held

    async def close(self) -> None:
        """Let a refresh that is under way finish, for a moment: its token may be the only one that works."""
        await self._flight.close(_FINISH)

    async def _renewed(self, grant: Grant, now: float) -> Grant | None:
        try:
            return await self.renew(grant)
        except AuthUnavailable:
            # Even if it has run out: the server may have moved to another authorization server by now.
            self._not_before = now + _PAUSE
            return grant
        except SignInEnded:
            return await self.reread()


def can_renew(grant: Grant, target: Target) -> bool:
    """Whether new tokens can be had without anybody signing in."""
    return grant.refresh_token is not None or target.oauth.grant == "client_credentials"


async def renew(
    key: str,
    target: Target,
    storage: AuthStorage,
    asker: Asker,
    seen: Grant,
    clock: Callable[[], float],
) -> Grant | None:
    """Replace a grant by a newer one, alone among all who share the storage.

    Raises SignInEnded where the authorization server refuses (if for good, the refresh token is dropped),
    TokenRefused where it does not accept what the operator entered, and AuthUnavailable.
    """
    async with storage.refreshing(key):
        kept = await storage.grant(key)
        if kept is None or kept.serial != seen.serial:
            return kept
        if not can_renew(kept, target):
            raise SignInEnded("the sign-in has run out", hint="sign in again")
        try:
            fresh = _merged(kept, await _ask(asker, target, kept, clock()))
        except TokenRefused as error:
            if error.code == "invalid_client" and not isinstance(error, ClientForgotten):
                # What the operator entered is wrong; once that is mended, the refresh token works again.
                raise
            if isinstance(error, ClientForgotten):
                await storage.drop_client(kept.client)
            if error.code in _FINAL:
                await storage.swap_grant(key, kept.serial, _ended(kept))
            raise SignInEnded(
                f"the sign-in cannot be refreshed: {error.cause}", hint="sign in again"
            ) from None
        if await storage.swap_grant(key, kept.serial, fresh):
            return fresh
        # Somebody signed in or out while we asked.
        kept = await storage.grant(key)
    if kept is None:
        # What was given back then is not what we got.
        await give_back(asker, fresh, target, clock())
    return kept


async def _ask(asker: Asker, target: Target, kept: Grant, now: float) -> Tokens:
    if kept.client.origin == "entered" and not target.trusts(kept.issuer):
        raise SignInEnded(
            f"the sign-in is of {kept.issuer}, and the entry names another issuer now", hint="sign in again"
        )
    client = up_to_date(kept.client, target)
    form = {"grant_type": "client_credentials"}
    if target.oauth.grant == "client_credentials":
        if kept.requested:
            form["scope"] = " ".join(kept.requested)
    else:
        form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token or ""}
    if kept.resource is not None:
        form["resource"] = kept.resource
    return await request_tokens(asker, kept.token_endpoint, client, form, now, private_key=target.private_key)


def _merged(kept: Grant, tokens: Tokens) -> Grant:
    return replace(
        kept,
        scopes=kept.scopes if tokens.scopes is None else tokens.scopes,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or kept.refresh_token,
        issued_at=tokens.issued_at,
        expires_at=tokens.expires_at,
        serial=new_serial(),
    )


def _ended(kept: Grant) -> Grant:
    """Without the refresh token; the access token lives until it runs out."""
    until = kept.issued_at if kept.expires_at is None else kept.expires_at
    return replace(kept, refresh_token=None, expires_at=until, serial=new_serial())
