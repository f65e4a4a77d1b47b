"""The gateway in the web app: who comes to which address, and what they get there."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolyard.accounts.api_tokens import is_token
from toolyard.accounts.errors import NotAllowed, NotSignedIn, ProviderFailed
from toolyard.config.settings.choices import PeopleMode
from toolyard.errors import AgentsError, ConfigError
from toolyard.gateway.callers import gateway_caller, narrowed
from toolyard.gateway.endpoint import Front
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.http.app import HttpGateway, TurnedAway
from toolyard.gateway.input_required.request_state import Sealer
from toolyard.meta import Mode
from toolyard.policy.rules.token_scope import covers
from toolyard.protocol.constants import INTERNAL_ERROR
from toolyard.store.errors import DatabaseUnavailable
from toolyard.types.account import Right, TokenScope
from toolyard.types.principal import Principal
from toolyard.web.access.dependencies import Visitor, bearer_token, needs
from toolyard.web.access.request_context import passage_of
from toolyard.web.middleware.refusals import refusal_response
from toolyard.web.middleware.request_body import BodyRefused, Gone, RequestBody
from toolyard.web.protected_resource import ResourceServer

if TYPE_CHECKING:
    from toolyard.web.services import Site

__all__ = ["PREFIX", "McpDoor", "is_gateway"]

PREFIX = "/mcp"
_FRONTS = 1024
_ADMITTED = 4096
_SHORT = 8_192
"""Characters of a token and an address that are remembered; whoever sends more is looked up each time."""
_FRESH = 1.0
"""Seconds for which a token that was just looked up needs no second look, nor its owner's instances."""
_CREDENTIALS = (b"authorization", b"cookie")
UNAVAILABLE = "Toolyard's database is not available. Try again later."
"""Sent to callers who are not known yet: the details are in the log."""
log = logging.getLogger("toolyard.web")
_calling = needs(Right.CALL)
_MODES: tuple[Mode, ...] = ("direct", "meta")


@dataclass(frozen=True, slots=True)
class _Route:
    path: str


_ROUTES = {
    "all": _Route(PREFIX),
    **{kind: _Route(f"{PREFIX}/{kind}/{{name}}") for kind in ("agents", "bundles", "servers", "instances")},
}


