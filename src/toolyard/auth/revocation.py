"""Token revocation (RFC 7009) on sign-out."""

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
"""Time limit of the whole revocation, so that a slow authorization server does not delay a sign-out."""
_ENDPOINT_LABEL = "the revocation endpoint"


async def revoke_grant(
    net: OutboundHttp, grant: OAuthGrant, target: SignInTarget, *, clock: Callable[[], float] = time.time
) -> bool:
    """Revoke the tokens of a grant if the authorization server supports it, and return whether it succeeded.

    The grant must be out of use already. Never raises, and ends within ten seconds. Tokens are sent only to
    the authorization server that issued them.
    """
    http_client = OAuthHttpClient(net, AddressPolicy(grant.server_url, target.private_addresses))
    return await revoke_tokens(http_client, grant, target, clock())


async def revoke_tokens(
    http_client: OAuthHttpClient, grant: OAuthGrant, target: SignInTarget, now: float
) -> bool:
    """Revoke the tokens of a grant with an existing HTTP client; see ``revoke_grant``."""
    try:
        async with asyncio.timeout(_REVOCATION_TIMEOUT_SECONDS):
            return await _send_revocations(http_client, grant, target, now)
    except (AuthError, AuthUnavailable, TimeoutError) as error:
        log.info("tokens issued by %s were not revoked: %s", grant.issuer, error or "timed out")
        return False


async def _send_revocations(
    http_client: OAuthHttpClient, grant: OAuthGrant, target: SignInTarget, now: float
) -> bool:
    address = (await fetch_server_metadata(http_client, grant.issuer)).revocation_endpoint
    if address is None:
        return False
    endpoint = http_client.address_policy.check_endpoint(address, _ENDPOINT_LABEL)
    client = with_current_secret(grant.client, target)
    key = target.private_key if target.trusts(grant.issuer) else None
    all_revoked = True
    # The refresh token first: most authorization servers then revoke the access tokens issued with it.
    for kind, token in (("refresh_token", grant.refresh_token), ("access_token", grant.access_token)):
        if token:
            form = {"token": token, "token_type_hint": kind}
            body, headers = build_authenticated_form(client, form, now, key)
            response = await http_client.post(endpoint, _ENDPOINT_LABEL, body, FORM_CONTENT_TYPE, headers)
            all_revoked = all_revoked and response.status == 200
    return all_revoked
