from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from toolyard.auth.storage import OAuthClient, OAuthGrant
from toolyard.config.settings.table import Settings
from toolyard.registry import ChoiceDraft, InstanceDraft, Registry, ServerDraft
from toolyard.registry.errors import Invalid, NotFound, Taken
from toolyard.store import Database
from toolyard.types.account import Role, User
from toolyard.types.registry import AuthChoice, Instance, InstanceState, RegistryServer
from toolyard.types.server import State, Status

URL = "https://api.github.com/mcp"
HEADER = ChoiceDraft("header", key="X-Key")


@pytest.fixture
def registry(database: Database) -> Registry:
    return Registry(database.registry, Settings())


@pytest.fixture
async def ann(database: Database) -> User:
    return await database.accounts.add_user("ann", Role.USER)


@pytest.fixture
async def bob(database: Database) -> User:
    return await database.accounts.add_user("bob", Role.USER)


def again(server: RegistryServer, **changes: Any) -> ServerDraft:
    """The draft of a form that was filled with what there is."""
    return replace(
        ServerDraft(server.name, server.url, choices=tuple(map(choice_again, server.choices))), **changes
    )


def choice_again(choice: AuthChoice) -> ChoiceDraft:
    return ChoiceDraft(
        choice.kind,
        choice.label,
        choice.id,
        choice.place,
        choice.key,
        choice.registration,
        choice.client_id,
    )


def grant(url: str = URL) -> OAuthGrant:
    client = OAuthClient("https://as.example", "c", "https://yard.example/cb", "dynamic")
    return OAuthGrant(
        url, client.issuer, client, "https://as.example/token", None, (), (), "a", "r", 0.0, None
    )


# Servers.


async def test_servers_are_added_edited_and_deleted(registry: Registry) -> None:
    one = await registry.add_server(ServerDraft("One", URL))
    two = await registry.add_server(ServerDraft("two", URL))
    assert [server.id for server in await registry.list_servers()] == [one.id, two.id]
    edited_server = await registry.edit_server(one.id, again(one, name="ONE", description="more"))
    assert await registry.get_server(one.id) == edited_server
    assert (edited_server.name, edited_server.created_at) == ("ONE", one.created_at)
    await registry.delete_server(one.id)
    with pytest.raises(NotFound):
        await registry.get_server(one.id)
    for work in (registry.delete_server(one.id), registry.set_server_enabled(one.id, True)):
        with pytest.raises(NotFound):
            await work
    with pytest.raises(NotFound):
        await registry.edit_server(one.id, again(one))


async def test_names_are_unique_without_case(registry: Registry) -> None:
    await registry.add_server(ServerDraft("GitHub", URL))
    with pytest.raises(Taken) as exc_info:
        await registry.add_server(ServerDraft("github", URL))
    assert exc_info.value.field == "name"
    other = await registry.add_server(ServerDraft("Other", URL))
    with pytest.raises(Taken):
        await registry.edit_server(other.id, again(other, name="GITHUB"))
    assert (await registry.get_server(other.id)).name == "Other"


async def test_invalid_drafts_are_not_stored(registry: Registry) -> None:
    with pytest.raises(Invalid):
        await registry.add_server(ServerDraft("x", "nonsense"))
    assert list(await registry.list_servers()) == []


# Instances.


async def test_instances_belong_to_one_user(registry: Registry, ann: User, bob: User) -> None:
    server = await registry.add_server(ServerDraft("GitHub", URL))
    instance = await registry.create_instance(ann.id, InstanceDraft(server.id))
    assert (instance.slug, instance.name, instance.state) == ("github", "GitHub", InstanceState.READY)
    assert await registry.get_instance(ann.id, instance.id) == (instance, server)
    assert list(await registry.list_instances(bob.id)) == []
    for work in (
        registry.get_instance(bob.id, instance.id),
        registry.edit_instance(bob.id, instance.id, InstanceDraft()),
        registry.set_instance_enabled(bob.id, instance.id, False),
        registry.delete_instance(bob.id, instance.id),
    ):
        with pytest.raises(NotFound):
            await work
    assert await registry.get_instance(ann.id, instance.id) == (instance, server)
    # The same slug is another user's own.
    other_instance = await registry.create_instance(bob.id, InstanceDraft(server.id))
    assert other_instance.slug == "github"
    assert await registry.count_instances() == {server.id: 2}


async def test_proposed_slugs_are_free_ones(registry: Registry, ann: User) -> None:
    server = await registry.add_server(ServerDraft("GitHub", URL))
    created_instances = [
        await registry.create_instance(ann.id, InstanceDraft(server.id, slug=" ")) for _ in range(3)
    ]
    assert [each.slug for each in created_instances] == ["github", "github-2", "github-3"]
    assert await registry.propose_slug(ann.id, URL) == "github-4"


