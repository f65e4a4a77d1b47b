"""Services of the application, looked up by their class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from fastapi import Depends, Request

__all__ = ["get_service", "index_services", "uses"]

_T = TypeVar("_T")


def index_services(services: Iterable[object]) -> dict[type, object]:
    """Return the services by their classes and base classes.

    A service may be of a subclass, as the call path is where traces are recorded. An exact class has
    precedence over a base class.
    """
    services = tuple(services)
    by_base = {base: each for each in services for base in type(each).__mro__[1:-1]}
    return {**by_base, **{type(each): each for each in services}}


def get_service(request: Request, kind: type[_T]) -> _T:
    """Return the service of this class. Route handlers declare it as a parameter instead."""
    return cast("_T", request.app.state.services[kind])


def uses(kind: type[_T]) -> Any:
    """Return the route dependency on the service of a class."""

    # Asynchronous, because FastAPI would run a plain function in a thread.
    async def get(request: Request) -> _T:
        return request.app.state.services[kind]

    return Depends(get)
