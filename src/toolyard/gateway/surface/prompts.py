"""Prompts: named like tools, got from the server whose they are."""

from __future__ import annotations

from typing import Any

from toolyard.catalog.exposed_names import Names
from toolyard.gateway.caller_view import Offering
from toolyard.gateway.client_request import Request
from toolyard.gateway.error_responses import Refusal
from toolyard.gateway.input_required.rounds import Rounds
from toolyard.gateway.surface.downgrade import told_prompt
from toolyard.gateway.surface.paging import page
from toolyard.gateway.surface.resource_uris import prompt_names
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.types.server import Server

__all__ = ["Prompts"]


class Prompts:
    """The prompts of one front."""

    def __init__(self, offering: Offering, rounds: Rounds) -> None:
        self._offering = offering
        self._rounds = rounds

    async def list(self, request: Request) -> dict[str, Any]:
        """``prompts/list``, sorted by name where there are several servers."""
        found = await self._found()
        if self._offering.only is not None:
            return page("prompts", [each for _, listed in found for each in listed], request.params)
        names = prompt_names(self._offering.parts.naming, found)
        named = {
            name: {**each, "name": name}
            for server, listed in found
            for each in listed
            if isinstance(own := each.get("name"), str) and (name := names.of(server.id, own)) is not None
        }
        return page("prompts", [named[name] for name in sorted(named)], request.params)

    async def get(self, request: Request) -> dict[str, Any]:
        """``prompts/get``."""
        server_id, name = await self._place(request.params.get("name"))
        params = {key: value for key, value in request.params.items() if key == "arguments"}
        params["name"] = name
        result = await self._rounds.run(
            request, lambda send: send(server_id, "prompts/get", params, repeatable=True)
        )
        return told_prompt(result, request)

    async def complete(self, request: Request, ref: dict[str, Any]) -> dict[str, Any]:
        """``completion/complete`` for an argument of a prompt."""
        server_id, name = await self._place(ref.get("name"))
        params = {key: value for key, value in request.params.items() if key in ("argument", "context")}
        params["ref"] = {**ref, "name": name}
        return await self._rounds.run(
            request, lambda send: send(server_id, "completion/complete", params, repeatable=True)
        )

    async def _found(self, *, patient: bool = False) -> list[tuple[Server, list[dict[str, Any]]]]:
        offering = self._offering
        shelves, waits = offering.gateway.shelves, patient or offering.only is not None
        listings = await offering.each(
            await offering.servers_with("prompts", patient=patient),
            lambda server: shelves.get(server, "prompts/list", offering.principal, patient=waits),
        )
        return [(server, listing.items) for server, listing in listings]

    async def _place(self, name: object) -> tuple[str, str]:
        """The server of a prompt, and the server's own name of it. Raises Refusal."""
        offering = self._offering
        if not isinstance(name, str):
            raise Refusal(INVALID_PARAMS, "the prompt's name is no string")
        if offering.only is not None:
            await offering.servers_with("prompts")
            return offering.only, name
        names: Names = prompt_names(offering.parts.naming, await self._found())
        target = names.find(name)
        if target is None and offering.is_waiting:
            target = prompt_names(offering.parts.naming, await self._found(patient=True)).find(name)
        if target is None:
            raise Refusal(INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
        return target.server_id, target.tool
