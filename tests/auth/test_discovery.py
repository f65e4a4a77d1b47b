from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.auth.errors import (
    AddressNotAllowed,
    AuthUnavailable,
    DiscoveryFailed,
    IssuerMismatch,
    PkceMissing,
    ResourceMismatch,
)

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"named_in_header": None},
        {"named_in_header": None, "metadata_places": [OPENID]},
        {
            "named_in_header": None,
            "resource_places": [RESOURCE],
            "issuer_path": "/tenant1",
            "metadata_places": [f"{SERVER}/tenant1"],
        },
        {
            "named_in_header": "/elsewhere",
            "resource_places": ["/elsewhere"],
            "issuer_path": "/tenant1",
            "metadata_places": [f"/tenant1{OPENID}"],
        },
        {"issuer_path": "/tenant1", "metadata_places": [f"{OPENID}/tenant1"]},
        {"named_in_header": "/nothing/here"},
        {"named_in_header": "/elsewhere", "resource_places": ["/elsewhere"], "header_as_is": True},
        {
            "named_in_header": "/elsewhere",
            "resource_places": ["/elsewhere"],
            "header_before": 'Basic realm="here"',
        },
    ],
    ids=[
        "default",
        "no header",
        "var1",
        "var2",
        "var3",
        "openid inserted",
        "header names nothing",
        "header leaves the origin out",
        "header is the second of two",
    ],
)
async def test_every_way_to_publish_metadata_is_found(
    oauth_fixture: OAuthFixture, settings: dict[str, Any]
) -> None:
    await oauth_fixture.set(**settings)
    assert (await oauth_fixture.call(oauth_fixture.provider()))["client"].startswith("as1-")
    assert (await oauth_fixture.log("metadata"))[-1]["path"] in settings.get("metadata_places", [SERVER])


async def test_metadata_is_asked_for_in_the_order_of_the_specification(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(
        named_in_header=None,
        resource_places=[RESOURCE],
        issuer_path="/t",
        metadata_places=[f"/t{OPENID}"],
    )
    await oauth_fixture.flow().begin("k", oauth_fixture.target())
    assert [entry["path"] for entry in await oauth_fixture.log("resource metadata")] == [
        f"{RESOURCE}/mcp",
        RESOURCE,
    ]
    assert [entry["path"] for entry in await oauth_fixture.log("metadata")] == [
        f"{SERVER}/t",
        f"{OPENID}/t",
        f"/t{OPENID}",
    ]


async def test_the_resource_is_sent_exactly_as_the_metadata_names_it(
    oauth_fixture: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    await oauth_fixture.set(
        resource_document={"resource": oauth_fixture.url.replace("http:", "HTTP:") + "/mcp"}
    )
    await oauth_fixture.call(oauth_fixture.provider())
    resource_url = oauth_fixture.url.replace("http:", "HTTP:") + "/mcp"
    assert query(oauth_fixture.urls[0])["resource"] == resource_url
    assert [entry["resource"] for entry in await oauth_fixture.log("token")] == [resource_url]


@pytest.mark.parametrize("path", ["", "/", "/mcp", "/mcp/"])
async def test_a_resource_that_contains_the_server_is_its_own(oauth_fixture: OAuthFixture, path: str) -> None:
    await oauth_fixture.set(resource_document={"resource": oauth_fixture.url + path})
    assert (await oauth_fixture.call(oauth_fixture.provider()))["client"].startswith("as1-")


@pytest.mark.parametrize(
    "resource", ["https://evil.example/mcp", "{url}/mc", "{url}/mcp/inner", "{url}/other", "{other}/mcp"]
)
async def test_metadata_of_another_resource_ends_the_sign_in(
    oauth_fixture: OAuthFixture, resource: str
) -> None:
    resource_metadata = resource.format(url=oauth_fixture.url, other=oauth_fixture.origins["as1"])
    await oauth_fixture.set(resource_document={"resource": resource_metadata})
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), ResourceMismatch)
    assert not await oauth_fixture.log("metadata")
    assert not await oauth_fixture.log("authorize")


