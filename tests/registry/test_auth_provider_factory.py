"""The credentials of connections: real calls of real tools, with tokens that run out and are taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.auth.errors import AuthUnavailable, NeverSignedIn, ScopeNeeded, SignInEnded
from toolyard.auth.provider import parse_challenge
from toolyard.auth.storage import MemoryAuthStorage
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.errors import SignInNeeded
from toolyard.net import OutboundHttp
from toolyard.registry import ChoiceDraft
from toolyard.registry.auth_provider_factory import AuthProviderFactory, config_grant_key
from toolyard.store.errors import DatabaseUnavailable
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.call import Caller, ToolCall
from toolyard.types.registry import InstanceState
from toolyard.types.server import Configuration, HttpSpec, OAuthSpec, Provenance, Server, StdioSpec

if TYPE_CHECKING:
    from tests.registry.conftest import RegistryFixture

AFTER_EXPIRY_SECONDS = 4000
PENDING, READY, NEEDS_REAUTH = InstanceState.PENDING, InstanceState.READY, InstanceState.NEEDS_REAUTH


@pytest.fixture
def database_url() -> None:
    """SQLite is enough here."""


@pytest.fixture
async def core(registry_fixture: RegistryFixture) -> AsyncIterator[Core]:
    core = build_core(
        Configuration(servers={}, bundles={}),
        Settings(),
        data_dir=None,
        auth_provider_for=registry_fixture.credentials.auth_provider_for,
        net=registry_fixture.net,
    )
    yield core
    await core.close()


async def call(registry_fixture: Any, core: Core, instance: Any, tool: str = "whoami") -> str:
    await core.updates.sync_instances(registry_fixture.ann.id, [await registry_fixture.server(instance)])
    name = f"mcp_{instance.slug}__{tool}"
    return (await core.call_path.call(ToolCall(name), Caller(registry_fixture.principal))).text


async def failure(registry_fixture: Any, core: Core, instance: Any, tool: str = "whoami") -> Any:
    with pytest.raises((SignInNeeded, AuthUnavailable)) as exc_info:
        await call(registry_fixture, core, instance, tool)
    return exc_info.value


# Instances.


async def test_an_instance_calls_as_its_signed_in_user(registry_fixture: RegistryFixture, core: Core) -> None:
    instance = await registry_fixture.instance()
    error = await failure(registry_fixture, core, instance)
    assert isinstance(error, NeverSignedIn)
    assert "press Connect" in (error.hint or "")
    assert (await registry_fixture.state(instance))[0] is PENDING
    await registry_fixture.program.change(person="ann@example.com")
    await registry_fixture.sign_in(instance)
    assert await call(registry_fixture, core, instance) == "ann@example.com"


async def test_a_value_goes_along_and_a_wrong_one_is_told(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    token = (await registry_fixture.database.auth.get_grant(instance.grant_key)).access_token
    header = ChoiceDraft("header", key="Authorization")
    header_instance = await registry_fixture.instance(header, value=f"Bearer {token}", slug="valued")
    assert await call(registry_fixture, core, header_instance) == "somebody"
    wrong = await registry_fixture.instance(header, value="Bearer nonsense", slug="wrong")
    error = await failure(registry_fixture, core, wrong)
    assert type(error) is SignInNeeded
    assert "nonsense" not in str(error)


async def test_a_token_that_ran_out_is_refreshed_without_anybody(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await call(registry_fixture, core, instance)
    await registry_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await call(registry_fixture, core, instance)
    assert len(await registry_fixture.program.refreshes()) == 1
    assert (await registry_fixture.state(instance))[0] is READY


async def test_fifty_calls_with_a_token_that_ran_out_make_one_refresh(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await call(registry_fixture, core, instance)
    await registry_fixture.program.change(token_delay=0.1)
    await registry_fixture.run_out(AFTER_EXPIRY_SECONDS)
    texts = await asyncio.gather(*(call(registry_fixture, core, instance) for _ in range(50)))
    assert set(texts) == {"somebody"}
    assert len(await registry_fixture.program.refreshes()) == 1


async def test_a_restart_between_expiry_and_call_needs_no_user(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await registry_fixture.run_out(AFTER_EXPIRY_SECONDS)
    for _ in range(3):
        credentials = AuthProviderFactory(
            registry_fixture.registry,
            registry_fixture.database.auth,
            registry_fixture.net,
            clock=registry_fixture.clock,
        )
        provider = credentials.auth_provider_for(
            await registry_fixture.server(instance), registry_fixture.principal
        )
        assert provider is not None
        assert (await provider.headers())["Authorization"].startswith("Bearer ")
    assert len(await registry_fixture.program.refreshes()) == 1


async def test_a_rotated_token_is_never_used_twice(registry_fixture: RegistryFixture, core: Core) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    for _ in range(4):
        await registry_fixture.run_out(AFTER_EXPIRY_SECONDS)
        await call(registry_fixture, core, instance)
    refresh_tokens = await registry_fixture.program.refreshes()
    assert len(refresh_tokens) == len(set(refresh_tokens)) == 4
    assert not await registry_fixture.program.log("reuse")


async def test_a_token_endpoint_in_trouble_loses_nothing(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    before = await registry_fixture.database.auth.get_grant(instance.grant_key)
    await registry_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await registry_fixture.program.change(token_trouble=[503, "drop", 500, 502])
    error = await failure(registry_fixture, core, instance)
    assert isinstance(error, AuthUnavailable | SignInNeeded)
    after = await registry_fixture.database.auth.get_grant(instance.grant_key)
    assert after is not None
    # Only the attempt is noted: the endpoint may have replaced the token before it failed.
    assert after.refresh_began_at is not None
    assert replace(after, refresh_began_at=None) == before
    assert (await registry_fixture.state(instance))[0] is READY
    await registry_fixture.program.change(token_trouble=[])
    registry_fixture.clock.now += 60
    assert await call(registry_fixture, core, instance) == "somebody"
    after = await registry_fixture.database.auth.get_grant(instance.grant_key)
    assert after is not None
    assert after.refresh_began_at is None


async def test_a_sign_in_that_was_taken_back_is_marked_and_mended(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await call(registry_fixture, core, instance)
    for token_kind in ("access", "refresh"):
        await registry_fixture.program.forget(token_kind)
    errors = await asyncio.gather(*(failure(registry_fixture, core, instance) for _ in range(5)))
    assert all(isinstance(error, SignInEnded) for error in errors)
    assert "press Connect" in (errors[0].hint or "")
    state, reason = await registry_fixture.state(instance)
    assert state is NEEDS_REAUTH
    assert "cannot be refreshed" in (reason or "")
    await registry_fixture.sign_in(instance)
    assert await call(registry_fixture, core, instance) == "somebody"
    assert await registry_fixture.state(instance) == (READY, None)


async def test_a_refused_token_that_is_replaced_elsewhere_leaves_the_instance_ready(
    registry_fixture: RegistryFixture,
) -> None:
    """Somebody signs in again between the refusal and the note about it."""
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    provider = registry_fixture.credentials.auth_provider_for(
        await registry_fixture.server(instance), registry_fixture.principal
    )
    await provider.headers()
    for token_kind in ("access", "refresh"):
        await registry_fixture.program.forget(token_kind)
    storage, signed_values = registry_fixture.database.registry, []
    set_state = storage.set_instance_state

    async def late(instance_id: str, state: InstanceState, reason: str | None) -> None:
        if state is NEEDS_REAUTH and not signed_values:
            signed_values.append(True)
            await registry_fixture.sign_in(instance)
        await set_state(instance_id, state, reason)

    storage.set_instance_state = late
    with pytest.raises(SignInEnded):
        await provider.challenged(parse_challenge(401, "Bearer"))
    assert signed_values
    assert await registry_fixture.state(instance) == (READY, None)


async def test_a_state_is_written_once_however_many_calls_fail(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    storage, written_values = registry_fixture.database.registry, []
    set_state = storage.set_instance_state

    async def count_state_writes(*words: Any) -> None:
        written_values.append(words)
        await set_state(*words)

    storage.set_instance_state = count_state_writes
    await call_all(registry_fixture, core, instance, 10)
    assert len(written_values) == 1


async def call_all(registry_fixture: Any, core: Core, instance: Any, times: int) -> None:
    server = await registry_fixture.server(instance)
    await core.updates.sync_instances(registry_fixture.ann.id, [server])
    for _ in range(times):
        with pytest.raises(NeverSignedIn):
            await core.call_path.call(
                ToolCall(f"mcp_{instance.slug}__whoami"), Caller(registry_fixture.principal)
            )


async def test_more_scopes_are_asked_for_at_the_next_sign_in(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    await registry_fixture.program.set(challenge_scope="read")
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    error = await failure(registry_fixture, core, instance, "write")
    assert isinstance(error, ScopeNeeded)
    state, reason = await registry_fixture.state(instance)
    assert state is NEEDS_REAUTH
    assert "write" in (reason or "")
    # What needs no more still works.
    assert await call(registry_fixture, core, instance) == "somebody"
    await registry_fixture.sign_in(instance)
    assert await call(registry_fixture, core, instance, "write") == "somebody"
    entries = await registry_fixture.program.log("authorize")
    assert [entry["query"]["scope"] for entry in entries] == ["read", "read write"]


async def test_a_forgotten_client_asks_for_one_more_sign_in(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await registry_fixture.program.forget("clients")
    await registry_fixture.run_out(AFTER_EXPIRY_SECONDS)
    assert isinstance(await failure(registry_fixture, core, instance), SignInEnded)
    assert (await registry_fixture.state(instance))[0] is NEEDS_REAUTH
    await registry_fixture.sign_in(instance)
    assert await call(registry_fixture, core, instance) == "somebody"
    assert len(await registry_fixture.program.log("register")) == 2


async def test_tokens_never_go_to_another_host(registry_fixture: RegistryFixture, core: Core) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    server = await registry_fixture.server(instance)
    moved_server = replace(server, transport=HttpSpec(server.transport.url.replace("127.0.0.1", "localhost")))
    provider = registry_fixture.credentials.auth_provider_for(moved_server, registry_fixture.principal)
    assert await provider.headers() == {}
    assert await registry_fixture.database.auth.get_grant(instance.grant_key) is None


async def test_an_instance_that_was_made_again_has_no_old_sign_in(
    registry_fixture: RegistryFixture, core: Core
) -> None:
    instance = await registry_fixture.instance(slug="mine")
    await registry_fixture.sign_in(instance)
    assert await call(registry_fixture, core, instance) == "somebody"
    await registry_fixture.registry.delete_instance(registry_fixture.ann.id, instance.id)
    again = await registry_fixture.instance(slug="mine")
    assert isinstance(await failure(registry_fixture, core, again), NeverSignedIn)


# Servers of a file.


def config_server(url: str, **changes: Any) -> Server:
    return replace(Server("files", HttpSpec(url), provenance=Provenance("file", "/etc/mcp.json")), **changes)


@pytest.mark.parametrize(
    ("server", "principal", "key"),
    [
        (config_server("http://x/"), LOCAL_PRINCIPAL, "user:local:files"),
        (config_server("http://x/"), Principal("u1"), "user:u1:files"),
        (config_server("http://x/", shared=True), Principal("u1"), "user:local:files"),
    ],
)
def test_sign_ins_to_servers_of_a_file_are_each_persons_own_unless_shared(
    server: Server, principal: Principal, key: str
) -> None:
    assert config_grant_key(server, principal) == key


def test_instances_without_sign_in_get_no_provider() -> None:
    credentials = AuthProviderFactory(None, MemoryAuthStorage(), OutboundHttp())
    for server in (
        Server("a", StdioSpec("x")),
        Server("b", HttpSpec("http://x/", {"authorization": "Bearer x"})),
        Server("c", HttpSpec("http://x/", auth_provider_id="theirs")),
        Server("registry:1", HttpSpec("http://x/"), provenance=Provenance("registry")),
    ):
        assert credentials.auth_provider_for(server, LOCAL_PRINCIPAL) is None


@pytest.mark.parametrize(
    ("principal", "shared", "words"),
    [
        (LOCAL_PRINCIPAL, False, "run `toolyard login files`"),
        (Principal("u1"), True, "run `toolyard login files`"),
        (Principal("u1"), False, '"shared": true'),
    ],
)
async def test_the_hint_says_how_to_sign_in(
    registry_fixture: RegistryFixture, principal: Principal, shared: bool, words: str
) -> None:
    server = config_server(registry_fixture.program.mcp, shared=shared)
    provider = AuthProviderFactory(
        None, registry_fixture.database.auth, registry_fixture.net
    ).auth_provider_for(server, principal)
    assert provider is not None
    with pytest.raises(NeverSignedIn) as exc_info:
        await provider.challenged(parse_challenge(401, "Bearer"))
    assert words in (exc_info.value.hint or "")


@pytest.mark.parametrize(
    ("principal", "shared", "words"),
    [
        (LOCAL_PRINCIPAL, False, "press Connect"),
        (LOCAL_PRINCIPAL, True, "press Connect"),
        (Principal("u1"), True, "run `toolyard login files`"),
        (Principal("u1"), False, "press Connect"),
    ],
)
async def test_where_there_are_pages_the_hint_names_the_button(
    registry_fixture: RegistryFixture, principal: Principal, shared: bool, words: str
) -> None:
    server = config_server(registry_fixture.program.mcp, shared=shared)
    provider = registry_fixture.credentials.auth_provider_for(server, principal)
    with pytest.raises(NeverSignedIn) as exc_info:
        await provider.challenged(parse_challenge(401, "Bearer"))
    assert words in (exc_info.value.hint or "")


@pytest.mark.parametrize(
    ("principal", "words"),
    [(LOCAL_PRINCIPAL, "run `toolyard login files`"), (Principal("u1"), '"shared": true')],
)
async def test_at_a_terminal_with_a_registry_the_hint_names_the_command(
    registry_fixture: RegistryFixture, principal: Principal, words: str
) -> None:
    credentials = AuthProviderFactory(
        registry_fixture.registry,
        registry_fixture.database.auth,
        registry_fixture.net,
        has_pages=False,
    )
    provider = credentials.auth_provider_for(config_server(registry_fixture.program.mcp), principal)
    assert provider is not None
    with pytest.raises(NeverSignedIn) as exc_info:
        await provider.challenged(parse_challenge(401, "Bearer"))
    assert words in (exc_info.value.hint or "")


@pytest.mark.parametrize(
    ("header", "oauth", "ours"), [(None, None, False), ("Basic", None, False), (None, OAuthSpec(), True)]
)
async def test_a_server_that_does_not_ask_for_oauth_speaks_for_itself(
    registry_fixture: RegistryFixture, header: str | None, oauth: OAuthSpec | None, ours: bool
) -> None:
    provider = registry_fixture.credentials.auth_provider_for(
        config_server(registry_fixture.program.mcp, oauth=oauth), LOCAL_PRINCIPAL
    )
    challenge = parse_challenge(401, header)
    if ours:
        with pytest.raises(NeverSignedIn):
            await provider.challenged(challenge)
    else:
        assert await provider.challenged(challenge) is False


async def test_a_program_signs_in_with_the_key_file_beside_its_entry(
    registry_fixture: RegistryFixture, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    await registry_fixture.program.set(entered={"robot": ""})
    issuer = registry_fixture.program.origins["as1"]
    oauth = OAuthSpec(
        client_id="robot", grant="client_credentials", private_key_file="key.pem", issuer=issuer
    )
    server = Server(
        "r",
        HttpSpec(registry_fixture.program.mcp),
        oauth=oauth,
        provenance=Provenance("file", str(tmp_path / "mcp.json")),
    )
    (tmp_path / "key.pem").write_bytes(pem)
    provider = registry_fixture.credentials.auth_provider_for(server, LOCAL_PRINCIPAL)
    assert await provider.challenged(parse_challenge(401, "Bearer"))
    assert (await provider.headers())["Authorization"].startswith("Bearer ")
    assert [entry["method"] for entry in await registry_fixture.program.log("token")] == ["private_key_jwt"]
    (tmp_path / "key.pem").unlink()
    broken = registry_fixture.credentials.auth_provider_for(server, LOCAL_PRINCIPAL)
    with pytest.raises(SignInNeeded, match=r"key\.pem cannot be read"):
        await broken.headers()


# What it costs.


class CountingAuthStorage(MemoryAuthStorage):
    """A storage that counts how often it is asked."""

    asked = 0

    async def get_grant(self, key: str) -> Any:
        self.asked += 1
        return await super().get_grant(key)


async def test_without_a_sign_in_the_storage_is_not_asked_for_every_call(
    registry_fixture: RegistryFixture,
) -> None:
    storage = CountingAuthStorage()
    credentials = AuthProviderFactory(None, storage, registry_fixture.net, clock=registry_fixture.clock)
    provider = credentials.auth_provider_for(config_server(registry_fixture.program.mcp), LOCAL_PRINCIPAL)
    assert provider is not None
    for _ in range(100):
        assert await provider.headers() == {}
    assert storage.asked == 1
    registry_fixture.clock.now += 11
    await provider.headers()
    assert storage.asked == 2
    for _ in range(1000):
        await provider.headers()
    assert storage.asked == 2
    # A refusal looks at once.
    with pytest.raises(NeverSignedIn):
        await provider.challenged(parse_challenge(401, "Bearer"))
    assert storage.asked == 3


async def test_a_failing_storage_affects_only_instances_that_need_it(
    registry_fixture: RegistryFixture,
) -> None:
    class Broken(MemoryAuthStorage):
        async def get_grant(self, key: str) -> Any:
            raise DatabaseUnavailable("the database is away", hint="bring it back")

    provider = AuthProviderFactory(None, Broken(), registry_fixture.net).auth_provider_for(
        config_server(registry_fixture.program.mcp), LOCAL_PRINCIPAL
    )
    assert provider is not None
    assert await provider.headers() == {}
    with pytest.raises(AuthUnavailable, match="the database is away") as exc_info:
        await provider.challenged(parse_challenge(401, "Bearer"))
    assert exc_info.value.hint == "bring it back"
