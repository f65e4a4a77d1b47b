"""The gateway inside the web application: authentication of MCP clients and their endpoints by URL."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard.accounts import AccountService
from toolyard.accounts.errors import NotAllowed, NotSignedIn, ProviderFailed
from toolyard.accounts.random_secrets import is_token
from toolyard.clients import ConnectionManager
from toolyard.concurrency.lru_cache import LruCache
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.agents import AgentRoster
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import AgentsError, ConfigError
from toolyard.gateway.caller_view import gateway_caller, limit_scope_to_server
from toolyard.gateway.endpoint import Endpoint, make_endpoint
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.http.app import HttpGateway, HttpRequestRejected
from toolyard.gateway.http.event_streams import StreamLimits
from toolyard.gateway.http.exchange import HttpExchange
from toolyard.meta_tools import ToolMode
from toolyard.policy.rules import scope_covers_server
from toolyard.protocol.constants import INTERNAL_ERROR
from toolyard.store.errors import DatabaseUnavailable
from toolyard.types.account import Principal, RequestUser, Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.web.access.authentication import parse_bearer_token, require_right
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY, RequestContext
from toolyard.web.middleware import request_body
from toolyard.web.problem_details import build_refusal_response
from toolyard.web.protected_resource import GATEWAY_PREFIX, ResourceServer

__all__ = ["ADMISSION_CACHE_SECONDS", "GatewayFirstApp", "GatewayMount"]

_GATEWAY_PATHS = f"{GATEWAY_PREFIX}/"
_ENDPOINT_CACHE_ENTRIES = 1024
_ADMISSION_CACHE_ENTRIES = 4096
_MAX_CACHE_KEY_CHARACTERS = 8_192
"""Maximum length of a cache key (token, path, query). Longer requests are authenticated every time."""
ADMISSION_CACHE_SECONDS = 1.0
DATABASE_UNAVAILABLE_MESSAGE = "Toolyard's database is not available. Try again later."
"""Message for callers that are not authenticated yet. The details are only logged."""
log = logging.getLogger("toolyard.web")
_require_call_right = require_right(Right.CALL)
_TOOL_MODES: tuple[ToolMode, ...] = ("direct", "meta")


class GatewayFirstApp(FastAPI):
    """FastAPI application that dispatches gateway requests before routing.

    Gateway requests are frequent. They pass the same guard as all others, but skip FastAPI's routing and
    dependency handling.
    """

    gateway: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(_GATEWAY_PATHS):
            scope["app"] = self
            await self.gateway(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _GatewayRoute:
    """Stand-in for a route object, so that metrics can label gateway requests by path template."""

    path: str


_ROUTES_BY_KIND = {
    "all": _GatewayRoute(GATEWAY_PREFIX),
    **{
        kind: _GatewayRoute(f"{GATEWAY_PREFIX}/{kind}/{{name}}")
        for kind in ("agents", "bundles", "servers", "instances")
    },
}


_Admission: TypeAlias = tuple[float, RequestUser, Endpoint]
"""Time until which it is valid on the monotonic clock, authenticated user, endpoint."""


class GatewayMount:
    """ASGI application of the gateway. Authenticates callers and caches an endpoint for each."""

    def __init__(
        self,
        gateway: Gateway,
        resource: ResourceServer,
        settings: Settings,
        config: CurrentConfig,
        roster: AgentRoster,
        manager: ConnectionManager,
        instances: InstanceSync,
        audit: AuditRecorder,
        people: AccountService,
        body_limits: request_body.RequestBodyLimits,
        stream_limits: StreamLimits,
        admission_cache_seconds: float = ADMISSION_CACHE_SECONDS,
    ) -> None:
        self.gateway = gateway
        self.admission_cache_seconds = admission_cache_seconds
        """Time for which a token and its owner's instances are not looked up again."""
        self._resource = resource
        self._settings = settings
        self._config = config
        self._roster = roster
        self._manager = manager
        self._instances = instances
        self._audit = audit
        self._people = people
        self._body_limits = body_limits
        self.http_gateway = HttpGateway(self.admit, stream_limits)
        self._endpoints: LruCache[tuple[object, ...], Endpoint] = LruCache(_ENDPOINT_CACHE_ENTRIES)
        self._admissions: LruCache[tuple[object, ...], _Admission] = LruCache(_ADMISSION_CACHE_ENTRIES)
        self._invalidation_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Read by the metrics middleware.
        scope["route"] = _ROUTES_BY_KIND.get(
            scope["path"][len(GATEWAY_PREFIX) + 1 :].partition("/")[0] or "all"
        )
        # The gateway reads the body only after ``admit`` has authenticated the caller.
        body = request_body.RequestBody(self._body_limits, scope, receive, request_body.MAX_API_BYTES)
        headers = scope[REQUEST_CONTEXT_KEY].headers
        try:
            await self.http_gateway.handle(HttpExchange(scope, headers, receive, send, body.read))
        except request_body.BodyRefused as refused:
            await build_refusal_response(refused.problem, scope, refused.headers)(scope, receive, send)
        except request_body.ClientDisconnected:
            pass
        finally:
            # The memory is counted until now, because a call holds its arguments until it ends.
            body.release()

    async def admit(self, scope: Any) -> Endpoint:
        """Authenticate a request and return its endpoint. Raises HttpRequestRejected."""
        context: RequestContext = scope[REQUEST_CONTEXT_KEY]
        path, query, headers = scope["path"], scope["query_string"], context.headers
        authorization, cookie = headers.get("authorization"), headers.get("cookie")
        key = (authorization, cookie, path, query, context.address, self._config.revision)
        admission = self._admissions.peek(key)
        if admission is None or admission[0] <= time.monotonic():
            admission = await self._admit_anew(scope)
            # An invalidation during the look-up makes its result stale, so it must not be cached.
            is_short = len(authorization or "") + len(path) + len(query) <= _MAX_CACHE_KEY_CHARACTERS
            if admission[0] and is_short and self._is_cacheable(authorization, cookie):
                self._admissions[key] = admission
        context.user_id = admission[1].user.id
        self._audit.set_current_user(admission[1])
        return admission[2]

    async def _admit_anew(self, scope: Any) -> _Admission:
        """Return an admission, with the time until which it is valid: 0 if it was invalidated meanwhile."""
        invalidation_count = self._invalidation_count
        try:
            request_user = await self._authenticate_request(scope)
            await self._people.record_client(request_user.user)
            await self._instances.sync(request_user.principal)
            kind, name = _parse_gateway_path(scope)
            agent = await self._roster.find(request_user.user.id, name) if kind == "agents" else None
        except AgentsError:
            raise _build_not_found_error() from None
        except DatabaseUnavailable as error:
            log.warning("gateway request refused: %s", error.cause)
            headers = {"Retry-After": f"{error.retry_after:.0f}"}
            raise HttpRequestRejected(503, DATABASE_UNAVAILABLE_MESSAGE, headers, INTERNAL_ERROR) from None
        endpoint = self._get_endpoint(request_user, kind, name, agent, _parse_mode(scope))
        is_valid = invalidation_count == self._invalidation_count
        return time.monotonic() + self.admission_cache_seconds if is_valid else 0.0, request_user, endpoint

    @property
    def admission_count(self) -> int:
        """Number of cached admissions."""
        return len(self._admissions)

    def clear_admissions(self) -> None:
        """Authenticate every caller again on their next request."""
        self._invalidation_count += 1
        self._admissions.clear()

    def _is_cacheable(self, authorization: str | None, cookie: str | None) -> bool:
        """Return whether the admission of a request may be cached under its credentials and address.

        These have to determine the caller. One of our API tokens does so alone, and so does mode ``none``
        without credentials. Cookies, a proxy's header, and access tokens, whose audience depends on the Host
        header, are checked on every request.
        """
        if cookie is not None:
            return False
        if authorization is None:
            return self._settings.people_mode is PeopleMode.NONE
        token = parse_bearer_token(authorization)
        return token is not None and is_token(token)

    async def _authenticate_request(self, scope: Any) -> RequestUser:
        # The user is cached in the request state. A fresh state is needed, because the same scope is
        # authenticated again while a client listens on it.
        request = Request({**scope, "state": {}})
        try:
            user = await self._resource.authenticate(request) if self._resource.is_enabled else None
            return user or await _require_call_right(request)
        except NotSignedIn as error:
            raise HttpRequestRejected(
                401, str(error), self._resource.build_challenge(scope, error.cause)
            ) from None
        except ProviderFailed as error:
            raise HttpRequestRejected(503, str(error)) from None
        except NotAllowed as error:
            raise HttpRequestRejected(403, str(error)) from None
        except HTTPException as error:
            raise HttpRequestRejected(error.status_code, str(error.detail)) from None

    def _get_endpoint(
        self, request_user: RequestUser, kind: str, name: str, agent: Agent | None, mode: ToolMode | None
    ) -> Endpoint:
        key = (request_user.principal, request_user.scope, kind, name, agent, mode, self._config.revision)
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = self._create_endpoint(
                request_user.principal, request_user.scope, kind, name, agent, mode
            )
        return endpoint

    def _create_endpoint(
        self,
        principal: Principal,
        scope: TokenScope | None,
        kind: str,
        name: str,
        agent: Agent | None,
        mode: ToolMode | None,
    ) -> Endpoint:
        only = None
        if kind in ("servers", "instances"):
            # In the core, the id of an instance contains its owner.
            only = name if kind == "servers" else f"@{principal.id}/{name}"
            server = self._manager.visible_servers(principal).get(only)
            if server is None or not scope_covers_server(scope, server):
                raise _build_not_found_error()
            scope = limit_scope_to_server(scope, server)
        try:
            caller = gateway_caller(
                self._config.configuration.bundles,
                principal=principal,
                scope=scope,
                agent=agent,
                bundles=(name,) if kind == "bundles" else (),
            )
        except ConfigError:
            raise _build_not_found_error() from None
        return make_endpoint(self.gateway, caller, only, mode)

    def stop(self) -> None:
        """End the streams that only deliver notifications."""
        self.gateway.shutdown.set()
        self.http_gateway.end_listen_streams()

    async def close(self) -> None:
        """End pending requests. Must be called before the server connections are closed."""
        await self.gateway.close()
        await self.http_gateway.close()


def _parse_gateway_path(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind (all, agents, bundles, servers or instances) and the name in a gateway path.

    Raises HttpRequestRejected.
    """
    path = scope["path"].removeprefix(GATEWAY_PREFIX).strip("/")
    if not path:
        return "all", ""
    kind, _, name = path.partition("/")
    if kind not in ("agents", "bundles", "servers", "instances") or not name or "/" in name:
        raise _build_not_found_error()
    return kind, name


def _parse_mode(scope: Mapping[str, Any]) -> ToolMode | None:
    """Return the tool mode of the ``?mode=`` parameter. Raises HttpRequestRejected for an unknown mode."""
    modes = parse_qs(scope["query_string"].decode("latin-1")).get("mode")
    if modes is None:
        return None
    for mode in _TOOL_MODES:
        if modes == [mode]:
            return mode
    raise HttpRequestRejected(400, "unknown mode: use ?mode=direct or ?mode=meta")


def _build_not_found_error() -> HttpRequestRejected:
    """Return the same error for missing and for forbidden names, so that neither can be told apart."""
    return HttpRequestRejected(404, "no MCP endpoint at this address")
