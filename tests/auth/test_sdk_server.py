"""A whole yard against an MCP server of the official SDK that requires a sign-in."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
from yarl import URL

from toolyard import Toolyard
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import MemoryAuthStorage
from toolyard.net import OutboundHttp

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

PROGRAM = Path(__file__).parent.parent / "oauth/sdk_server.py"


async def person(url: str) -> AuthorizationResponse:
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(url, encoded=True), allow_redirects=False) as response,
    ):
        return AuthorizationResponse.parse(response.headers["Location"])


@pytest.mark.slow
@pytest.mark.parametrize("redirect", ["http://127.0.0.1:3999/callback", "https://toolyard.example/cb"])
@pytest.mark.parametrize("protocol", ["modern", "legacy"])
async def test_a_yard_signs_in_calls_and_refreshes(
    start_program: ProgramStarter, no_proxies: None, redirect: str, protocol: str
) -> None:
    url = start_program(sys.executable, PROGRAM, "{port}").url + "/mcp"
    elapsed_seconds, net, storage = [0.0], OutboundHttp(), MemoryAuthStorage()
    provider = OAuthProvider(
        SignInTarget(url),
        net=net,
        storage=storage,
        client_identity=ClientIdentity(redirect),
        authorize=person,
        clock=lambda: time.time() + elapsed_seconds[0],
    )
    entry = {"type": "http", "url": url, "authProviderId": "oauth", "protocol": protocol}
    settings = {"write_tools": "allow"}
    async with Toolyard.open(
        {"mcpServers": {"s": entry}}, auth_providers={"oauth": provider}, settings=settings
    ) as yard:
        assert [tool.name for tool in await yard.tools()] == ["s_hello"]
        assert (await yard.call("s_hello", {"name": "ann"})).text == "hello ann"
        before = await storage.get_grant(url)
        elapsed_seconds[0] = 290.0
        assert (await yard.call("s_hello", {"name": "bob"})).text == "hello bob"
        after = await storage.get_grant(url)
    assert before is not None
    assert after is not None
    assert before.refresh_token != after.refresh_token
    await provider.close()
    await net.close()
