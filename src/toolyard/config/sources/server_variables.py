"""Fill the variables into a server, and check what only then can be checked.

Anything that stays unresolved disables this one server and says why; the rest go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from toolyard.config.entries.raw_entries import ServerDraft
from toolyard.config.sources.json_document import Steps, path_text
from toolyard.config.sources.variables import expand
from toolyard.config.value_checks import (
    argument_fault,
    header_name_fault,
    header_value_fault,
    url_fault,
    without_secrets,
)
from toolyard.types.server import HttpSpec, OAuthSpec, Server, StdioSpec

__all__ = ["resolve"]

Fault = Callable[[str], str | None]


def resolve(draft: ServerDraft, server: Server, env: Mapping[str, str], *, unapproved: str | None) -> Server:
    """The server as it will be used. ``unapproved`` is the reason why nothing may be filled in yet."""
    work = _Resolver(draft, env if server.enabled and unapproved is None else None)
    spec = server.transport
    transport = work.http(spec) if isinstance(spec, HttpSpec) else work.stdio(spec)
    oauth = None if server.oauth is None else work.oauth(server.oauth)
    if not server.enabled:
        return server
    if unapproved is not None:
        return replace(server, enabled=False, disabled_reason=unapproved)
    if work.faults:
        return replace(server, enabled=False, disabled_reason="; ".join(work.faults))
    return replace(server, transport=transport, oauth=oauth) if work.filled else server


class _Resolver:
    """Fills in the texts of one server. Without an environment it only checks what holds no variable."""

    def __init__(self, draft: ServerDraft, env: Mapping[str, str] | None) -> None:
        self._draft = draft
        self._env = env
        self.faults: list[str] = []
        self.filled = False

    def http(self, spec: HttpSpec) -> HttpSpec:
        path = self._draft.transport_path
        self._header_names(spec.headers, (*path, "headers"))
        headers = {
            name: self._text(value, (*path, "headers", name), header_value_fault)
            for name, value in spec.headers.items()
        }
        url = self._text(spec.url, (*path, "url"), url_fault, expected="an http(s) URL")
        return replace(spec, url=url, headers=MappingProxyType(headers))

    def stdio(self, spec: StdioSpec) -> StdioSpec:
        path = self._draft.transport_path
        for name in spec.env:
            if not name or "=" in name or "\0" in name:
                self._problem((*path, "env", name), "is no valid name of a variable", key=True)
        env = {
            name: self._text(value, (*path, "env", name), argument_fault) for name, value in spec.env.items()
        }
        args = [
            self._text(arg, (*path, "args", index), argument_fault) for index, arg in enumerate(spec.args)
        ]
        cwd = None if spec.cwd is None else self._text(spec.cwd, (*path, "cwd"), _empty_or_nul)
        return replace(
            spec,
            command=self._text(spec.command, (*path, "command"), _empty_or_nul),
            args=tuple(args),
            env=MappingProxyType(env),
            cwd=cwd,
        )

    def oauth(self, spec: OAuthSpec) -> OAuthSpec:
        """Not in the sources, but a secret that must stand in the file itself would be worse."""
        path = (*self._draft.path, "oauth")

        def fill(text: str | None, key: str) -> str | None:
            return None if text is None else self._text(text, (*path, key), header_value_fault)

        return replace(
            spec,
            client_id=fill(spec.client_id, "clientId"),
            client_secret=fill(spec.client_secret, "clientSecret"),
            resource=fill(spec.resource, "resource"),
            private_key_file=fill(spec.private_key_file, "privateKeyFile"),
            issuer=fill(spec.issuer, "issuer"),
        )

    def _text(self, text: str, path: Steps, fault: Fault, *, expected: str | None = None) -> str:
        if self._env is None:
            if "${" not in text:
                self._check(text, path, fault, (), expected)
            return text
        expansion = expand(text, self._env)
        self.filled = self.filled or expansion.text != text
        if expansion.faults:
            field = path_text(path[len(self._draft.path) :])
            self.faults += [f"{field} {reason}" for reason in expansion.faults]
            return text
        self._check(expansion.text, path, fault, expansion.names, expected, written=text)
        return expansion.text

    def _check(
        self,
        text: str,
        path: Steps,
        fault: Fault,
        names: tuple[str, ...],
        expected: str | None,
        written: str | None = None,
    ) -> None:
        found = fault(text)
        if found is None:
            return
        message = found
        if expected is not None:
            shown = without_secrets(written or text)
            message = f"expected {expected}, found {ascii(shown)[1:-1]!r}, which {found}"
        hint = f"it is made from the variable {', '.join(names)}" if names else None
        self._problem(path, message, hint=hint)

    def _header_names(self, headers: Mapping[str, str], path: Steps) -> None:
        seen: dict[str, str] = {}
        for name in headers:
            fault = header_name_fault(name)
            if fault is not None:
                self._problem((*path, name), fault, key=True)
            first = seen.setdefault(name.lower(), name)
            if first != name:
                hint = "upper and lower case make no difference in a header's name"
                self._problem((*path, name), f"the same header stands there as '{first}'", hint=hint)

    def _problem(self, path: Steps, message: str, *, hint: str | None = None, key: bool = False) -> None:
        self._draft.report.problem(path, message, hint=hint, key=key)


def _empty_or_nul(text: str) -> str | None:
    return argument_fault(text) if text else "is empty"
