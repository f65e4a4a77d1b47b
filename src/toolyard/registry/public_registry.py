"""Client of a public registry of MCP servers, which speaks version 0.1 of the official registry's API.

It is off unless the setting ``public_registry`` has an address. Everything that it answers is untrusted: a
server that cannot be expressed as an entry is left out, and texts are shown as plain text only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any
from urllib.parse import quote

from toolyard.auth.oauth_http import AddressPolicy, OAuthHttpClient
from toolyard.config.file_review import is_execution_variable
from toolyard.config.known_servers import KnownServer, KnownVariable, SignInMethod
from toolyard.config.sources.json_document import JsonValue
from toolyard.errors import BadAnswer
from toolyard.net import OutboundHttp
from toolyard.types.json_values import list_or_empty, object_or_empty, text_or_empty
from toolyard.types.server import URL_TRANSPORT_LABELS

__all__ = ["PublicRegistry"]

_RUNNERS = {"npm": ("npx", "-y"), "pypi": ("uvx",)}
_PLACEHOLDER = re.compile(r"\$\{|\{([A-Za-z_][A-Za-z0-9_-]*)\}")
# A name with a slash but without a scope is a repository for npm, not a package.
_PACKAGE_NAME = re.compile(r"(?:@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+-]*")
_NOT_IN_VARIABLES = re.compile(r"[^A-Za-z0-9]+")
_HTTPS_URL = re.compile(r"https://[^/?#@\\\x80-\U0010ffff]+(?:[/?#]|$)")
"""An address whose host is what it looks like: without user information, and in ASCII."""
_MAX_RESULTS = 20


class PublicRegistry:
    """Searches one registry. Errors of the connection are those of ``auth``."""

    def __init__(self, net: OutboundHttp, address: str) -> None:
        self._address = f"{address.rstrip('/')}/v0.1/servers"
        self._http = OAuthHttpClient(net, AddressPolicy(address))

    async def search(self, words: str, limit: int = _MAX_RESULTS) -> list[KnownServer]:
        """Return servers whose name matches. Raises BadAnswer or Unreachable."""
        document = await self._get(f"{self._address}?search={quote(words)}&limit={limit}&version=latest")
        listed = _objects((document or {}).get("servers"))
        found = [_read_server(object_or_empty(each.get("server"))) for each in listed[:limit]]
        return [server for server in found if server is not None]

    async def find(self, name: str) -> KnownServer | None:
        """Return the newest version of a server by its full name. Raises BadAnswer or Unreachable."""
        document = await self._get(f"{self._address}/{quote(name, safe='')}/versions/latest")
        found = None if document is None else _read_server(object_or_empty(document.get("server")))
        # Its variables are named after it.
        return found if found is not None and found.id == name else None

    async def _get(self, address: str) -> dict[str, Any] | None:
        response = await self._http.get(address, "the public registry")
        if response.status == 404:
            return None
        if response.status != 200 or response.document is None:
            raise BadAnswer(
                f"the public registry answered with status {response.status}, or without a JSON object",
                hint="check the setting public_registry",
            )
        return dict(response.document)


def _read_server(raw: dict[str, Any]) -> KnownServer | None:
    """Return a server of the registry, or None without an address or a package that we can start."""
    name = text_or_empty(raw.get("name"))
    entries = chain(_read_remotes(name, raw.get("remotes")), _read_packages(name, raw.get("packages")))
    found = next(entries, None)
    if not name or found is None:
        return None
    entry, variables = found
    repository = object_or_empty(raw.get("repository")).get("url")
    return KnownServer(
        name,
        text_or_empty(raw.get("title")) or name,
        text_or_empty(raw.get("description")),
        entry,
        SignInMethod.KEY if any(each.secret for each in variables) else SignInMethod.NONE,
        tuple({each.name: each for each in variables}.values()),
        text_or_empty(repository) or None,
    )


_Entry = tuple[dict[str, JsonValue], list[KnownVariable]]


def _read_remotes(name: str, remotes: Any) -> Iterator[_Entry]:
    for remote in _objects(remotes):
        url, kind = (
            text_or_empty(remote.get("url")),
            text_or_empty(remote.get("type")).removeprefix("streamable-"),
        )
        # User information is not offered: "https://good.example@evil.example" leads to evil.example.
        if kind not in URL_TRANSPORT_LABELS or not _HTTPS_URL.match(url):
            continue
        values = _InputTranslator(name)
        declared = object_or_empty(remote.get("variables"))
        entry: dict[str, JsonValue] = {"type": kind, "url": values.expand(url, declared)}
        headers = values.read(_objects(remote.get("headers")))
        yield ({**entry, "headers": headers} if headers else entry), values.variables


def _read_packages(name: str, packages: Any) -> Iterator[_Entry]:
    for package in _objects(packages):
        runner = _RUNNERS.get(text_or_empty(package.get("registryType")))
        identifier, version = text_or_empty(package.get("identifier")), text_or_empty(package.get("version"))
        is_stdio = text_or_empty(object_or_empty(package.get("transport")).get("type")) == "stdio"
        if runner is None or not is_stdio or not _PACKAGE_NAME.fullmatch(identifier):
            continue
        values = _InputTranslator(name)
        # A version pins what was described; without one, the newest is started.
        pinned = f"{identifier}@{version}" if _VERSION.fullmatch(version) else identifier
        args: list[JsonValue] = [*runner[1:], pinned]
        for argument in _objects(package.get("packageArguments")):
            args += values.read_argument(argument)
        entry: dict[str, JsonValue] = {"command": runner[0], "args": args}
        env = values.read(_objects(package.get("environmentVariables")))
        # They would run other code than that of the package, which people choose by its name.
        if any(map(is_execution_variable, env)):
            continue
        yield ({**entry, "env": env} if env else entry), values.variables


class _InputTranslator:
    """Translates declared inputs into ``${NAME}`` references, and collects the variables.

    Their names begin with MCP and the server's whole name: neither a registry nor a publisher, who is free to
    choose the part after the slash, must choose which of the variables that a person already has, such as a
    key for another service, is sent to a server.
    """

    def __init__(self, server: str) -> None:
        publisher, _, self._server = server.rpartition("/")
        # One underscore for a dot, three for a hyphen, and two at the end, which the rest never has.
        self._publisher = re.sub(r"[^A-Za-z0-9]", "_", publisher.replace("-", "___"))
        self.variables: list[KnownVariable] = []

    def read(self, inputs: Iterable[dict[str, Any]]) -> dict[str, JsonValue]:
        """Return headers or environment variables: fixed values, defaults, and required inputs."""
        texts: dict[str, JsonValue] = {}
        for each in inputs:
            name = text_or_empty(each.get("name"))
            text = self._read_value(each, name)
            if name and text is not None:
                texts[name] = text
        return texts

    def read_argument(self, argument: dict[str, Any]) -> list[JsonValue]:
        """Return the words of one argument of the command."""
        name = text_or_empty(argument.get("name"))
        hint = text_or_empty(argument.get("valueHint")) or name.lstrip("-")
        text = self._read_value(argument, hint)
        words: list[JsonValue] = [] if text is None else [text]
        if argument.get("type") == "named" and (text is not None or argument.get("isRequired") is True):
            return [name, *words]
        return words

    def expand(self, text: str, declared: dict[str, Any]) -> str:
        """Return the text with ``${NAME}`` for each ``{name}`` that is declared."""

        def replace(match: re.Match[str]) -> str:
            if match[1] is None:
                return "$${"  # It must not refer to a variable of the person's environment.
            found = object_or_empty(declared.get(match[1]))
            default = text_or_empty(found.get("value")) or text_or_empty(found.get("default"))
            return default.replace("${", "$${") or self._add(match[1], found)

        return _PLACEHOLDER.sub(replace, text)

    def _read_value(self, raw: dict[str, Any], name: str) -> str | None:
        value = text_or_empty(raw.get("value"))
        if value:
            return self.expand(value, object_or_empty(raw.get("variables")))
        default = text_or_empty(raw.get("default"))
        if raw.get("isRequired") is not True or default:
            return default.replace("${", "$${") or None
        return self._add(name, raw)

    def _add(self, name: str, raw: dict[str, Any]) -> str:
        rest = _NOT_IN_VARIABLES.sub("_", f"{self._server}_{name}").strip("_")
        variable = f"MCP_{self._publisher}__{rest}".upper()
        purpose = text_or_empty(raw.get("description")) or name
        self.variables.append(KnownVariable(variable, purpose, raw.get("isSecret") is True))
        return f"${{{variable}}}"


def _objects(value: Any) -> list[dict[str, Any]]:
    return [object_or_empty(each) for each in list_or_empty(value)]
