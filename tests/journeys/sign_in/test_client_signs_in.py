"""A standard MCP client signs in by itself: it finds the identity provider, registers, and comes back."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from tests.conftest import ListeningProgram
from tests.ports import free_port
from yarl import URL

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

ROOT = Path(__file__).parents[3]
MODULES = ROOT / ".envs/node/node_modules"
DEMO = ROOT / "src/toolyard/cli/demo_server.py"
BACK = "http://127.0.0.1:3999/callback"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class ClientTokenStorage:
    """What the client keeps."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@dataclass
class ConsentingUser:
    """Goes where the client sends them, fills in whatever form comes, agrees, and comes back."""

    name: str
    sent_to: list[str] = field(default_factory=list[str])
    came_back: dict[str, str] = field(default_factory=dict[str, str])

    async def go(self, url: str) -> None:
        self.sent_to.append(url)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            method, at, data = "GET", URL(url, encoded=True), dict[str, str]()
            for _ in range(20):
                async with session.request(method, at, data=data or None, allow_redirects=False) as answer:
                    page = await answer.text()
                    if answer.status in (302, 303):
                        method, at, data = "GET", at.join(URL(answer.headers["Location"], encoded=True)), {}
                        if at.path == "/callback":
                            self.came_back = dict(at.query)
                            return
                        continue
                form = re.search(r'<form[^>]*action="([^"]+)"', page)
                assert form is not None, page
                data = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
                data.update({"login": self.name, "password": "x"} if 'name="login"' in page else {})
                method, at = "POST", at.join(URL(html.unescape(form[1])))
        raise AssertionError("the pages never end")

    async def back(self) -> AuthorizationCodeResult:
        redirects = self.came_back
        return AuthorizationCodeResult(
            code=redirects["code"], state=redirects["state"], iss=redirects.get("iss")
        )


@pytest.fixture
def site_and_token(start_program: ProgramStarter, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a real ``toolyard serve`` and of its identity provider."""
    if not (MODULES / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed; make unit installs it")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    issuer = start_program("node", ROOT / "tests/oauth/oidc.mjs", "{port}", MODULES, f"{url}/mcp").url
    entry = {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": entry}}))
    words = [sys.executable, "-m", "toolyard", "--data-dir", str(tmp_path), "serve", "--port", str(port)]
    people = {
        "TOOLYARD_PEOPLE_MODE": "oidc",
        "TOOLYARD_OIDC_ISSUER": issuer,
        "TOOLYARD_OIDC_CLIENT_ID": "toolyard",
    }
    toolyard = ListeningProgram(words, port, people)
    toolyard.start()
    yield url, issuer
    toolyard.stop()


@asynccontextmanager
async def client(url: str, person: ConsentingUser, memory: ClientTokenStorage) -> AsyncIterator[Client]:
    metadata = OAuthClientMetadata(
        client_name="A client",
        redirect_uris=[BACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(url, metadata, memory, person.go, person.back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/demo"])
async def test_the_official_client_finds_its_way_and_calls(
    site_and_token: tuple[str, str], path: str
) -> None:
    url, issuer = site_and_token
    ann, memory = ConsentingUser("ann"), ClientTokenStorage()
    async with client(url + path, ann, memory) as sdk_client:
        names = {tool.name for tool in (await sdk_client.list_tools()).tools}
        name = "demo_weekday" if path == "/mcp" else "weekday"
        assert name in names
        result = await sdk_client.call_tool(name, {"date": "2026-07-28"})
        assert result.content[0].text == "2026-07-28 is a Tuesday."  # type: ignore[union-attr]
    (redirect_url,) = ann.sent_to
    assert redirect_url.startswith(f"{issuer}/auth?")
    assert URL(redirect_url).query["resource"] == url + path
    # The next time it needs nobody.
    async with client(url + path, ann, memory) as sdk_client:
        assert (await sdk_client.list_tools()).tools
    assert len(ann.sent_to) == 1
