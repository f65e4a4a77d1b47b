"""An entered client secret or key is sent only to an issuer that the operator or an earlier sign-in named."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from toolyard import State, Toolyard
from toolyard.auth.errors import IssuerUnconfirmed, SignInEnded, WrongAuthorizationServer
from toolyard.auth.token_endpoint import revoke_grant

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture
    from tests.conftest import ProgramStarter

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("issuer", [None, "https://login.example"])
async def test_starting_sends_no_secret_to_the_issuer_that_a_hostile_server_names(
    start_program: ProgramStarter, no_proxies: None, issuer: str | None
) -> None:
    url = start_program(sys.executable, "-I", ROOT / "tests/oauth/hostile_server.py", "{port}").url
    oauth = {"grant": "client_credentials", "clientId": "robot", "clientSecret": "robot-secret"}
    if issuer is not None:
        oauth["issuer"] = issuer
    entry = {"type": "http", "url": f"{url}/mcp", "oauth": oauth}
    async with Toolyard.open({"mcpServers": {"s": entry}}) as yard:
        await yard.tools()
        [status] = yard.servers()
    async with aiohttp.ClientSession() as session, session.get(f"{url}/log") as response:
        assert await response.json() == []
    assert status.state is State.NEEDS_AUTH
    assert url in (status.cause or "")


SECRETS: list[dict[str, Any]] = [
    {"client_secret": "s"},
    {"private_key_file": "key.pem"},
    {"client_secret": "s", "grant": "client_credentials"},
    {"private_key": "pem", "grant": "client_credentials"},
]


def words(secret: dict[str, Any]) -> str:
    return "+".join(secret)


@pytest.mark.parametrize("secret", SECRETS, ids=words)
async def test_an_unconfirmed_issuer_gets_no_request(
    oauth_fixture: OAuthFixture, secret: dict[str, Any]
) -> None:
    target = oauth_fixture.target(client_id="mine", issuer=None, **secret)
    flow = oauth_fixture.flow()
    begin = flow.sign_in_as_client if secret.get("grant") else flow.begin
    with pytest.raises(IssuerUnconfirmed) as exc_info:
        await begin("k", target)
    assert exc_info.value.issuer == oauth_fixture.origins["as1"]
    for endpoint in ("token", "authorize", "look", "register"):
        assert not await oauth_fixture.log(endpoint)


async def test_the_issuer_that_the_entry_names_is_used(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": "s"}, servers=["as2", "as1"])
    issuer = oauth_fixture.origins["as1"]
    target = oauth_fixture.target(
        client_id="mine", client_secret="s", grant="client_credentials", issuer=issuer
    )
    assert (await oauth_fixture.flow().sign_in_as_client("k", target)).issuer == issuer
    assert not await oauth_fixture.log("token", "as2")


async def test_an_issuer_that_the_entry_does_not_name_gets_no_secret(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": "s"}, servers=["as2"])
    issuer = oauth_fixture.origins["as1"]
    target = oauth_fixture.target(
        client_id="mine", client_secret="s", grant="client_credentials", issuer=issuer
    )
    with pytest.raises(WrongAuthorizationServer):
        await oauth_fixture.flow().sign_in_as_client("k", target)
    assert not await oauth_fixture.log("token")


async def test_an_issuer_that_an_earlier_sign_in_bound_is_taken_over(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": "s"})
    issuer = oauth_fixture.origins["as1"]
    await oauth_fixture.storage.bind_issuer(oauth_fixture.mcp, "mine", issuer, for_secret=True)
    target = oauth_fixture.target(client_id="mine", client_secret="s", issuer=None)
    await oauth_fixture.call(oauth_fixture.provider(target))
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["client_secret_basic"]


async def test_a_client_id_without_a_secret_needs_no_confirmation(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": None})
    assert (await oauth_fixture.call(oauth_fixture.provider(oauth_fixture.target(client_id="mine"))))[
        "client"
    ] == "mine"


@pytest.mark.parametrize("secret", SECRETS, ids=words)
async def test_a_sign_in_without_a_secret_confirms_no_issuer_for_a_later_secret(
    oauth_fixture: OAuthFixture, secret: dict[str, Any]
) -> None:
    await oauth_fixture.set(entered={"mine": None})
    await oauth_fixture.call(oauth_fixture.provider(oauth_fixture.target(client_id="mine")))
    flow, later = oauth_fixture.flow(), oauth_fixture.target(client_id="mine", issuer=None, **secret)
    with pytest.raises(IssuerUnconfirmed):
        await (flow.sign_in_as_client if secret.get("grant") else flow.begin)("k", later)
    # Without the secret, the client still belongs to that issuer.
    await oauth_fixture.change(servers=["as2"])
    with pytest.raises(WrongAuthorizationServer):
        await flow.begin("k", oauth_fixture.target(client_id="mine"))


async def test_a_refresh_and_a_revocation_send_no_secret_to_an_issuer_that_the_entry_no_longer_names(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(entered={"mine": "s"})
    issuer = oauth_fixture.origins["as1"]
    target = oauth_fixture.target(client_id="mine", client_secret="s", issuer=issuer)
    await oauth_fixture.call(oauth_fixture.provider(target))
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    moved_target = replace(target, oauth=replace(target.oauth, issuer="https://login.example"))
    await oauth_fixture.run_out(4000)
    assert isinstance(
        await oauth_fixture.failure(oauth_fixture.provider(moved_target, person=False)), SignInEnded
    )
    assert [entry["grant_type"] for entry in await oauth_fixture.log("token")] == ["authorization_code"]
    await revoke_grant(oauth_fixture.net, grant, moved_target, clock=oauth_fixture.clock)
    assert {entry["method"] for entry in await oauth_fixture.log("revoke")} == {"none"}


async def test_a_revocation_signs_nothing_for_an_issuer_that_the_entry_no_longer_names(
    oauth_fixture: OAuthFixture,
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    await oauth_fixture.set(entered={"robot": ""})
    oauth: dict[str, Any] = {"client_id": "robot", "grant": "client_credentials"}
    target = oauth_fixture.target(private_key=pem.decode(), issuer=oauth_fixture.origins["as1"], **oauth)
    await oauth_fixture.call(oauth_fixture.provider(target, person=False))
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    assert grant is not None
    moved_target = replace(target, oauth=replace(target.oauth, issuer="https://login.example"))
    for each in (target, moved_target):
        await revoke_grant(oauth_fixture.net, grant, each, clock=oauth_fixture.clock)
    assert [entry["method"] for entry in await oauth_fixture.log("revoke")] == ["private_key_jwt", "none"]
