"""Fields of registry records that the API shows and accepts.

A new field of a record has to be added to a list here, by somebody who has decided who may see and set it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI

from toolyard.types.registry import AuthChoice, Instance, RegistryServer, record_fields
from toolyard.web import api
from toolyard.web.api.openapi import build_openapi_document
from toolyard.web.routes import RouteIndex

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp

SHOWN_FIELDS = {
    "ServerShown": "id name url transport trust enabled description private_addresses allow_tools deny_tools "
    "choices created_at updated_at instance_count preview",
    "ChoiceShown": "id kind label place key registration client_id has_client_secret scopes resource "
    "legacy_discovery issuer issuer_redirect",
    "InstanceShown": "id server_id choice_id slug name enabled tool_filter has_value created_at updated_at "
    "server_name auth status",
}
NULL_FOR_USERS = {"instance_count", "client_id"}
"""Fields with a value for admins only."""
ACCEPTED_FIELDS = {
    "ServerGiven": "name url transport trust description private_addresses allow_tools deny_tools choices "
    "enabled",
    "ServerChanges": "name url transport trust description private_addresses allow_tools deny_tools choices "
    "enabled",
    "ChoiceGiven": "id kind label place key registration client_id client_secret scopes resource "
    "legacy_discovery issuer issuer_redirect",
    "InstanceGiven": "server_id choice_id slug name tool_filter value enabled",
    "InstanceChanges": "choice_id slug name tool_filter value enabled",
}
ROUTES_THAT_SHOW = {
    "ServerShown": "list_servers get_server add_server edit_server enable_server disable_server "
    "confirm_server_issuer add_known_server",
    "InstanceShown": "list_instances get_instance create_instance edit_instance enable_instance "
    "disable_instance test_instance",
}
ROUTES_THAT_SET = {
    "ServerGiven": "add_server",
    "ServerChanges": "edit_server",
    "InstanceGiven": "create_instance",
    "InstanceChanges": "edit_instance",
}
NEVER_SHOWN = {RegistryServer: "", AuthChoice: "client_secret", Instance: "user_id value state reason"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    application = FastAPI(routes=[RouteIndex(api.router.build())])
    return build_openapi_document(application)


def references(value: Any, schemas: dict[str, Any], reference_names: set[str]) -> set[str]:
    """Names of all schemas that a part of the document refers to, also through others."""
    if isinstance(value, dict):
        name = str(value.get("$ref", "")).removeprefix("#/components/schemas/")
        if name in schemas and name not in reference_names:
            reference_names.add(name)
            references(schemas[name], schemas, reference_names)
        for each in value.values():
            references(each, schemas, reference_names)
    elif isinstance(value, list):
        for each in value:
            references(each, schemas, reference_names)
    return reference_names


def routes_with(document: dict[str, Any], part: str, name: str) -> set[str]:
    """Operations in whose requests or responses a schema occurs."""
    schemas = document["components"]["schemas"]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    return {
        operation["operationId"]
        for operation in operations
        if name in references(operation.get(part, {}), schemas, set())
    }


@pytest.mark.parametrize("name", SHOWN_FIELDS)
def test_a_response_has_exactly_these_fields(document: dict[str, Any], name: str) -> None:
    assert set(document["components"]["schemas"][name]["properties"]) == set(SHOWN_FIELDS[name].split())


@pytest.mark.parametrize("name", ACCEPTED_FIELDS)
def test_a_request_has_exactly_these_fields(document: dict[str, Any], name: str) -> None:
    assert set(document["components"]["schemas"][name]["properties"]) == set(ACCEPTED_FIELDS[name].split())


@pytest.mark.parametrize("name", ROUTES_THAT_SHOW)
def test_exactly_these_routes_show_a_record(document: dict[str, Any], name: str) -> None:
    assert routes_with(document, "responses", name) == set(ROUTES_THAT_SHOW[name].split())


@pytest.mark.parametrize("name", ROUTES_THAT_SET)
def test_exactly_these_routes_set_a_record(document: dict[str, Any], name: str) -> None:
    assert routes_with(document, "requestBody", name) == set(ROUTES_THAT_SET[name].split())


@pytest.mark.parametrize("record", NEVER_SHOWN)
def test_every_field_of_a_record_is_shown_or_listed_as_hidden(record: type[Any]) -> None:
    names = {RegistryServer: "ServerShown", AuthChoice: "ChoiceShown", Instance: "InstanceShown"}
    shown_fields = set(SHOWN_FIELDS[names[record]].split())
    assert {each.name for each in fields(record)} - shown_fields == set(NEVER_SHOWN[record].split())


@pytest.mark.parametrize("record", NEVER_SHOWN)
def test_secrets_are_not_in_the_text_of_a_record(record: type[Any]) -> None:
    by_name = {each.name: each for each in fields(record)}
    assert all(not by_name[each.name].repr for each in record_fields(record) if each.spec.secret)


async def test_responses_give_users_the_same_fields_with_null_for_those_of_admins(
    password_site: InProcessApp,
) -> None:
    admin = (await password_site.person("root", "admin")).token
    user = (await password_site.person("ada")).token
    choice = {"kind": "oauth", "registration": "entered", "client_id": "us", "client_secret": "hidden"}
    body = {"name": "GitHub", "url": "https://mcp.example.com/mcp", "choices": [choice]}
    added_server = (await admin.post("/api/v1/servers", body)).json
    place = f"/api/v1/servers/{added_server['id']}"

    for client, hidden in ((admin, set[str]()), (user, NULL_FOR_USERS)):
        items = (await client.get("/api/v1/servers")).json["items"]
        for server in (*items, (await client.get(place)).json):
            [one] = server["choices"]
            assert set(server) == set(SHOWN_FIELDS["ServerShown"].split())
            assert set(one) == set(SHOWN_FIELDS["ChoiceShown"].split())
            values = {**one, **server}
            assert {name for name in NULL_FOR_USERS if values[name] is None} == hidden


async def test_a_user_sets_the_fields_of_their_instance_and_no_others(password_site: InProcessApp) -> None:
    admin = (await password_site.person("root", "admin")).token
    user = (await password_site.person("ada")).token
    choice = {"kind": "header", "key": "X-Key"}
    body = {"name": "GitHub", "url": "https://mcp.example.com/mcp", "choices": [choice]}
    server = (await admin.post("/api/v1/servers", body)).json
    instance_draft = {
        "server_id": server["id"],
        "choice_id": server["choices"][0]["id"],
        "slug": "work",
        "name": "Work",
        "tool_filter": ["read"],
        "value": "hidden",
        "enabled": False,
    }
    assert set(instance_draft) == set(ACCEPTED_FIELDS["InstanceGiven"].split())
    answer = await user.post("/api/v1/instances", instance_draft)
    assert answer.status == 201, answer.text
    assert set(answer.json) == set(SHOWN_FIELDS["InstanceShown"].split())
    assert {name: answer.json.get(name, "hidden") for name in instance_draft} == instance_draft
    place = f"/api/v1/instances/{answer.json['id']}"
    others = {each.name for each in record_fields(Instance)} - set(ACCEPTED_FIELDS["InstanceChanges"].split())
    for name in sorted(others):
        assert (await user.patch(place, {name: "x"})).status == 422, name
    for method, path in (("POST", "/api/v1/servers"), ("PATCH", f"/api/v1/servers/{server['id']}")):
        assert (await user.ask(method, path, {"name": "N", "url": "https://x.example"})).status == 403
