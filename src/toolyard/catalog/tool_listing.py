"""Snapshot of all tools known for one principal, each under its exposed name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from toolyard.catalog.exposed_names import ExposedNames, NameAssigner, ServerToolNames
from toolyard.errors import ServerError
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.tool import Catalogue, Definition, QuarantinedTool

__all__ = ["ToolListing"]


class _NamedTools:
    """Exposed names of some servers' tools, assigned on first use.

    Servers are listed one after the other, and most sets of tools on the way are never read.
    """

    def __init__(
        self, naming: NameAssigner, catalogues: Mapping[str, Catalogue], slugs: Mapping[str, str]
    ) -> None:
        self._naming = naming
        self._catalogues = catalogues
        self._slugs = slugs

    @cached_property
    def names(self) -> ExposedNames:
        return self._naming.names(
            ServerToolNames(
                server_id,
                self._slugs.get(server_id, server_id),
                tuple(each.name for each in catalogue.definitions),
                instance=server_id in self._slugs,
                native=server_id == NATIVE_SERVER_ID,
            )
            for server_id, catalogue in self._catalogues.items()
        )

    @cached_property
    def tools(self) -> Mapping[str, Definition]:
        definitions = {
            (server_id, each.name): each
            for server_id, catalogue in self._catalogues.items()
            for each in catalogue.definitions
        }
        return {name: definitions[target] for name, target in self.names.targets.items()}


@dataclass(frozen=True, eq=False)
class ToolListing:
    """Catalogues of several servers with one set of exposed names.

    ``failures`` has the errors of servers that could not be listed.
    """

    catalogues: Mapping[str, Catalogue]
    failures: Mapping[str, ServerError]
    _named: _NamedTools

    @classmethod
    def build(
        cls,
        naming: NameAssigner,
        catalogues: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
        slugs: Mapping[str, str] | None = None,
    ) -> ToolListing:
        """Build the listing of these catalogues. ``slugs`` maps ids of instances to their slugs."""
        return cls(catalogues, failures, _NamedTools(naming, catalogues, slugs or {}))

    @property
    def names(self) -> ExposedNames:
        """Exposed names of all tools."""
        return self._named.names

    @cached_property
    def tools(self) -> Mapping[str, Definition]:
        """Definitions by exposed name, in alphabetical order. The same object while no tool changes."""
        return self._named.tools

    async def assign_names(self, thread_min_tools: int) -> None:
        """Assign the names now: in a thread if there are so many tools that it would delay other tasks."""
        if "tools" in vars(self._named):  # Assigned already.
            return
        if sum(len(one.definitions) for one in self.catalogues.values()) < thread_min_tools:
            self._named.tools  # noqa: B018 - assigned on first use
        else:
            await asyncio.to_thread(getattr, self._named, "tools")

    def with_catalogues(
        self,
        naming: NameAssigner,
        catalogues: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
        slugs: Mapping[str, str] | None = None,
    ) -> ToolListing:
        """Return a listing of these catalogues, reusing the names if no server's tools changed."""
        # Equal contents are the same object (see CatalogueCache), so comparing identities is enough.
        same = self.catalogues.keys() == catalogues.keys() and all(
            self.catalogues[server_id].contents is catalogue.contents
            for server_id, catalogue in catalogues.items()
        )
        if not same:
            return ToolListing.build(naming, catalogues, failures, slugs)
        return ToolListing(catalogues, failures, self._named)

    def quarantined(self) -> Iterator[QuarantinedTool]:
        """Yield the quarantined tools of all servers, with the reasons."""
        for catalogue in self.catalogues.values():
            yield from catalogue.quarantined
