"""Snapshot of all tools known for one principal, each under its exposed name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolyard.catalog.exposed_names import ExposedNames, NameAssigner, ServerToolNames
from toolyard.errors import ServerError
from toolyard.types.catalog import Catalogue, QuarantinedTool
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.tool import Definition

__all__ = ["ToolListing"]


@dataclass(frozen=True, slots=True, eq=False)
class ToolListing:
    """Catalogues of several servers with one set of exposed names.

    ``failures`` has the errors of servers that could not be listed. ``tools`` maps exposed names to
    definitions, in alphabetical order.
    """

    names: ExposedNames
    catalogues: Mapping[str, Catalogue]
    failures: Mapping[str, ServerError]
    tools: Mapping[str, Definition]

    @classmethod
    def build(
        cls,
        naming: NameAssigner,
        catalogues: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
        slugs: Mapping[str, str] | None = None,
    ) -> ToolListing:
        """Assign names to all tools of the catalogues. ``slugs`` maps ids of instances to their slugs."""
        slugs = slugs or {}
        groups = (
            ServerToolNames(
                server_id,
                slugs.get(server_id, server_id),
                tuple(each.name for each in catalogue.definitions),
                instance=server_id in slugs,
                native=server_id == NATIVE_SERVER_ID,
            )
            for server_id, catalogue in catalogues.items()
        )
        names = naming.names(groups)
        definitions = {
            (server_id, each.name): each
            for server_id, catalogue in catalogues.items()
            for each in catalogue.definitions
        }
        tools = {name: definitions[target] for name, target in names.targets.items()}
        return cls(names, catalogues, failures, tools)

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
        return ToolListing(self.names, catalogues, failures, self.tools)

    def quarantined(self) -> Iterator[QuarantinedTool]:
        """Yield the quarantined tools of all servers, with the reasons."""
        for catalogue in self.catalogues.values():
            yield from catalogue.quarantined
