"""Unambiguous names for the prompts and resources of many servers.

Prompts are named by the rules of tools. A resource keeps its URI if only one server has it; otherwise it gets
its server's prefix, ``toolyard://{server}/{uri}``. Under the prefix every resource of a server can be read,
listed or not. A URI is resolved by exact match first, then by known prefixes, then by the servers' templates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolyard.catalog.exposed_names import ExposedNames, NameAssigner, ServerToolNames
from toolyard.types.server import Server

__all__ = ["ResourceMap", "build_prompt_names"]

_TEMPLATE_VARIABLE = re.compile(r"\{[^{}]*\}")
_MAX_URI_CHARACTERS = 8192
_TOOLYARD_SCHEME = "toolyard://"


def build_prompt_names(
    naming: NameAssigner, prompts: Iterable[tuple[Server, Sequence[Mapping[str, Any]]]]
) -> ExposedNames:
    """Return exposed names for the prompts of many servers."""
    return naming.names(
        ServerToolNames(
            server.id,
            server.id if server.instance is None else server.instance.slug,
            tuple(name for each in listed if isinstance(name := each.get("name"), str)),
            instance=server.instance is not None,
        )
        for server, listed in prompts
    )


@dataclass(frozen=True, slots=True)
class ResourceMap:
    """Resolves exposed URIs: exact, by prefix and by template."""

    by_uri: Mapping[str, tuple[str, str]]
    prefixes: Mapping[str, str]
    """Prefixes by server."""
    templates: Sequence[tuple[str, Sequence[str], str, str]]
    """Server, the literal pieces between the variables, its own template, and the exposed one."""
    exposed_resources: Sequence[Mapping[str, Any]]
    exposed_templates: Sequence[Mapping[str, Any]]

    @classmethod
    def from_listings(
        cls,
        resources: Sequence[tuple[Server, Sequence[Mapping[str, Any]]]],
        templates: Sequence[tuple[Server, Sequence[Mapping[str, Any]]]],
    ) -> ResourceMap:
        """Build the map for the resources of many servers."""
        servers = {server.id: server for server, _ in (*resources, *templates)}
        prefixes = _build_prefixes(servers.values())
        once = Counter(uri for _, listed in resources for uri in {_get_text(each, "uri") for each in listed})
        exact: dict[str, tuple[str, str]] = {}
        shown: list[Mapping[str, Any]] = []
        for server, listed in resources:
            for each in listed:
                if uri := _get_text(each, "uri"):
                    name = uri if _is_unambiguous(uri, once) else prefixes[server.id] + uri
                    exact[name] = (server.id, uri)
                    shown.append(each if name == uri else {**each, "uri": name})
        once = Counter(
            uri for _, listed in templates for uri in {_get_text(each, "uriTemplate") for each in listed}
        )
        ways: list[tuple[str, Sequence[str], str, str]] = []
        shown_templates: list[Mapping[str, Any]] = []
        for server, listed in templates:
            for each in listed:
                if uri := _get_text(each, "uriTemplate"):
                    name = uri if _is_unambiguous(uri, once) else prefixes[server.id] + uri
                    ways.append((server.id, _TEMPLATE_VARIABLE.split(uri), uri, name))
                    shown_templates.append(each if name == uri else {**each, "uriTemplate": name})
        return cls(exact, prefixes, ways, shown, shown_templates)

    def find(self, uri: str) -> tuple[str, str] | None:
        """Return the server and its own URI, or None if no server or several could have it."""
        if (found := self.by_uri.get(uri)) is not None:
            return found
        for server_id, prefix in self.prefixes.items():
            if uri.startswith(prefix):
                return server_id, uri.removeprefix(prefix)
        if len(uri) > _MAX_URI_CHARACTERS:
            return None
        owners = {server_id for server_id, pieces, _, _ in self.templates if _matches_template(pieces, uri)}
        return (owners.pop(), uri) if len(owners) == 1 else None

    def find_template(self, uri: str) -> tuple[str, str] | None:
        """Return the server and its own template for an exposed template."""
        for server_id, _, own, name in self.templates:
            if name == uri:
                return server_id, own
        return None


def _is_unambiguous(uri: str, once: Counter[str | None]) -> bool:
    """Return whether a URI can stay unprefixed: no other server has it, and it does not look like one of
    ours."""
    return once[uri] == 1 and not uri.startswith(_TOOLYARD_SCHEME)


def _build_prefixes(servers: Iterable[Server]) -> dict[str, str]:
    # Ids, user names and slugs contain no characters that need quoting but '@' and '/'. An instance is
    # labelled by its slug; two equal labels are replaced by the whole ids.
    labels = {server.id: server.id if server.instance is None else server.instance.slug for server in servers}
    many = Counter(labels.values())
    return {
        server_id: f"{_TOOLYARD_SCHEME}{label if many[label] == 1 else server_id}/"
        for server_id, label in labels.items()
    }


def _matches_template(pieces: Sequence[str], uri: str) -> bool:
    """Return whether a URI matches a template: its literal pieces in order, with any text between them.

    The pieces are searched one after the other, because a regular expression would backtrack over all
    possible positions.
    """
    first, *middle = pieces
    if not middle:
        return uri == first
    last = middle.pop()
    place, end = len(first), len(uri) - len(last)
    if place > end or not uri.startswith(first) or not uri.endswith(last):
        return False
    for piece in middle:
        if (found := uri.find(piece, place, end)) < 0:
            return False
        place = found + len(piece)
    return True


def _get_text(item: Mapping[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) and value else None
