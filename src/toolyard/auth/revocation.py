"""Giving tokens back (RFC 7009): who signs out leaves nothing behind that would still open a door."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from toolyard.auth.address_policy import Reach
from toolyard.auth.discovery import find_server
from toolyard.auth.errors import AuthError, AuthUnavailable
from toolyard.auth.oauth_http import Asker
from toolyard.auth.records import Grant
from toolyard.auth.sign_in_target import Target, up_to_date
from toolyard.auth.token_endpoint import FORM, signed_form
from toolyard.net import Net

__all__ = ["give_back", "revoke"]

log = logging.getLogger("toolyard.auth")

_SECONDS = 10.0
"""For all of it: whoever signs out does not wait for somebody else's server."""
_WHAT = "the revocation endpoint"


async def revoke(net: Net, grant: Grant, target: Target, *, clock: Callable[[], float] = time.time) -> bool:
    """Tell the authorization server that the tokens of a grant are no longer wanted, where it offers that.

    The grant must be out of use before. Whether it said yes; never raises, and ends within seconds. Tokens go
    to no authorization server but the one that gave them.
    """
    asker = Asker(net, Reach(grant.server_url, target.private_addresses))
    return await give_back(asker, grant, target, clock())


async def give_back(asker: Asker, grant: Grant, target: Target, now: float) -> bool:
    """``revoke``, for whoever talks to that authorization server already."""
    try:
        async with asyncio.timeout(_SECONDS):
            return await _revoke(asker, grant, target, now)
    except (AuthError, AuthUnavailable, TimeoutError) as error:
        log.info("the tokens from %s were not given back: %s", grant.issuer, error or "it took too long")
        return False


async def _revoke(asker: Asker, grant: Grant, target: Target, now: float) -> bool:
    named = (await find_server(asker, grant.issuer)).revocation_endpoint
    if named is None:
        return False
    endpoint = asker.reach.endpoint(named, _WHAT)
    client = up_to_date(grant.client, target)
    key = target.private_key if target.trusts(grant.issuer) else None
    done = True
    # The refresh token first: with it most authorization servers take back all that came of it.
    for kind, token in (("refresh_token", grant.refresh_token), ("access_token", grant.access_token)):
        if token:
            form = {"token": token, "token_type_hint": kind}
            body, headers = signed_form(client, form, now, key)
            answer = await asker.post(endpoint, _WHAT, body, FORM, headers)
            done = done and answer.status == 200
    return done
