"""Every tool that is known for one caller at one moment, each under its exposed name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolyard.catalog.exposed_names import Group, Names, Naming
from toolyard.errors import ServerError
from toolyard.types.catalog import Catalogue, Quarantined
from toolyard.types.server import NATIVE
from toolyard.types.tool import Definition

__all__ = ["Roster"]


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """The catalogues of many servers under one set of names. ``failures`` says who could not be listed.

    ``tools`` maps exposed names to definitions, in the order of the names.
    """

    names: Names
    catalogues: Mapping[str, Catalogue]
    failures: Mapping[str, ServerError]
    tools: Mapping[str, Definition]

    @classmethod
    def of(
        cls,
        naming: Naming,
        catalogues: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
        slugs: Mapping[str, str] | None = None,
    ) -> Roster:
        """Name all tools of these catalogues. ``slugs`` has those servers that are instances."""
        slugs = slugs or {}
        groups = (
            Group(
                server_id,
                slugs.get(server_id, server_id),
                tuple(each.name for each in catalogue.definitions),
                instance=server_id in slugs,
                native=server_id == NATIVE,
            )
            for server_id, catalogue in catalogues.items()
        )
        names = naming.names(groups)
        found = {
            (server_id, each.name): each
            for server_id, catalogue in catalogues.items()
            for each in catalogue.definitions
        }
        tools = {name: found[target] for name, target in names.targets.items()}
        return cls(names, catalogues, failures, tools)

    def updated(
        self,
        naming: Naming,
        catalogues: Mapping[str, Catalogue],
        failures: Mapping[str, ServerError],
        slugs: Mapping[str, str] | None = None,
    ) -> Roster:
        """The roster of these catalogues; this one's names where no server's tools differ."""
        same = self.catalogues.keys() == catalogues.keys() and all(
            self.catalogues[server_id].contents is catalogue.contents
            for server_id, catalogue in catalogues.items()
        )
        if not same:
            return Roster.of(naming, catalogues, failures, slugs)
        return Roster(self.names, catalogues, failures, self.tools)

    def quarantined(self) -> Iterator[Quarantined]:
        """All tools that were set aside, with the reason."""
        for catalogue in self.catalogues.values():
            yield from catalogue.quarantined
