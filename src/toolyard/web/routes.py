"""Routes of the web app, found by the section of their path, and analysed by FastAPI at their first request.

FastAPI analyses the parameters and models of a route when it is created, and again when its router is
included. For all our routes that took a fifth of the time until the server listened, and another twentieth to
compile their paths. It also tries one route after the other, of which there are 200.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.convertors import Convertor
from starlette.routing import BaseRoute, Match, Route, compile_path
from starlette.types import Receive, Scope, Send

from toolyard.web.service_lookup import ServiceIndex

__all__ = ["LazyRoute", "RouteIndex", "Routes", "list_routes"]

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class LazyRoute(Route):
    """Route that matches like Starlette's, and is handled by an ``APIRoute`` made at the first request."""

    methods: set[str]
    services: ServiceIndex | None = None
    """Services for the route's function. Without them, it can only be described."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], methods: Sequence[str], options: dict[str, Any]
    ) -> None:
        # Not Starlette's, which would compile the path.
        self.path = path
        self.endpoint = endpoint
        self.methods = set(methods)
        self._options = options

    @cached_property
    def _compiled_path(self) -> tuple[re.Pattern[str], str, dict[str, Convertor[Any]]]:
        return compile_path(self.path)

    @property
    def path_regex(self) -> re.Pattern[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._compiled_path[0]

    @property
    def param_convertors(self) -> dict[str, Convertor[Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._compiled_path[2]

    @cached_property
    def api_route(self) -> APIRoute:
        """The route with its parameters and models. The operation id is the name of its function."""
        return APIRoute(
            self.path,
            self.endpoint if self.services is None else self.services.bind(self.endpoint),
            methods=self.methods,
            generate_unique_id_function=lambda route: route.name,
            **self._options,
        )


class RouteIndex(BaseRoute):
    """All routes, by section: the first two segments of their path, three below ``/api``.

    Within a section, those with as many segments as the path are tried in order, as Starlette does.
    """

    def __init__(self, routes: Sequence[LazyRoute], services: ServiceIndex | None = None) -> None:
        self.routes = routes
        self._by_section: dict[str, list[tuple[LazyRoute, int | None]]] = {}
        """With the number of slashes; None if a parameter can contain some."""
        for route in routes:
            route.services = services
            section = _get_section(route.path)
            if "{" in section:
                raise ValueError(f"{route.path}: its section, {section}, cannot contain a parameter")
            slashes = None if ":path}" in route.path else route.path.count("/")
            self._by_section.setdefault(section, []).append((route, slashes))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        given, method = scope["path"].count("/"), scope["method"]
        routes = self._by_section.get(_get_section(scope["path"]), ())
        candidates = [route for route, slashes in routes if slashes in (None, given)]
        # A route for another method matches partially, which counts only if none for the method matches.
        for is_for_method in (True, False):
            for route in candidates:
                if (method in route.methods) is is_for_method:
                    match, child_scope = route.matches(scope)
                    if match is not Match.NONE:
                        return match, {**child_scope, "route": route}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = scope["route"]
        if "api_route" not in vars(route):
            # The first of all routes takes longest, up to 20 ms.
            await asyncio.to_thread(getattr, route, "api_route")
        await route.api_route.handle(scope, receive, send)


def _get_section(path: str) -> str:
    segments = path.split("/", 4)
    return "/".join(segments[: 4 if segments[1:2] == ["api"] else 3])


def list_routes(app: Starlette) -> list[LazyRoute]:
    """Return the routes of an application, in order."""
    return [route for index in app.routes if isinstance(index, RouteIndex) for route in index.routes]


class Routes:
    """Collects route functions by decorators, as FastAPI's ``APIRouter`` does.

    Routes have the tags and dependencies of the collection before their own. Other options are those of
    ``APIRoute``.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        tags: Sequence[str] = (),
        dependencies: Sequence[Depends] = (),
        include_in_schema: bool = True,
    ) -> None:
        self._prefix = prefix
        self._tags = tags
        self._dependencies = dependencies
        self._include_in_schema = include_in_schema
        self._definitions: list[tuple[str, Callable[..., Any], Sequence[str], dict[str, Any]]] = []

    def route(
        self,
        path: str,
        *,
        methods: Sequence[str],
        tags: Sequence[str] = (),
        dependencies: Sequence[Depends] = (),
        include_in_schema: bool = True,
        **options: Any,
    ) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function as a route."""
        options["tags"] = [*self._tags, *tags]
        options["dependencies"] = [*self._dependencies, *dependencies]
        options["include_in_schema"] = self._include_in_schema and include_in_schema

        def add(endpoint: _Endpoint) -> _Endpoint:
            self._definitions.append((self._prefix + path, endpoint, methods, options))
            return endpoint

        return add

    def get(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function as a route for GET."""
        return self.route(path, methods=["GET"], **options)

    def post(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function as a route for POST."""
        return self.route(path, methods=["POST"], **options)

    def patch(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function as a route for PATCH."""
        return self.route(path, methods=["PATCH"], **options)

    def delete(self, path: str, **options: Any) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function as a route for DELETE."""
        return self.route(path, methods=["DELETE"], **options)

    def include(self, other: Routes) -> None:
        """Add the routes of another collection after those that are there."""
        for path, endpoint, methods, options in other._definitions:
            self.route(path, methods=methods, **options)(endpoint)

    def build(self) -> list[LazyRoute]:
        """Return the routes for an application."""
        return [LazyRoute(*definition) for definition in self._definitions]
