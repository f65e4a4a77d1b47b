"""Giving tokens back (RFC 7009): who signs out leaves nothing behind that would still open a door."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from toolyard.auth.address_policy import AddressPolicy
from toolyard.auth.discovery import fetch_server_metadata
from toolyard.auth.errors import AuthError, AuthUnavailable
from toolyard.auth.oauth_http import OAuthHttpClient
from toolyard.auth.records import OAuthGrant
from toolyard.auth.sign_in_target import SignInTarget, with_current_secret
from toolyard.auth.token_endpoint import FORM_CONTENT_TYPE, build_authenticated_form
from toolyard.net import OutboundHttp

__all__ = ["revoke_grant", "revoke_tokens"]

log = logging.getLogger("toolyard.auth")

_REVOCATION_TIMEOUT_SECONDS = 10.0
"""For all of it: whoever signs out does not wait for somebody else's server."""
_ENDPOINT_LABEL = "the revocation endpoint"


async def revoke_grant(
    net: OutboundHttp, grant: OAuthGrant, target: SignInTarget, *, clock: Callable[[], float] = time.time
) -> bool:
    """Tell the authorization server that the tokens of a grant are no longer wanted, where it offers that.

    The grant must be out of use before. Whether it said yes; never raises, and ends within seconds. Tokens go
    to no authorization server but the one that gave them.
    """
    asker = OAuthHttpClient(net, AddressPolicy(grant.server_url, target.private_addresses))
    return await revoke_tokens(asker, grant, target, clock())


async def revoke_tokens(
    http_client: OAuthHttpClient, grant: OAuthGrant, target: SignInTarget, now: float
) -> bool:
    """``revoke``, for whoever talks to that authorization server already."""
    try:
        async with asyncio.timeout(_REVOCATION_TIMEOUT_SECONDS):
            return await _send_revocations(http_client, grant, target, now)
    except (AuthError, AuthUnavailable, TimeoutError) as error:
        log.info("the tokens from %s were not given back: %s", grant.issuer, error or "it took too long")
        return False


async def _send_revocations(
    http_client: OAuthHttpClient, grant: OAuthGrant, target: SignInTarget, now: float
) -> bool:
    named = (await fetch_server_metadata(http_client, grant.issuer)).revocation_endpoint
    if named is None:
        return False
    endpoint = http_client.address_policy.check_endpoint(named, _ENDPOINT_LABEL)
    client = with_current_secret(grant.client, target)
    key = target.private_key if target.trusts(grant.issuer) else None
    done = True
    # The refresh token first: with it most authorization servers take back all that came of it.
    for kind, token in (("refresh_token", grant.refresh_token), ("access_token", grant.access_token)):
        if token:
            form = {"token": token, "token_type_hint": kind}
            body, headers = build_authenticated_form(client, form, now, key)
            answer = await http_client.post(endpoint, _ENDPOINT_LABEL, body, FORM_CONTENT_TYPE, headers)
            done = done and answer.status == 200
    return done