async def test_two_simultaneous_creations_both_get_a_slug(registry: Registry, ann: User) -> None:
    server = await registry.add_server(ServerDraft("GitHub", URL))
    results = await asyncio.gather(
        *(registry.create_instance(ann.id, InstanceDraft(server.id)) for _ in range(4))
    )
    assert {each.slug for each in results} == {"github", "github-2", "github-3", "github-4"}


async def test_a_slug_that_was_given_is_taken_or_refused(registry: Registry, ann: User) -> None:
    server = await registry.add_server(ServerDraft("GitHub", URL))
    first = await registry.create_instance(ann.id, InstanceDraft(server.id, slug="Work"))
    with pytest.raises(Taken) as exc_info:
        await registry.create_instance(ann.id, InstanceDraft(server.id, slug="work"))
    assert exc_info.value.field == "slug"
    second = await registry.create_instance(ann.id, InstanceDraft(server.id, slug="home"))
    with pytest.raises(Taken):
        await registry.edit_instance(ann.id, second.id, InstanceDraft(slug="WORK"))
    instance = await registry.edit_instance(ann.id, first.id, InstanceDraft(slug="work"))
    assert instance.slug == "work"


async def test_an_instance_of_no_server_is_refused(registry: Registry, ann: User) -> None:
    with pytest.raises(NotFound):
        await registry.create_instance(ann.id, InstanceDraft("made-up"))


async def test_a_filter_is_stored_as_it_is(registry: Registry, ann: User) -> None:
    server = await registry.add_server(ServerDraft("GitHub", URL))
    created_instance = await registry.create_instance(ann.id, InstanceDraft(server.id))
    for tool_filter in (("a", "b"), (), None):
        await registry.edit_instance(ann.id, created_instance.id, InstanceDraft(tool_filter=tool_filter))
        instance, of = await registry.get_instance(ann.id, created_instance.id)
        spec = registry.build_instance_server(instance, of).instance
        assert spec is not None
        assert instance.tool_filter == spec.tool_filter == tool_filter


# What is lost, and what is not.


@pytest.fixture
async def signed_in(
    registry: Registry, database: Database, ann: User
) -> tuple[RegistryServer, Instance, Instance]:
    """A server with an instance that has a value, and one that has signed in."""
    choices = (HEADER, ChoiceDraft("oauth"), ChoiceDraft("public"))
    server = await registry.add_server(ServerDraft("GitHub", URL, choices=choices))
    header, oauth, _ = server.choices
    instance = await registry.create_instance(ann.id, InstanceDraft(server.id, header.id, value="abc"))
    sign_in_instance = await registry.create_instance(ann.id, InstanceDraft(server.id, oauth.id))
    await database.auth.put_grant(sign_in_instance.grant_key, grant())
    await database.registry.set_instance_state(sign_in_instance.id, InstanceState.READY, None)
    return server, instance, replace(sign_in_instance, state=InstanceState.READY, reason=None)


async def test_disabling_keeps_everything(
    registry: Registry, database: Database, signed_in: tuple[RegistryServer, Instance, Instance]
) -> None:
    server, value_instance, sign_in_instance = signed_in
    await registry.set_server_enabled(server.id, False)
    await registry.set_instance_enabled(value_instance.user_id, value_instance.id, False)
    await registry.set_server_enabled(server.id, True)
    await registry.set_instance_enabled(value_instance.user_id, value_instance.id, True)
    after, of = await registry.get_instance(value_instance.user_id, value_instance.id)
    assert (after.value, after.state, of.choices) == ("abc", InstanceState.READY, server.choices)
    grant = await database.auth.get_grant(sign_in_instance.grant_key)
    assert grant is not None
    assert grant.access_token == "a"


@pytest.mark.parametrize(
    "url",
    ["https://api.github.com/other?x=y", "https://API.github.com/mcp", "https://api.github.com:443/mcp"],
)
async def test_another_path_keeps_every_sign_in(
    registry: Registry, database: Database, signed_in: tuple[RegistryServer, Instance, Instance], url: str
) -> None:
    server, value_instance, sign_in_instance = signed_in
    await registry.edit_server(server.id, again(server, url=url))
    assert (await registry.get_instance(value_instance.user_id, value_instance.id))[0].value == "abc"
    assert await database.auth.get_grant(sign_in_instance.grant_key) is not None


@pytest.mark.parametrize(
    "url",
    ["https://evil.example/mcp", "http://api.github.com/mcp", "https://api.github.com:8443/mcp"],
)
async def test_another_host_drops_every_sign_in(
    registry: Registry,
    database: Database,
    ann: User,
    signed_in: tuple[RegistryServer, Instance, Instance],
    url: str,
) -> None:
    server, value_instance, sign_in_instance = signed_in
    public = await registry.create_instance(ann.id, InstanceDraft(server.id, server.choices[2].id))
    edited_server = await registry.edit_server(server.id, again(server, url=url))
    assert (await registry.get_server(server.id)).url == edited_server.url == url
    after, _ = await registry.get_instance(ann.id, value_instance.id)
    assert (after.value, after.state) == (None, InstanceState.PENDING)
    assert not registry.build_instance_server(after, edited_server).enabled
    assert await database.auth.get_grant(sign_in_instance.grant_key) is None
    assert (await registry.get_instance(ann.id, sign_in_instance.id))[0].state is InstanceState.PENDING
    assert (await registry.get_instance(ann.id, public.id))[0].state is InstanceState.READY


