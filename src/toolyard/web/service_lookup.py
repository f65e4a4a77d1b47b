"""Services of the application, looked up by their class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial, update_wrapper
from typing import Annotated, Any, Final, NoReturn, TypeVar, cast

from fastapi import Request
from fastapi.params import Depends

__all__ = ["SERVICE", "ServiceIndex", "get_service"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class _ServiceDependency(Depends):
    """Dependency on the service of the annotated class, which ``ServiceIndex.bind`` resolves."""


async def _refuse_unbound() -> NoReturn:
    raise LookupError("the services of this route are not bound")


SERVICE: Final = _ServiceDependency(_refuse_unbound)
"""Marks a parameter of a route as a service: ``Annotated[Registry, SERVICE]``."""


class ServiceIndex(dict[type, object]):
    """The services by their classes and base classes.

    A service may be of a subclass, as the call path is where traces are recorded. An exact class has
    precedence over a base class.
    """

    def __init__(self, services: Iterable[object] = ()) -> None:
        services = tuple(services)
        by_base = {base: each for each in services for base in type(each).__mro__[1:-1]}
        super().__init__({**by_base, **{type(each): each for each in services}})
        self.bind = cache(self._bind)

    def _bind(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a route function, or a dependency of one, with the services that it uses.

        Services last as long as the application, so that they are bound once; FastAPI resolves the other
        parameters at each request. A class becomes an asynchronous function, because FastAPI would make its
        objects in a thread.
        """
        parameters = list(inspect.signature(call, eval_str=True).parameters.values())
        services: dict[str, object] = {}
        requested: list[inspect.Parameter] = []
        for each in parameters:
            metadata = getattr(each.annotation, "__metadata__", ())
            depends = next((one for one in metadata if isinstance(one, Depends)), None)
            if depends is None:
                requested.append(each)
                continue
            kind = each.annotation.__origin__
            if isinstance(depends, _ServiceDependency):
                services[each.name] = self[kind]
            else:
                bound = replace(depends, dependency=self.bind(depends.dependency or kind))
                requested.append(each.replace(annotation=Annotated[kind, bound]))
        if requested == parameters and not inspect.isclass(call):
            return call
        bound_call = partial(_make, call, **services) if inspect.isclass(call) else partial(call, **services)
        update_wrapper(bound_call, call, assigned=("__name__", "__doc__"), updated=())
        bound_call.__signature__ = inspect.Signature(requested)  # pyright: ignore[reportAttributeAccessIssue]
        return bound_call


async def _make(kind: Callable[..., Any], /, **values: Any) -> Any:
    return kind(**values)


def get_service(request: Request, kind: type[_T]) -> _T:
    """Return the service of this class. Route handlers declare it as a parameter instead."""
    return cast("_T", request.app.state.services[kind])
