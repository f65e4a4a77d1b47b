"""A look at a server of the registry: what it has, or why it cannot be told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_validation import validate_tools
from toolyard.clients import ConnectionManager
from toolyard.clients.server_secrets import find_secrets, redact_error
from toolyard.errors import RpcError, ServerError, Unreachable
from toolyard.types.principal import Principal
from toolyard.types.registry import InstanceState, RegistryServer
from toolyard.types.server import Server, Timeouts
from toolyard.types.tool import Definition

if TYPE_CHECKING:
    from toolyard.web.access.dependencies import RequestUser
    from toolyard.web.services import Services

__all__ = ["ServerPreview", "fetch_server_preview"]

_PREVIEW_TIMEOUT_SECONDS = 20.0
"""Seconds for all of it: somebody waits."""
_CONNECTION_TIMEOUTS = Timeouts(connect=10.0, silence=10.0, call=15.0)


@dataclass(frozen=True, slots=True)
class ServerPreview:
    """What a server has. Where ``error`` is set, what was learned until then."""

    seconds: float = 0.0
    protocol_version: str | None = None
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | None = None
    tools: tuple[tuple[Definition, int], ...] = ()
    """Each with what its definition costs a model, in tokens, estimated."""
    set_aside: tuple[str, ...] = ()
    """Tools that cannot be used, and why."""
    resources: tuple[Mapping[str, Any], ...] = ()
    resource_templates: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    error: ServerError | None = None

    @property
    def token_cost(self) -> int:
        """What all tools together cost a model."""
        return sum(cost for _, cost in self.tools)


async def fetch_server_preview(
    site: Services, visitor: RequestUser, registered: RegistryServer
) -> ServerPreview:
    """Connect and list everything, with the visitor's own sign-in where they have one. Never raises a
    ServerError: it is in the preview."""
    began = time.perf_counter()
    own = await _find_usable_instance(site, visitor, registered)
    if own is not None:
        found = await _list_contents(site.parts.manager, own, visitor.principal)
    else:
        server = replace(site.registry.build_preview_server(registered), timeouts=_CONNECTION_TIMEOUTS)
        async with ConnectionManager([server], net=site.net) as manager:
            found = await _list_contents(manager, server, visitor.principal)
    return replace(found, seconds=time.perf_counter() - began)


async def _find_usable_instance(
    site: Services, visitor: RequestUser, registered: RegistryServer
) -> Server | None:
    """The visitor's first instance that can be used."""
    for instance, of in await site.instances(visitor.principal):
        server = site.registry.build_instance_server(instance, of)
        if of.id == registered.id and server.enabled and instance.state is InstanceState.READY:
            return server
    return None


async def _list_contents(manager: ConnectionManager, server: Server, principal: Principal) -> ServerPreview:
    found = ServerPreview()
    try:
        async with asyncio.timeout(_PREVIEW_TIMEOUT_SECONDS):
            facts = await manager.ensure_connected(server.id, principal=principal)
            found = replace(
                found,
                protocol_version=facts.version,
                server_info=facts.info,
                capabilities=facts.capabilities,
                instructions=facts.instructions,
            )
            if "tools" in facts.capabilities:
                listing = await manager.list_tools(server.id, principal=principal)
                judged = validate_tools(server.id, tuple(listing.items))
                found = replace(
                    found,
                    tools=tuple((each, estimate_definition_tokens(each)) for each in judged.definitions),
                    set_aside=tuple(
                        f"{each.name or '(no name)'}: {each.reason}" for each in judged.quarantined
                    ),
                )
            if "resources" in facts.capabilities:
                found = replace(
                    found,
                    resources=await _list_entries(manager, server, principal, "resources/list", "resources"),
                    resource_templates=await _list_entries(
                        manager, server, principal, "resources/templates/list", "resourceTemplates"
                    ),
                )
            if "prompts" in facts.capabilities:
                found = replace(
                    found, prompts=await _list_entries(manager, server, principal, "prompts/list", "prompts")
                )
    except ServerError as error:
        redact_error(error, find_secrets(server))
        return replace(found, error=error)
    except TimeoutError:
        return replace(found, error=Unreachable(f"did not answer within {_PREVIEW_TIMEOUT_SECONDS:g} s"))
    return found


async def _list_entries(
    manager: ConnectionManager, server: Server, principal: Principal, method: str, key: str
) -> tuple[Mapping[str, Any], ...]:
    try:
        listing = await manager.list_all(server.id, method, key, principal=principal)
    except RpcError as error:
        # Many servers offer resources and know no templates.
        if error.code == _METHOD_NOT_FOUND:
            return ()
        raise
    return tuple(each for each in listing.items if isinstance(cast("object", each), dict))


_METHOD_NOT_FOUND = -32601
