"""Every tool that is known for one caller at one moment, each under its exposed name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolyard.catalog.names import Group, Names, Naming
from toolyard.errors import ServerError
from toolyard.model.catalog import Catalogue, Quarantined
from toolyard.model.tool import Definition

__all__ = ["Roster"]


@dataclass(frozen=True, slots=True)
class Roster:
    """The catalogues of many servers under one set of names. ``failures`` says who could not be listed."""

    names: Names
    catalogues: Mapping[str, Catalogue]
    failures: Mapping[str, ServerError] = field(default_factory=dict[str, ServerError])

    @classmethod
    def of(
        cls, naming: Naming, catalogues: Mapping[str, Catalogue], failures: Mapping[str, ServerError]
    ) -> Roster:
        """Name all tools of these catalogues."""
        groups = (
            Group(server_id, server_id, tuple(each.name for each in catalogue.definitions))
            for server_id, catalogue in catalogues.items()
        )
        return cls(naming.names(groups), catalogues, failures)

    def find(self, name: str) -> Definition | None:
        """The tool that an exposed name stands for."""
        target = self.names.find(name)
        return None if target is None else self.catalogues[target.server_id].find(target.tool)

    def tools(self) -> Iterator[tuple[str, Definition]]:
        """All tools with their exposed names, sorted by name."""
        by_id = {
            (server_id, each.name): each
            for server_id, catalogue in self.catalogues.items()
            for each in catalogue.definitions
        }
        for name, target in self.names.targets.items():
            yield name, by_id[target]

    def quarantined(self) -> Iterator[Quarantined]:
        """All tools that were set aside, with the reason."""
        for catalogue in self.catalogues.values():
            yield from catalogue.quarantined