async def test_the_operator_may_name_another_resource(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(resource_document={"resource": "https://public.example/mcp"})
    await oauth_fixture.call(
        oauth_fixture.provider(oauth_fixture.target(resource="https://public.example/mcp"))
    )
    assert (await oauth_fixture.log("token"))[0]["resource"] == "https://public.example/mcp"


@pytest.mark.parametrize(
    "settings",
    [
        {"resource_places": []},
        {"resource_document": {"authorization_servers": []}},
        {"resource_document": {"authorization_servers": None}},
        {"resource_document": {"resource": None}},
    ],
)
async def test_without_metadata_the_server_is_called_not_compliant(
    oauth_fixture: OAuthFixture, settings: dict[str, Any]
) -> None:
    await oauth_fixture.set(**settings)
    error = await oauth_fixture.failure(oauth_fixture.provider())
    assert isinstance(error, DiscoveryFailed)
    assert "not MCP-compliant" in error.cause
    assert "legacyDiscovery" in (error.hint or "")
    assert not await oauth_fixture.log("register")


@pytest.mark.parametrize("issuer", ["https://honest.example", "{as1}/", "{as1}/x/", "{as1}/tenant", None])
async def test_metadata_of_another_issuer_is_not_used(
    oauth_fixture: OAuthFixture, issuer: str | None
) -> None:
    await oauth_fixture.set(
        issuer_path="/x",
        metadata_places=[f"{SERVER}/x"],
        metadata={"issuer": issuer and issuer.format(as1=oauth_fixture.origins["as1"])},
    )
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), IssuerMismatch)
    assert not await oauth_fixture.log("register")
    assert not await oauth_fixture.log("authorize")


async def test_an_origin_is_the_same_issuer_with_and_without_its_slash(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(
        metadata={"issuer": oauth_fixture.origins["as1"] + "/"}, iss=oauth_fixture.origins["as1"] + "/"
    )
    assert (await oauth_fixture.call(oauth_fixture.provider()))["client"].startswith("as1-")


async def test_a_second_authorization_server_is_used_where_the_first_has_no_metadata(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(
        resource_document={
            "authorization_servers": [oauth_fixture.url + "/none", oauth_fixture.origins["as1"]]
        }
    )
    assert (await oauth_fixture.call(oauth_fixture.provider()))["client"].startswith("as1-")


async def test_of_many_authorization_servers_ten_are_tried_and_that_of_the_entry_first(
    oauth_fixture: OAuthFixture,
) -> None:
    issuers = [f"{oauth_fixture.url}/none{number}" for number in range(10)]
    issuers.append(oauth_fixture.origins["as1"])
    await oauth_fixture.set(resource_document={"authorization_servers": issuers}, entered={"mine": None})
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), DiscoveryFailed)
    target = oauth_fixture.target(client_id="mine", issuer=issuers[-1])
    assert (await oauth_fixture.call(oauth_fixture.provider(target)))["client"] == "mine"


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_without_pkce_sign_in_is_refused(
    oauth_fixture: OAuthFixture, methods: list[str] | None
) -> None:
    await oauth_fixture.set(metadata={"code_challenge_methods_supported": methods})
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), PkceMissing)
    assert not await oauth_fixture.log("register")
    assert not oauth_fixture.urls


async def test_a_server_in_trouble_is_not_called_broken(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(metadata_status=503)
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), AuthUnavailable)
    await oauth_fixture.change(metadata_status=200)
    await oauth_fixture.call(oauth_fixture.provider())


# 2025-03-26.


@pytest.mark.parametrize("places", [[SERVER], []], ids=["metadata at the origin", "no metadata at all"])
async def test_legacy_discovery_finds_old_servers(
    oauth_fixture: OAuthFixture, places: list[str], query: Callable[[str], dict[str, str]]
) -> None:
    await oauth_fixture.set(
        at_origin=True, named_in_header=None, resource_places=[], metadata_places=places, iss=None
    )
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), DiscoveryFailed)
    await oauth_fixture.call(oauth_fixture.provider(oauth_fixture.target(legacy_discovery=True)))
    assert oauth_fixture.urls[0].startswith(f"{oauth_fixture.url}/authorize?")
    assert "resource" not in query(oauth_fixture.urls[0])
    assert query(oauth_fixture.urls[0])["code_challenge_method"] == "S256"


async def test_legacy_discovery_prefers_the_current_specification(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider(oauth_fixture.target(legacy_discovery=True)))
    assert oauth_fixture.urls[0].startswith(oauth_fixture.origins["as1"])


# Addresses.


async def test_no_private_address_is_asked_where_none_is_allowed(oauth_fixture: OAuthFixture) -> None:
    error = await oauth_fixture.failure(oauth_fixture.provider(oauth_fixture.target(private_addresses=False)))
    assert isinstance(error, AddressNotAllowed)
    assert "private" in error.cause
    assert not await oauth_fixture.log("resource metadata")


@pytest.mark.parametrize(
    "endpoint",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://public.example/authorize",
        "//x",
        "https://u:p@x.example/",
    ],
)
async def test_a_browser_is_sent_to_https_only(oauth_fixture: OAuthFixture, endpoint: str) -> None:
    await oauth_fixture.set(metadata={"authorization_endpoint": endpoint})
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), AddressNotAllowed)
    assert not oauth_fixture.urls
