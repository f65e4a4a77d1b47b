from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toolyard.registry.server_builder import build_instance_server, build_preview_server
from toolyard.types.registry import AuthChoice, AuthKind, Instance, RegistrationMethod, RegistryServer
from toolyard.types.server import HttpSpec, InstanceRef, Trust

PUBLIC = AuthChoice(id="p")
HEADER = AuthChoice(AuthKind.HEADER, id="h", key="X-Key")
QUERY = AuthChoice(AuthKind.HEADER, id="q", place="query", key="key")
OAUTH = AuthChoice(
    AuthKind.OAUTH, id="o", client_id="me", client_secret="hidden", scopes=("a",), resource="urn:x"
)
SERVER = RegistryServer(
    "GitHub",
    "https://api.github.com/mcp",
    id="s1",
    choices=(PUBLIC, HEADER, QUERY, OAUTH),
    description="about",
)
INSTANCE = Instance("s1", "p", "work", "My work", id="i1", user_id="u1", tool_filter=("a",))


def core(server: dict[str, Any] | None = None, **changes: Any) -> Any:
    return build_instance_server(replace(INSTANCE, **changes), replace(SERVER, **(server or {})), ttl=7.0)


def test_an_instance_is_a_server_of_its_owner() -> None:
    server_config = core(
        {"trust": Trust.UNTRUSTED, "allow_tools": ("a",), "deny_tools": ("b",), "transport": "sse"}
    )
    assert server_config.id == "@u1/work"
    assert server_config.instance == InstanceRef("u1", "work", ("a",), "i1", "s1")
    assert server_config.transport == HttpSpec(SERVER.url, type="sse")
    assert (server_config.label, server_config.description, server_config.cache_ttl) == (
        "My work",
        "about",
        7.0,
    )
    assert (server_config.trust, server_config.allow_tools, server_config.deny_tools) == (
        Trust.UNTRUSTED,
        ("a",),
        ("b",),
    )
    assert (server_config.enabled, server_config.disabled_reason) == (True, None)
    assert server_config.provenance.source == "registry"
    assert server_config.stop_when_idle is not None


@pytest.mark.parametrize("allowed", [True, False])
def test_the_guard_is_on_unless_the_admin_says_otherwise(allowed: bool) -> None:
    assert core({"private_addresses": allowed}).private_addresses is allowed
    assert build_preview_server(replace(SERVER, private_addresses=allowed)).private_addresses is allowed


def test_a_value_goes_into_its_header_or_parameter() -> None:
    header = core(choice_id="h", value="abc").transport
    assert (dict(header.headers), dict(header.query)) == ({"X-Key": "abc"}, {})
    query = core(choice_id="q", value="abc").transport
    assert (dict(query.headers), dict(query.query)) == ({}, {"key": "abc"})
    assert "abc" not in repr(core(choice_id="h", value="abc"))


@pytest.mark.parametrize("choice", ["p", "o"])
def test_a_value_that_is_left_over_goes_nowhere(choice: str) -> None:
    spec = core(choice_id=choice, value="abc").transport
    assert (dict(spec.headers), dict(spec.query)) == ({}, {})


@pytest.mark.parametrize(
    ("registration", "client"),
    [
        (RegistrationMethod.ENTERED, ("me", "hidden")),
        (RegistrationMethod.AUTO, ("me", "hidden")),
        (RegistrationMethod.DOCUMENT, (None, None)),
        (RegistrationMethod.DYNAMIC, (None, None)),
    ],
)
def test_credentials_entered_by_the_admin_are_used_with_that_registration(
    registration: RegistrationMethod, client: tuple[str | None, str | None]
) -> None:
    choices = (replace(OAUTH, registration=registration),)
    server_config = core({"choices": choices}, choice_id="o")
    assert (server_config.oauth.client_id, server_config.oauth.client_secret) == client
    assert (server_config.oauth.scopes, server_config.oauth.resource) == (("a",), "urn:x")
    assert core().oauth is None


@pytest.mark.parametrize(
    ("server", "instance", "words"),
    [
        ({"enabled": False}, {}, "an admin has disabled the server 'GitHub'"),
        ({}, {"enabled": False}, "you have disabled this instance"),
        ({"enabled": False}, {"enabled": False}, "an admin"),
        ({}, {"choice_id": "gone"}, "no longer offers"),
        ({}, {"choice_id": "h"}, "the value for X-Key is missing"),
    ],
)
def test_an_instance_that_cannot_be_used_says_why(
    server: dict[str, Any], instance: dict[str, Any], words: str
) -> None:
    server_config = core(server, **instance)
    assert not server_config.enabled
    assert words in server_config.disabled_reason


def test_the_admins_look_has_no_credentials() -> None:
    preview_server = build_preview_server(SERVER)
    assert (preview_server.id, preview_server.instance, preview_server.oauth) == ("registry:s1", None, None)
    assert preview_server.transport == HttpSpec(SERVER.url)
