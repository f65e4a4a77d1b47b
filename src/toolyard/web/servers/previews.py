"""Preview of a registry server: its tools, resources and prompts, or the error, and its icon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.catalog.tool_validation import validate_tools
from toolyard.clients import ConnectionManager
from toolyard.clients.secret_redaction import find_secrets, redact_error
from toolyard.concurrency.lru_cache import LruCache
from toolyard.core.caller_cache import CallerCache
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import RpcError, ServerError, SignInNeeded, Unreachable
from toolyard.net import OutboundHttp
from toolyard.registry import Registry
from toolyard.registry.issuer_confirmation import ClientIssuer, IssuerConfirmation
from toolyard.types.account import Principal, RequestUser
from toolyard.types.registry import InstanceState, RegistryServer
from toolyard.types.server import Server, Timeouts
from toolyard.types.tool import Definition
from toolyard.web.servers.icons import Icon, ServerIcons, find_icon_urls
from toolyard.web.servers.status import ServerRecords

__all__ = ["RegistryIcons", "ServerPreview", "ServerPreviews"]

_PREVIEW_TIMEOUT_SECONDS = 20.0
"""Total time for a preview, in seconds. Short, because a user waits for the page."""
_MAX_SERVERS_WITH_ICONS = 128
_CONNECTION_TIMEOUTS = Timeouts(connect=10.0, silence=10.0, call=15.0)


@dataclass(frozen=True, slots=True)
class ServerPreview:
    """Capabilities and contents of a server. If ``error`` is set, they may be incomplete."""

    seconds: float = 0.0
    protocol_version: str | None = None
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None
    tools: tuple[tuple[Definition, int], ...] = ()
    """Tool definitions, each with its estimated cost in tokens."""
    set_aside: tuple[str, ...] = ()
    """Tools with an invalid definition, each as ``name: reason``."""
    resources: tuple[Mapping[str, Any], ...] = ()
    resource_templates: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    error: ServerError | None = None
    offered_issuer: ClientIssuer | None = None
    """The issuer that the server names, if ``error`` says that it needs a sign-in."""

    @property
    def token_cost(self) -> int:
        """Estimated cost of all tool definitions, in tokens."""
        return sum(cost for _, cost in self.tools)


class ServerPreviews:
    """Previews registry servers."""

    def __init__(
        self,
        registry: Registry,
        issuers: IssuerConfirmation,
        instances: InstanceSync,
        manager: ConnectionManager,
        net: OutboundHttp,
    ) -> None:
        self._registry = registry
        self._issuers = issuers
        self._instances = instances
        self._manager = manager
        self._net = net
        self._icon_urls: LruCache[str, tuple[str, ...]] = LruCache(_MAX_SERVERS_WITH_ICONS)

    async def fetch_server_preview(
        self, request_user: RequestUser, registered: RegistryServer, *, use_instance: bool = True
    ) -> ServerPreview:
        """Connect to a server and list its contents, with the user's own sign-in if they have one.

        Without ``use_instance``, connect without credentials. A ServerError is returned in the preview, not
        raised.
        """
        started = time.perf_counter()
        own_server = await self._find_usable_instance(request_user, registered) if use_instance else None
        if own_server is not None:
            preview = await _list_contents(self._manager, own_server, request_user.principal)
        else:
            server = replace(self._registry.build_preview_server(registered), timeouts=_CONNECTION_TIMEOUTS)
            async with ConnectionManager([server], net=self._net) as manager:
                preview = await _list_contents(manager, server, request_user.principal)
            if preview.protocol_version is not None:
                self._icon_urls[registered.url] = find_icon_urls(preview.server_info)
            if isinstance(preview.error, SignInNeeded):
                offered = await self._issuers.find_offered(registered, preview.error)
                preview = replace(preview, offered_issuer=offered)
        return replace(preview, seconds=time.perf_counter() - started)

    def find_icon_urls(self, registered: RegistryServer) -> tuple[str, ...]:
        """Return the addresses of the icons that a server named in its last preview without a sign-in."""
        return self._icon_urls.get(registered.url) or ()

    async def _find_usable_instance(
        self, request_user: RequestUser, registered: RegistryServer
    ) -> Server | None:
        """Return the first usable instance of the user, as the core sees it, or None."""
        for instance, instance_of in await self._instances.sync(request_user.principal):
            server = self._registry.build_instance_server(instance, instance_of)
            if instance_of.id == registered.id and server.enabled and instance.state is InstanceState.READY:
                return server
        return None


async def _list_contents(manager: ConnectionManager, server: Server, principal: Principal) -> ServerPreview:
    preview = ServerPreview()
    try:
        async with asyncio.timeout(_PREVIEW_TIMEOUT_SECONDS):
            facts = await manager.ensure_connected(server.id, principal=principal)
            preview = replace(
                preview,
                protocol_version=facts.version,
                server_info=facts.info,
                capabilities=facts.capabilities,
                instructions=facts.instructions,
            )
            if "tools" in facts.capabilities:
                listing = await manager.list_tools(server.id, principal=principal)
                # In a thread, because the server may list thousands of tools.
                tools, set_aside = await asyncio.to_thread(_read_tools, server.id, listing.items)
                preview = replace(preview, tools=tools, set_aside=set_aside)
            if "resources" in facts.capabilities:
                preview = replace(
                    preview,
                    resources=await _list_entries(manager, server, principal, "resources/list", "resources"),
                    resource_templates=await _list_entries(
                        manager, server, principal, "resources/templates/list", "resourceTemplates"
                    ),
                )
            if "prompts" in facts.capabilities:
                preview = replace(
                    preview,
                    prompts=await _list_entries(manager, server, principal, "prompts/list", "prompts"),
                )
    except ServerError as error:
        redact_error(error, find_secrets(server))
        return replace(preview, error=error)
    except TimeoutError:
        return replace(preview, error=Unreachable(f"did not answer within {_PREVIEW_TIMEOUT_SECONDS:g} s"))
    return preview


def _read_tools(
    server_id: str, items: Iterable[Mapping[str, Any]]
) -> tuple[tuple[tuple[Definition, int], ...], tuple[str, ...]]:
    """Return the valid tools with their cost, and the others with the reason."""
    validated = validate_tools(server_id, tuple(items))
    return (
        tuple((each, estimate_definition_tokens(each)) for each in validated.definitions),
        tuple(f"{each.name or '(no name)'}: {each.reason}" for each in validated.quarantined),
    )


async def _list_entries(
    manager: ConnectionManager, server: Server, principal: Principal, method: str, key: str
) -> tuple[Mapping[str, Any], ...]:
    try:
        listing = await manager.list_all(server.id, method, key, principal=principal)
    except RpcError as error:
        # Many servers with resources do not implement templates.
        if error.code == _METHOD_NOT_FOUND:
            return ()
        raise
    return tuple(each for each in listing.items if isinstance(cast("object", each), dict))


_METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True)
class RegistryIcons:
    """Finds icons of registry servers without contacting the servers."""

    _registry: Registry
    _instances: InstanceSync
    _callers: CallerCache
    _records: ServerRecords
    _previews: ServerPreviews
    _icons: ServerIcons

    async def list_paths(self, me: RequestUser, servers: Iterable[RegistryServer]) -> dict[str, str]:
        """Return the path of the icon of each server, by its id; empty if none is known."""
        caller = self._callers.get(me)
        own = {
            registered.id: self._records.find_instance_icon_path(caller, instance, registered)
            for instance, registered in await self._instances.sync(me.principal)
        }
        return {
            each.id: own.get(each.id)
            or (f"/ui/registry/{each.id}/icon" if self._previews.find_icon_urls(each) else "")
            for each in servers
        }

    async def fetch(self, server_id: str) -> Icon | None:
        """Return the icon that a server published in a preview, or None. Raises NotFound."""
        server = await self._registry.get_server(server_id)
        urls = self._previews.find_icon_urls(server)
        return await self._icons.fetch(self._registry.build_preview_server(server), urls)