class McpDoor:
    """Gives each caller their front, and keeps it for the next request."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.resource = ResourceServer(site)
        sealer = Sealer(site.database.cipher.derive("gateway requestState 1"))
        self.gateway = Gateway(site.parts, sealer, site.approvals, site.database.letters)
        self.app = HttpGateway(self.admit)
        self._fronts: OrderedDict[tuple[object, ...], Front] = OrderedDict()
        self._admitted: OrderedDict[tuple[object, ...], tuple[float, Visitor, Front]] = OrderedDict()
        self._forgotten = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # For those who count requests by route.
        scope["route"] = _ROUTES.get(scope["path"][len(PREFIX) + 1 :].partition("/")[0] or "all")
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        # Read when the gateway asks for it, which it does once ``admit`` has let the caller in.
        body = RequestBody(self._site.bodies, scope, receive)
        try:
            await self.app(scope, body.receive, send)
        except BodyRefused as refused:
            await refusal_response(refused.refusal, scope, refused.headers)(scope, receive, send)
        except Gone:
            pass
        finally:
            body.release()

    async def admit(self, scope: Any) -> Front:
        """The front for a request. Raises TurnedAway."""
        try:
            return await self._admit(scope)
        except DatabaseUnavailable as error:
            log.warning("a request to the gateway is refused: %s", error.cause)
            headers = {"Retry-After": f"{error.retry_after:.0f}"}
            raise TurnedAway(503, UNAVAILABLE, headers, INTERNAL_ERROR) from None

    async def _admit(self, scope: Any) -> Front:
        key = self._key(scope)
        known = None if key is None else self._admitted.get(key)
        if known is not None and known[0] > time.monotonic():
            self._enter(scope, known[1])
            return known[2]
        forgotten = self._forgotten
        visitor = await self._visitor(scope)
        await self._site.enter(visitor)
        self._enter(scope, visitor)
        front = self._kept(visitor, *_address(scope), _mode(scope))
        # What was looked up before something changed may be out of date by now.
        if key is not None and forgotten == self._forgotten:
            self._admitted[key] = (time.monotonic() + _FRESH, visitor, front)
            self._admitted.move_to_end(key)
            if len(self._admitted) > _ADMITTED:
                self._admitted.popitem(last=False)
        return front

    def _enter(self, scope: Any, visitor: Visitor) -> None:
        passage_of(scope).owner = visitor.user.id
        self._site.visiting(visitor)

    def forget(self) -> None:
        """Whoever comes next is looked up."""
        self._forgotten += 1
        self._admitted.clear()

    def _key(self, scope: Any) -> tuple[object, ...] | None:
        """Return the cache key of a request, or None if its admission must not be cached.

        A key has to hold everything that decides who the caller is. An API token of ours decides that alone,
        and so does the mode ``none`` without credentials. Cookies, a proxy's header and access tokens, whose
        audience depends on the Host header, are looked up for every request.
        """
        credentials = [value for name, value in scope["headers"] if name in _CREDENTIALS]
        if credentials:
            (first, *more) = credentials
            token = bearer_token(first.decode("latin-1"))
            if more or token is None or not is_token(token):
                return None
        elif self._site.settings.people_mode is not PeopleMode.NONE:
            return None
        said = (*credentials, scope["path"], scope["query_string"])
        if sum(map(len, said)) > _SHORT:
            return None
        return (*said, passage_of(scope).address, self._site.edition)

    async def _visitor(self, scope: Any) -> Visitor:
        # What was found out for a request is kept with it, and one that listens is asked about again.
        request = Request({**scope, "state": {}})
        try:
            known = await self.resource.visitor(request) if self.resource.is_one else None
            return known or await _calling(request)
        except NotSignedIn as error:
            raise TurnedAway(401, str(error), self.resource.challenge(scope, error.cause)) from None
        except ProviderFailed as error:
            raise TurnedAway(503, str(error)) from None
        except NotAllowed as error:
            raise TurnedAway(403, str(error)) from None
        except HTTPException as error:
            raise TurnedAway(error.status_code, str(error.detail)) from None

    def _kept(self, visitor: Visitor, kind: str, name: str, mode: Mode | None) -> Front:
        key = (visitor.principal, visitor.scope, kind, name, mode, self._site.edition)
        front = self._fronts.get(key)
        if front is None:
            front = self._fronts[key] = self._front(visitor.principal, visitor.scope, kind, name, mode)
            if len(self._fronts) > _FRONTS:
                self._fronts.popitem(last=False)
        return front

    def _front(
        self, principal: Principal, scope: TokenScope | None, kind: str, name: str, mode: Mode | None
    ) -> Front:
        only = None
        if kind in ("servers", "instances"):
            only = name if kind == "servers" else f"@{principal.id}/{name}"
            server = self._site.parts.manager.visible(principal).get(only)
            if server is None or not covers(scope, server):
                raise _nothing_here()
            scope = narrowed(scope, server)
        try:
            caller = gateway_caller(
                self._site.agents,
                self._site.configuration.bundles,
                principal=principal,
                scope=scope,
                agent=name if kind == "agents" else None,
                bundles=(name,) if kind == "bundles" else (),
            )
        except (AgentsError, ConfigError):
            raise _nothing_here() from None
        return Front(self.gateway, caller, only, mode)

    def stop(self) -> None:
        """Streams that only listen end now."""
        self.gateway.closing.set()
        self.app.stop()

    async def close(self) -> None:
        """End what waits, before the connections close."""
        await self.gateway.close()
        await self.app.close()


def is_gateway(scope: Scope) -> bool:
    """Whether a request goes to the gateway."""
    path: str = scope.get("path", "")
    return scope["type"] == "http" and (path == PREFIX or path.startswith(f"{PREFIX}/"))


def _address(scope: Mapping[str, Any]) -> tuple[str, str]:
    """What an address is of: everything, or one agent, bundle, server or instance. Raises TurnedAway."""
    path = scope["path"].removeprefix(PREFIX).strip("/")
    if not path:
        return "all", ""
    kind, _, name = path.partition("/")
    if kind not in ("agents", "bundles", "servers", "instances") or not name or "/" in name:
        raise _nothing_here()
    return kind, name


def _mode(scope: Mapping[str, Any]) -> Mode | None:
    """What ``?mode=`` says. Raises TurnedAway for anything else than the two that there are."""
    given = parse_qs(scope["query_string"].decode("latin-1")).get("mode")
    if given is None:
        return None
    for mode in _MODES:
        if given == [mode]:
            return mode
    raise TurnedAway(400, "there is no such mode: direct and meta there are")


def _nothing_here() -> TurnedAway:
    """The same for what there is not and for what this caller may not use."""
    return TurnedAway(404, "there is nothing at this address")
