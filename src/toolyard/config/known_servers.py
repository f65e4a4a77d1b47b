"""Catalogue of well-known servers, as data of the package: ``known_servers.json``.

The texts are our own. ``make catalog-check`` compares packages and variables with the package registries, and
starts every server that starts without a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from toolyard.config.sources.json_document import JsonValue, map_texts

__all__ = [
    "CheckMethod",
    "KnownServer",
    "KnownVariable",
    "SignInMethod",
    "example_config",
    "read_known_servers",
    "search_known_servers",
]


class SignInMethod(StrEnum):
    """Sign-in method of a server."""

    NONE = "none"
    OAUTH = "oauth"
    """In the browser, with ``toolyard login``."""
    KEY = "key"
    """By a key in a variable of its entry."""


class CheckMethod(StrEnum):
    """How the facts about a server were checked."""

    STARTED = "started"
    """It was started without a key, and listed its tools."""
    PACKAGE = "package"
    """Its package was downloaded, and contains the names of its variables."""
    DOCUMENTS = "documents"
    """Its address is in published documents."""


@dataclass(frozen=True, slots=True)
class KnownVariable:
    """A value that a server requires: ``${name}`` in its entry. The value of a secret is never written."""

    name: str
    purpose: str
    secret: bool = True


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server of the catalogue. ``entry`` is its entry under ``mcpServers``, with variables.

    ``check_method`` is None for a server that only a public registry describes; its texts are untrusted.
    """

    id: str
    title: str
    purpose: str
    entry: Mapping[str, JsonValue]
    sign_in: SignInMethod
    variables: tuple[KnownVariable, ...] = ()
    documents: str | None = None
    check_method: CheckMethod | None = None
    checked_on: str | None = None

    @property
    def location(self) -> str:
        """Return its address, or the package that is started."""
        url = self.entry.get("url")
        if isinstance(url, str):
            return url
        args = self.entry.get("args")
        words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
        package = next((word for word in words if not word.startswith("-")), "")
        return f"{self.entry.get('command')} {package}"

    @property
    def is_remote(self) -> bool:
        """Return whether it has an address, and need not be started."""
        return "url" in self.entry

    @property
    def address_variables(self) -> tuple[KnownVariable, ...]:
        """Return the variables of its address. Secrets are entered by each person instead."""
        url = str(self.entry.get("url", ""))
        return tuple(each for each in self.variables if not each.secret and f"${{{each.name}}}" in url)

    def fill_entry(self, values: Mapping[str, str]) -> dict[str, JsonValue]:
        """Return the entry with these values in place of its variables; others stay as ``${NAME}``."""

        def fill(text: str) -> str:
            for name, value in values.items():
                text = text.replace(f"${{{name}}}", value)
            return text

        return {key: map_texts(value, fill) for key, value in self.entry.items()}

    def as_json(self) -> dict[str, Any]:
        """Return it for output as JSON, with the keys of the data file."""
        checked = None if self.check_method is None else {"how": self.check_method, "on": self.checked_on}
        return {
            "id": self.id,
            "title": self.title,
            "purpose": self.purpose,
            "entry": dict(self.entry),
            "signIn": self.sign_in,
            "variables": [
                {"name": one.name, "purpose": one.purpose, "secret": one.secret} for one in self.variables
            ],
            "documents": self.documents,
            "checked": checked,
        }


@cache
def read_known_servers() -> Mapping[str, KnownServer]:
    """Return the catalogue of the package by id, in alphabetical order."""
    text = files("toolyard.config").joinpath("known_servers.json").read_text("utf-8")
    return {raw["id"]: _parse_server(raw) for raw in json.loads(text)}


def search_known_servers(words: str, servers: Iterable[KnownServer]) -> list[KnownServer]:
    """Return the servers whose id, title or purpose has all the words, best first: matches in the id or title
    come before those in the purpose."""
    wanted = re.findall(r"\w+", words.casefold())
    found: list[tuple[int, KnownServer]] = []
    for server in servers:
        name = f"{server.id} {server.title}".casefold()
        purpose = server.purpose.casefold()
        if all(word in name or word in purpose for word in wanted):
            found.append((sum(word not in name for word in wanted), server))
    return [server for _, server in sorted(found, key=lambda each: each[0])]


def _parse_server(raw: dict[str, Any]) -> KnownServer:
    return KnownServer(
        raw["id"],
        raw["title"],
        raw["purpose"],
        raw["entry"],
        SignInMethod(raw["signIn"]),
        tuple(KnownVariable(**one) for one in raw["variables"]),
        raw["documents"],
        CheckMethod(raw["checked"]["how"]),
        raw["checked"]["on"],
    )


def example_config() -> str:
    """Return the text of a first ``mcp.json``, with the server Context7, disabled."""
    return files("toolyard.config").joinpath("example.mcp.json").read_text(encoding="utf-8")
