"""People who come with an access token of the identity provider, as MCP clients that sign in by themselves
do."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import NotAllowed, NotSignedIn, ProviderFailed, SignInRefused
from toolyard.accounts.oidc.access_token import verify_access_token
from toolyard.accounts.oidc.claims import parse_identity
from toolyard.accounts.oidc.id_token import UnknownSigningKey
from toolyard.accounts.oidc.provider import OidcProvider
from toolyard.config.settings.table import Settings
from toolyard.net import OutboundHttp

__all__ = ["BearerAuthenticator"]


class BearerAuthenticator:
    """The identity provider of the settings, as the authorization server of the gateway. Of a token nothing
    is kept."""

    def __init__(
        self, settings: Settings, net: OutboundHttp, *, clock: Callable[[], float] = time.time
    ) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise NotAllowed("no identity provider is set", hint="set oidc_issuer and oidc_client_id")
        self._issuer = settings.oidc_issuer
        self._clock = clock
        self._provider = OidcProvider(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret, net, clock
        )

    async def issuer(self) -> str:
        """The provider's own name for itself; the one of the settings while it cannot be asked."""
        try:
            return (await self._provider.get_metadata()).issuer
        except ProviderFailed:
            return self._issuer

    async def authenticate(self, token: str, audiences: Collection[str]) -> Identity:
        """Who it is of. Raises NotSignedIn where it is not accepted, ProviderFailed where nobody can tell."""
        issuer = (await self._provider.get_metadata()).issuer
        for again in (False, True):
            keys = await self._provider.get_keys(refresh=again)
            try:
                claims = verify_access_token(
                    token, keys, issuer=issuer, audiences=audiences, now=self._clock()
                )
            except UnknownSigningKey:
                continue
            try:
                return parse_identity(issuer, claims)
            except SignInRefused as refused:
                raise NotSignedIn(refused.cause, hint=refused.hint) from None
        # Whoever made it up may name any key, so this is not the provider's fault.
        raise NotSignedIn("this access token is not accepted: its key is unknown", hint="sign in again")
