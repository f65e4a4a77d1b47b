"""Fill the variables into a server, and check what only then can be checked.

Anything that stays unresolved disables this one server and says why; the rest go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from toolyard.config.entries.raw_entries import RawServer
from toolyard.config.sources.json_document import JsonPath, format_path
from toolyard.config.sources.variables import expand_variables
from toolyard.config.value_checks import (
    argument_fault,
    header_name_fault,
    header_value_fault,
    mask_url_secrets,
    url_fault,
)
from toolyard.types.server import HttpSpec, OAuthSpec, Server, StdioSpec

__all__ = ["resolve_variables"]

TextCheck = Callable[[str], str | None]


def resolve_variables(
    raw: RawServer, server: Server, env: Mapping[str, str], *, unapproved_reason: str | None
) -> Server:
    """The server as it will be used. ``unapproved`` is the reason why nothing may be filled in yet."""
    work = _VariableResolver(raw, env if server.enabled and unapproved_reason is None else None)
    spec = server.transport
    transport = work.resolve_http(spec) if isinstance(spec, HttpSpec) else work.resolve_stdio(spec)
    oauth = None if server.oauth is None else work.oauth(server.oauth)
    if not server.enabled:
        return server
    if unapproved_reason is not None:
        return replace(server, enabled=False, disabled_reason=unapproved_reason)
    if work.faults:
        return replace(server, enabled=False, disabled_reason="; ".join(work.faults))
    return replace(server, transport=transport, oauth=oauth) if work.filled else server


class _VariableResolver:
    """Fills in the texts of one server. Without an environment it only checks what holds no variable."""

    def __init__(self, raw_server: RawServer, env: Mapping[str, str] | None) -> None:
        self._raw_server = raw_server
        self._env = env
        self.faults: list[str] = []
        self.filled = False

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
                self._add_problem((*path, "env", name), "is no valid name of a variable", at_key=True)
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

    def oauth(self, spec: OAuthSpec) -> OAuthSpec:
        """Not in the sources, but a secret that must stand in the file itself would be worse."""
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
        self.filled = self.filled or expansion.text != text
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
        found = check(text)
        if found is None:
            return
        message = found
        if expected is not None:
            shown = mask_url_secrets(unexpanded or text)
            message = f"expected {expected}, found {ascii(shown)[1:-1]!r}, which {found}"
        hint = f"it is made from the variable {', '.join(names)}" if names else None
        self._add_problem(path, message, hint=hint)

    def _check_header_names(self, headers: Mapping[str, str], path: JsonPath) -> None:
        seen: dict[str, str] = {}
        for name in headers:
            fault = header_name_fault(name)
            if fault is not None:
                self._add_problem((*path, name), fault, at_key=True)
            first = seen.setdefault(name.lower(), name)
            if first != name:
                hint = "upper and lower case make no difference in a header's name"
                self._add_problem((*path, name), f"the same header stands there as '{first}'", hint=hint)

    def _add_problem(
        self, path: JsonPath, message: str, *, hint: str | None = None, at_key: bool = False
    ) -> None:
        self._raw_server.report.problem(path, message, hint=hint, at_key=at_key)


def _required_argument_fault(text: str) -> str | None:
    return argument_fault(text) if text else "is empty"
