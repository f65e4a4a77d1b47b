"""Services of the application, looked up by their class."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from fastapi import Depends, Request

__all__ = ["get_service", "uses"]

_T = TypeVar("_T")


def get_service(request: Request, kind: type[_T]) -> _T:
    """Return the service of this class. Route handlers declare it as a parameter instead."""
    return cast("_T", request.app.state.services[kind])


def uses(kind: type[_T]) -> Any:
    """Return the route dependency on the service of a class."""

    # Asynchronous, because FastAPI would run a plain function in a thread.
    async def get(request: Request) -> _T:
        return request.app.state.services[kind]

    return Depends(get)