async def test_a_rename_to_a_taken_name_keeps_all_sign_ins(
    registry: Registry, database: Database, signed_in: tuple[RegistryServer, Instance, Instance]
) -> None:
    server, value_instance, sign_in_instance = signed_in
    await registry.add_server(ServerDraft("Other", URL))
    with pytest.raises(Taken):
        await registry.edit_server(server.id, again(server, name="other", url="https://evil.example/"))
    assert (await registry.get_instance(value_instance.user_id, value_instance.id))[0].value == "abc"
    assert await database.auth.get_grant(sign_in_instance.grant_key) is not None
    assert (await registry.get_server(server.id)).url == URL


async def test_a_choice_that_is_removed_makes_its_instances_pending(
    registry: Registry, database: Database, signed_in: tuple[RegistryServer, Instance, Instance]
) -> None:
    server, value_instance, sign_in_instance = signed_in
    draft = again(server)
    edited_server = await registry.edit_server(server.id, replace(draft, choices=draft.choices[2:]))
    after, _ = await registry.get_instance(value_instance.user_id, value_instance.id)
    assert (after.value, after.state) == (None, InstanceState.PENDING)
    assert await database.auth.get_grant(sign_in_instance.grant_key) is None
    core = registry.build_instance_server(after, edited_server)
    assert (core.enabled, "choose another" in (core.disabled_reason or "")) == (False, True)
    [public] = edited_server.choices
    instance = await registry.edit_instance(
        value_instance.user_id, value_instance.id, InstanceDraft(choice_id=public.id)
    )
    assert instance.state is InstanceState.READY


async def test_another_choice_of_an_instance_drops_its_sign_in(
    registry: Registry, database: Database, signed_in: tuple[RegistryServer, Instance, Instance]
) -> None:
    server, _, sign_in_instance = signed_in
    same = await registry.edit_instance(
        sign_in_instance.user_id, sign_in_instance.id, InstanceDraft(name="Other")
    )
    assert same.state is InstanceState.READY
    assert await database.auth.get_grant(sign_in_instance.grant_key) is not None
    await registry.edit_instance(
        sign_in_instance.user_id, sign_in_instance.id, InstanceDraft(choice_id=server.choices[2].id)
    )
    assert await database.auth.get_grant(sign_in_instance.grant_key) is None


async def test_deleting_takes_the_sign_ins_along(
    registry: Registry, database: Database, signed_in: tuple[RegistryServer, Instance, Instance]
) -> None:
    server, value_instance, sign_in_instance = signed_in
    await registry.delete_instance(sign_in_instance.user_id, sign_in_instance.id)
    assert await database.auth.get_grant(sign_in_instance.grant_key) is None
    await registry.delete_server(server.id)
    with pytest.raises(NotFound):
        await registry.get_instance(value_instance.user_id, value_instance.id)


# What connections learn.


@pytest.mark.parametrize(
    ("choice", "state", "reason", "learned_state"),
    [
        (ChoiceDraft("oauth"), State.READY, None, InstanceState.READY),
        (ChoiceDraft("oauth"), State.FAILED, "unreachable", InstanceState.PENDING),
        (ChoiceDraft("public"), State.FAILED, "unreachable", InstanceState.FAILED),
        (ChoiceDraft("oauth"), State.NEEDS_AUTH, "never_signed_in", InstanceState.PENDING),
        (ChoiceDraft("oauth"), State.NEEDS_AUTH, "sign_in_ended", InstanceState.NEEDS_REAUTH),
        (HEADER, State.NEEDS_AUTH, "sign_in_needed", InstanceState.NEEDS_REAUTH),
        (ChoiceDraft("public"), State.NEEDS_AUTH, "sign_in_needed", InstanceState.FAILED),
        (ChoiceDraft("oauth"), State.IDLE, None, InstanceState.PENDING),
        (ChoiceDraft("oauth"), State.CONNECTING, None, InstanceState.PENDING),
    ],
)
async def test_states_learned_by_a_connection_are_stored(
    registry: Registry,
    ann: User,
    choice: ChoiceDraft,
    state: State,
    reason: str | None,
    learned_state: InstanceState,
) -> None:
    server = await registry.add_server(ServerDraft("x", URL, choices=(choice,)))
    instance = await registry.create_instance(ann.id, InstanceDraft(server.id, value="v"))
    status = Status(instance.core_id, ann.id, state, 0.0, cause="why", reason=reason)
    await registry.record_status(instance.id, status)
    stored_instance, _ = await registry.get_instance(ann.id, instance.id)
    assert stored_instance.state is learned_state
    await registry.record_status("made-up", status)
    await registry.record_status(instance.id, replace(status, principal="somebody"))
