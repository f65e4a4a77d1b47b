"""Signing in at an identity provider: the code flow with PKCE, state and nonce, in two requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from toolyard.accounts.account_status import standing
from toolyard.accounts.attempt_limits import Limits
from toolyard.accounts.errors import NeverBegun, NotAllowed, ProviderFailed, SignInRefused
from toolyard.accounts.oidc.claims import identity_of
from toolyard.accounts.oidc.id_token import Expected, UnknownKey, checked_claims
from toolyard.accounts.oidc.provider import Provider, Tokens
from toolyard.accounts.oidc.provisioning import provider_account
from toolyard.accounts.random_secrets import digest, is_secret, new_secret
from toolyard.accounts.storage import PeopleStorage
from toolyard.auth.oauth_http import one_line
from toolyard.config.settings.table import Settings
from toolyard.net import Net
from toolyard.types.account import User

__all__ = ["Oidc"]

_PATIENCE = 900.0
"""Seconds that somebody has at the provider's pages."""
_SCOPE = "openid profile email"


class Oidc:
    """The identity provider of the settings. Nothing is kept of a sign-in that fails."""

    def __init__(
        self,
        settings: Settings,
        storage: PeopleStorage,
        net: Net,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise NotAllowed("no identity provider is set", hint="set oidc_issuer and oidc_client_id")
        self._settings = settings
        self._storage = storage
        self._clock = clock
        self._limits = Limits(storage, clock)
        self._provider = Provider(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret, net, clock
        )

    async def begin(self, next_path: str, *, browser: str, redirect_uri: str, address: str) -> str:
        """Where to send the person. They must come back with the same browser.

        Raises TooManySignIns or ProviderFailed.
        """
        await self._limits.begun(address)
        metadata = await self._provider.metadata()
        state, nonce, verifier = new_secret(), new_secret(), new_secret()
        kept = {
            "nonce": nonce,
            "verifier": verifier,
            "next": next_path,
            "browser": digest(browser),
            "redirect_uri": redirect_uri,
        }
        await self._storage.put_sign_in(digest(state), orjson.dumps(kept), self._clock())
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": _SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        base = metadata.authorization_endpoint.partition("#")[0]
        return f"{base}{'&' if '?' in base else '?'}{urlencode(query, quote_via=quote)}"

    async def finish(self, answer: Mapping[str, str], *, browser: str) -> tuple[User, str]:
        """Who came back, and where they wanted to go. Each state works once, and in its own browser.

        Raises SignInRefused, NotAllowed or ProviderFailed.
        """
        kept = await self._begun(answer.get("state", ""), browser)
        metadata = await self._provider.metadata()
        named = answer.get("iss")
        if named != metadata.issuer and (named is not None or metadata.iss_promised):
            raise SignInRefused(
                "the answer does not come from our identity provider",
                hint="do not sign in again before you know why",
            )
        if "error" in answer:
            raise _denied(answer)
        if not (code := answer.get("code")):
            raise SignInRefused("the identity provider sent back neither code nor error", hint="begin again")
        tokens = await self._provider.exchange(code, kept["verifier"], kept["redirect_uri"])
        claims = await self._claims(tokens, kept["nonce"])
        more = await self._provider.userinfo(tokens, claims["sub"])
        # What is signed wins.
        identity = identity_of(metadata.issuer, {**more, **claims})
        user = await provider_account(self._storage, identity, complete=True)
        return standing(user, self._settings) or user, kept["next"]

    async def _begun(self, state: str, browser: str) -> dict[str, str]:
        body = None
        if is_secret(state):
            body = await self._storage.take_sign_in(digest(state), self._clock() - _PATIENCE)
        if body is None:
            raise NeverBegun(
                "this sign-in is unknown, was finished before, or took too long", hint="begin again"
            )
        kept: dict[str, str] = orjson.loads(body)
        if not browser or not hmac.compare_digest(kept["browser"], digest(browser)):
            raise NeverBegun("this sign-in was begun in another browser", hint="begin again")
        return kept

    async def _claims(self, tokens: Tokens, nonce: str) -> dict[str, Any]:
        metadata = await self._provider.metadata()
        expected = Expected(
            metadata.issuer, self._provider.client_id, nonce, tokens.access_token, metadata.algorithms
        )
        for again in (False, True):
            keys = await self._provider.keys(again=again)
            try:
                return checked_claims(tokens.id_token, keys, expected, self._clock())
            except UnknownKey:
                continue
        raise ProviderFailed(
            "the identity provider signed with a key that is not in its key set", hint="try again later"
        )


def _denied(answer: Mapping[str, str]) -> SignInRefused:
    code, words = one_line(answer.get("error"), width=60), one_line(answer.get("error_description"))
    said = f"{code} ({words})" if words else code
    return SignInRefused(f"the identity provider refused: {said}", hint="begin again")
