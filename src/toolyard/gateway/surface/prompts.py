"""Prompts: named like tools, and forwarded to their servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolyard.catalog.exposed_names import ExposedNames, NameAssigner, ServerToolNames
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.incoming_request import ClientRequest
from toolyard.gateway.input_required.rounds import InputRequiredRunner
from toolyard.gateway.surface.downgrade import downgrade_prompt
from toolyard.gateway.surface.list_repair import paginate_items
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.types.server import Server

__all__ = ["PromptHandlers", "build_prompt_names"]

_MAX_NAME_CHARACTERS = 2_000
"""Prompts with longer names are left out of a list of several servers. To rename one of megabytes would block
all threads."""


class PromptHandlers:
    """Prompt requests of one endpoint."""

    def __init__(self, view: CallerView, runner: InputRequiredRunner) -> None:
        self._view = view
        self._runner = runner

    async def list(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``prompts/list``, sorted by name if there are several servers."""
        found = await self._list_prompts()
        if self._view.only_server_id is not None:
            return paginate_items("prompts", [each for _, listed in found for each in listed], request.params)
        # In a thread, because servers may list tens of thousands of prompts.
        prompts = await asyncio.to_thread(_rename_prompts, self._view.gateway.name_assigner, found)
        return paginate_items("prompts", prompts, request.params)

    async def get(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``prompts/get``."""
        server_id, name = await self._locate_prompt(request.params.get("name"))
        params = {key: value for key, value in request.params.items() if key == "arguments"}
        params["name"] = name
        result = await self._runner.forward(request, server_id, "prompts/get", params)
        return downgrade_prompt(result, request)

    async def complete(self, request: ClientRequest, ref: dict[str, Any]) -> dict[str, Any]:
        """Handle ``completion/complete`` for an argument of a prompt."""
        server_id, name = await self._locate_prompt(ref.get("name"))
        params = {key: value for key, value in request.params.items() if key in ("argument", "context")}
        params["ref"] = {**ref, "name": name}
        return await self._runner.forward(request, server_id, "completion/complete", params)

    async def _list_prompts(self, *, wait_for_all: bool = False) -> list[tuple[Server, list[dict[str, Any]]]]:
        offering = self._view
        shelves, waits = offering.gateway.listing_cache, wait_for_all or offering.only_server_id is not None
        listings = await offering.query_servers(
            await offering.servers_with_capability("prompts", wait_for_all=wait_for_all),
            lambda server: shelves.get(server, "prompts/list", offering.principal, wait=waits),
        )
        return [(server, listing.items) for server, listing in listings]

    async def _locate_prompt(self, name: object) -> tuple[str, str]:
        """Return the server of a prompt, and the server's name for it. Raises RpcErrorResponse."""
        offering = self._view
        if not isinstance(name, str):
            raise RpcErrorResponse(INVALID_PARAMS, "the prompt's name must be a string")
        if offering.only_server_id is not None:
            await offering.servers_with_capability("prompts")
            return offering.only_server_id, name
        naming = offering.gateway.name_assigner
        found = await self._list_prompts()
        target = (await asyncio.to_thread(build_prompt_names, naming, found)).find(name)
        if target is None and offering.has_pending_listings:
            found = await self._list_prompts(wait_for_all=True)
            target = (await asyncio.to_thread(build_prompt_names, naming, found)).find(name)
        if target is None:
            raise RpcErrorResponse(INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
        return target.server_id, target.tool


def _rename_prompts(
    naming: NameAssigner, found: Sequence[tuple[Server, Sequence[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    """Return the prompts of many servers under their exposed names, sorted by them."""
    names = build_prompt_names(naming, found)
    named = {
        name: {**each, "name": name}
        for server, listed in found
        for each in listed
        if (own := _get_name(each)) is not None and (name := names.exposed_name(server.id, own)) is not None
    }
    return [named[name] for name in sorted(named)]


def build_prompt_names(
    naming: NameAssigner, prompts: Iterable[tuple[Server, Sequence[Mapping[str, Any]]]]
) -> ExposedNames:
    """Return exposed names for the prompts of many servers."""
    return naming.names(
        ServerToolNames(
            server.id,
            server.id if server.instance is None else server.instance.slug,
            tuple(name for each in listed if (name := _get_name(each)) is not None),
            instance=server.instance is not None,
        )
        for server, listed in prompts
    )


def _get_name(prompt: Mapping[str, Any]) -> str | None:
    """Return the name of a prompt; None if it has none, or one that is too long."""
    name = prompt.get("name")
    return name if isinstance(name, str) and len(name) <= _MAX_NAME_CHARACTERS else None
