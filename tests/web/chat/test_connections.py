"""What a chat finds out about an instance, over the connection that is its own, its page says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from toolyard.errors import SignInNeeded
from toolyard.registry import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.types.call import Caller, ToolCall
from toolyard.types.registry import InstanceState

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter
    from tests.web.conftest import Opening

ROOT = Path(__file__).parents[3]
WHOAMI = "mcp_there__whoami"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.mark.parametrize("kind", ["header", "oauth"])
async def test_a_sign_in_that_ends_in_a_chat_is_seen_on_the_page(
    open_site: Opening, start_program: ProgramStarter, kind: str
) -> None:
    program = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    local = await open_site({}, people_mode="password")
    ann, services = await local.person("ann"), local.services
    choice = ChoiceDraft("oauth") if kind == "oauth" else ChoiceDraft("header", key="Authorization")
    draft = ServerDraft("There", f"{program}/mcp", private_addresses=True, choices=(choice,))
    server = await services.registry.add_server(draft)
    async with aiohttp.ClientSession() as session:
        token = await signed_in(session, program, services, ann) if kind == "header" else None
        value = None if token is None else f"Bearer {token}"
        instance_draft = InstanceDraft(server.id, slug="there", value=value)
        instance = await services.registry.create_instance(ann.user.id, instance_draft)
        if kind == "oauth":
            response = await ann.browser.post(f"/api/v1/instances/{instance.id}/connect")
            await ann.browser.get(await agree_to_sign_in(session, response.json["url"]))

        async def read_instance_state() -> str:
            return (await ann.token.get(f"/api/v1/instances/{instance.id}")).json["status"]["state"]

        await read_instance_state()
        chat = Caller(ann.user.principal, chat="one")
        assert (await services.core.call_path.call(ToolCall(WHOAMI), chat)).text == "somebody"
        assert await read_instance_state() == InstanceState.READY
        for token_kind in ("access", "refresh"):
            await session.post(f"{program}/forget?what={token_kind}")
        with pytest.raises(SignInNeeded):
            await services.core.call_path.call(ToolCall(WHOAMI), chat)
    assert await read_instance_state() == InstanceState.NEEDS_REAUTH
    page = await ann.browser.get("/ui/mcp")
    assert "Needs sign-in again" in page.text


async def agree_to_sign_in(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, allow_redirects=False) as response:
        return "/ui/" + response.headers["Location"].partition("/ui/")[2]


async def signed_in(session: aiohttp.ClientSession, program: str, services: Any, ann: Any) -> str:
    """A token that somebody got elsewhere and enters by hand."""
    draft = ServerDraft("Else", f"{program}/mcp", private_addresses=True, choices=(ChoiceDraft("oauth"),))
    server = await services.registry.add_server(draft)
    other = await services.registry.create_instance(ann.user.id, InstanceDraft(server.id, slug="else"))
    response = await ann.browser.post(f"/api/v1/instances/{other.id}/connect")
    await ann.browser.get(await agree_to_sign_in(session, response.json["url"]))
    grant = await services.database.auth.get_grant(other.grant_key)
    await services.registry.delete_instance(ann.user.id, other.id)
    return grant.access_token
