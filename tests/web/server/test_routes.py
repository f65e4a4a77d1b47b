"""Routes of the web app are analysed when they are needed, and all of them can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Request
from tests.web.conftest import InProcessApp

from toolyard.web.routes import RouteIndex, Routes, list_routes
from toolyard.web.service_lookup import SERVICE, ServiceIndex


def list_analysed_routes(app: FastAPI) -> list[str]:
    return [each.path for each in list_routes(app) if "api_route" in vars(each)]


async def test_a_route_is_analysed_at_its_first_request(local_site: InProcessApp) -> None:
    assert list_analysed_routes(local_site.app) == []
    for _ in range(2):
        assert (await local_site.client().get("/api/v1/status")).status == 200
        assert list_analysed_routes(local_site.app) == ["/api/v1/status"]


def test_every_route_can_be_analysed(local_site: InProcessApp) -> None:
    routes = [each.api_route for each in list_routes(local_site.app)]
    assert len(routes) > 150
    assert all(each.dependant.call is each.endpoint for each in routes)


async def test_of_routes_with_one_path_the_method_decides(local_site: InProcessApp) -> None:
    client = local_site.client()
    response = await client.ask("DELETE", "/api/v1/tokens")
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD, POST")
    assert (await client.get("/api/v1/tokens")).status == 200
    assert (await client.get("/api/v1/tokens/one/two")).status == 404


def test_a_parameter_in_the_section_of_a_path_is_refused() -> None:
    collection = Routes("/ui")

    @collection.get("/{name}")
    def get_thing(name: str) -> None: ...

    with pytest.raises(ValueError, match="section"):
        RouteIndex(collection.build())


def test_a_collection_adds_its_prefix_tags_and_dependencies_before_those_of_a_route() -> None:
    def outer(request: Request) -> None: ...
    def inner(request: Request) -> None: ...

    collection = Routes("/things", tags=["things"], dependencies=[Depends(outer)])

    @collection.get("/{id}", tags=["more"], dependencies=[Depends(inner)], include_in_schema=False)
    def get_thing(id: str) -> None: ...

    above = Routes("/api")
    above.include(collection)
    (route,) = above.build()
    api_route = route.api_route
    assert (api_route.path, api_route.methods, api_route.unique_id) == (
        "/api/things/{id}",
        {"GET"},
        "get_thing",
    )
    assert api_route.tags == ["things", "more"]
    assert [each.call for each in api_route.dependant.dependencies] == [outer, inner]
    assert not api_route.include_in_schema


class Greeter:
    """A service."""


@dataclass
class Page:
    """Parts of a page."""

    request: Request
    greeter: Annotated[Greeter, SERVICE]


async def test_services_are_bound_once_and_a_page_is_made_in_the_event_loop() -> None:
    collection, greeter = Routes("/things"), Greeter()

    @collection.get("/new/{id}")
    async def get_thing(id: str, page: Annotated[Page, Depends()]) -> None: ...

    services = ServiceIndex([greeter])
    (route,) = RouteIndex(collection.build(), services).routes
    (dependency,) = route.api_route.dependant.dependencies
    assert dependency.dependencies == []
    assert dependency.call is services.bind(Page)
    request = Request({"type": "http"})
    assert await services.bind(Page)(request=request) == Page(request, greeter)
