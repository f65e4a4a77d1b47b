"""Expand the variables of a server, and check its expanded texts.

Variables are ``${VAR}``, ``${VAR:-default}`` and ``${env:VAR}``; ``$${`` is an escaped literal ``${``. Other
expressions in braces stay unchanged, because they may be meant for a shell. Exceptions are references that
only other clients can resolve (``${input:token}``): they would be wrong if sent unchanged, so they are
faults.

A variable that cannot be expanded disables this server only, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from toolyard.config.entries.servers import UnexpandedServer
from toolyard.config.sources.json_document import JsonPath, format_path
from toolyard.config.value_checks import (
    argument_fault,
    header_name_fault,
    header_value_fault,
    mask_url_secrets,
    url_fault,
)
from toolyard.types.server import HttpSpec, OAuthSpec, Server, StdioSpec

__all__ = ["Expansion", "expand_variables", "find_variable_names", "resolve_variables"]


# In this order: an escaped "${"; a variable with an optional default; a reference of another client, such as
# ${input:token}; and a default that contains a brace, e.g. ${A:-${B}}, which is reported instead of being
# expanded halfway.
_VARIABLE_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}"
    r"|(?P<foreign>\$\{[A-Za-z]+:[A-Za-z_][^{}]*\})"
    r"|(?P<nested>\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*:-[^{}]*\{)"
)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Expanded text, the names of its variables, and one fault for each that could not be expanded."""

    text: str
    names: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def expand_variables(text: str, env: Mapping[str, str]) -> Expansion:
    """Expand the variables of a text. As in a shell, the default also replaces an empty variable."""
    if "${" not in text:
        return Expansion(text)
    names: list[str] = []
    faults: list[str] = []

    def replace_reference(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["foreign"]:
            faults.append(f"contains {match[0]}, which only another client can resolve")
        elif match["nested"]:
            faults.append("has a default value with braces, which is not supported")
        elif name is None:
            return "${"
        else:
            names.append(name)
            value = env.get(name)
            if default is not None:
                return value or default
            if value is not None:
                return value
            faults.append(f"needs the variable {name}, which is not set")
        return match[0]

    expanded = _VARIABLE_REFERENCE.sub(replace_reference, text)
    return Expansion(expanded, tuple(names), tuple(faults))


def find_variable_names(text: str) -> tuple[str, ...]:
    """Return the names that ``expand_variables`` would look up."""
    return tuple(match["name"] for match in _VARIABLE_REFERENCE.finditer(text) if match["name"])


TextCheck = Callable[[str], str | None]


def resolve_variables(
    raw: UnexpandedServer, server: Server, env: Mapping[str, str], *, unapproved_reason: str | None
) -> Server:
    """Return the server with expanded variables.

    If ``unapproved_reason`` is set, nothing is expanded: a file that is not approved must not read variables.
    The server is then disabled for this reason.
    """
    resolver = _VariableResolver(raw, env if server.enabled and unapproved_reason is None else None)
    spec = server.transport
    transport = resolver.resolve_http(spec) if isinstance(spec, HttpSpec) else resolver.resolve_stdio(spec)
    oauth = None if server.oauth is None else resolver.resolve_oauth(server.oauth)
    if not server.enabled:
        return server
    if unapproved_reason is not None:
        return replace(server, enabled=False, disabled_reason=unapproved_reason)
    if resolver.faults:
        return replace(server, enabled=False, disabled_reason="; ".join(resolver.faults))
    return replace(server, transport=transport, oauth=oauth) if resolver.has_changes else server


class _VariableResolver:
    """Expand and check the texts of one server.

    If ``env`` is None, only texts without variables are checked.
    """

    def __init__(self, raw_server: UnexpandedServer, env: Mapping[str, str] | None) -> None:
        self._raw_server = raw_server
        self._env = env
        self.faults: list[str] = []
        self.has_changes = False

    def resolve_http(self, spec: HttpSpec) -> HttpSpec:
        path = self._raw_server.transport_path
        self._check_header_names(spec.headers, (*path, "headers"))
        headers = {
            name: self._expand_text(value, (*path, "headers", name), header_value_fault)
            for name, value in spec.headers.items()
        }
        url = self._expand_text(spec.url, (*path, "url"), url_fault, expected="an http(s) URL")
        return replace(spec, url=url, headers=MappingProxyType(headers))

    def resolve_stdio(self, spec: StdioSpec) -> StdioSpec:
        path = self._raw_server.transport_path
        for name in spec.env:
            if not name or "=" in name or "\0" in name:
                self._add_problem((*path, "env", name), "is not a valid variable name", at_key=True)
        env = {
            name: self._expand_text(value, (*path, "env", name), argument_fault)
            for name, value in spec.env.items()
        }
        args = [
            self._expand_text(arg, (*path, "args", index), argument_fault)
            for index, arg in enumerate(spec.args)
        ]
        cwd = (
            None
            if spec.cwd is None
            else self._expand_text(spec.cwd, (*path, "cwd"), _required_argument_fault)
        )
        return replace(
            spec,
            command=self._expand_text(spec.command, (*path, "command"), _required_argument_fault),
            args=tuple(args),
            env=MappingProxyType(env),
            cwd=cwd,
        )

    def resolve_oauth(self, spec: OAuthSpec) -> OAuthSpec:
        # Other clients do not expand variables here, but otherwise secrets would have to be in the file
        # itself.
        path = (*self._raw_server.path, "oauth")

        def expand_optional(text: str | None, key: str) -> str | None:
            return None if text is None else self._expand_text(text, (*path, key), header_value_fault)

        return replace(
            spec,
            client_id=expand_optional(spec.client_id, "clientId"),
            client_secret=expand_optional(spec.client_secret, "clientSecret"),
            resource=expand_optional(spec.resource, "resource"),
            private_key_file=expand_optional(spec.private_key_file, "privateKeyFile"),
            issuer=expand_optional(spec.issuer, "issuer"),
        )

    def _expand_text(
        self, text: str, path: JsonPath, check: TextCheck, *, expected: str | None = None
    ) -> str:
        if self._env is None:
            if "${" not in text:
                self._check_text(text, path, check, (), expected)
            return text
        expansion = expand_variables(text, self._env)
        self.has_changes = self.has_changes or expansion.text != text
        if expansion.faults:
            field = format_path(path[len(self._raw_server.path) :])
            self.faults += [f"{field} {reason}" for reason in expansion.faults]
            return text
        self._check_text(expansion.text, path, check, expansion.names, expected, unexpanded=text)
        return expansion.text

    def _check_text(
        self,
        text: str,
        path: JsonPath,
        check: TextCheck,
        names: tuple[str, ...],
        expected: str | None,
        unexpanded: str | None = None,
    ) -> None:
        fault = check(text)
        if fault is None:
            return
        message = fault
        if expected is not None:
            # Show the text before expansion: the value of a variable may be a secret.
            masked = mask_url_secrets(unexpanded or text)
            message = f"expected {expected}, found {ascii(masked)[1:-1]!r}, which {fault}"
        hint = f"its value comes from the variable {', '.join(names)}" if names else None
        self._add_problem(path, message, hint=hint)

    def _check_header_names(self, headers: Mapping[str, str], path: JsonPath) -> None:
        seen: dict[str, str] = {}
        for name in headers:
            fault = header_name_fault(name)
            if fault is not None:
                self._add_problem((*path, name), fault, at_key=True)
            first = seen.setdefault(name.lower(), name)
            if first != name:
                hint = "header names are case-insensitive"
                self._add_problem((*path, name), f"the same header is already set as '{first}'", hint=hint)

    def _add_problem(
        self, path: JsonPath, message: str, *, hint: str | None = None, at_key: bool = False
    ) -> None:
        self._raw_server.report.add_problem(path, message, hint=hint, at_key=at_key)


def _required_argument_fault(text: str) -> str | None:
    return argument_fault(text) if text else "is empty"
