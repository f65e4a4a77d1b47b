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
    made = core({"trust": Trust.UNTRUSTED, "allow_tools": ("a",), "deny_tools": ("b",), "transport": "sse"})
    assert made.id == "@u1/work"
    assert made.instance == InstanceRef("u1", "work", ("a",), "i1", "s1")
    assert made.transport == HttpSpec(SERVER.url, type="sse")
    assert (made.label, made.description, made.cache_ttl) == ("My work", "about", 7.0)
    assert (made.trust, made.allow_tools, made.deny_tools) == (Trust.UNTRUSTED, ("a",), ("b",))
    assert (made.enabled, made.disabled_reason) == (True, None)
    assert made.provenance.source == "registry"
    assert made.stop_when_idle is not None


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
def test_what_the_admin_entered_is_used_where_the_registration_says_so(
    registration: RegistrationMethod, client: tuple[str | None, str | None]
) -> None:
    choices = (replace(OAUTH, registration=registration),)
    made = core({"choices": choices}, choice_id="o")
    assert (made.oauth.client_id, made.oauth.client_secret) == client
    assert (made.oauth.scopes, made.oauth.resource) == (("a",), "urn:x")
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
    made = core(server, **instance)
    assert not made.enabled
    assert words in made.disabled_reason


def test_the_admins_look_has_no_credentials() -> None:
    made = build_preview_server(SERVER)
    assert (made.id, made.instance, made.oauth) == ("registry:s1", None, None)
    assert made.transport == HttpSpec(SERVER.url)
