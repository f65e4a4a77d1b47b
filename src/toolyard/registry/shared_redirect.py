"""Entered clients that share one redirect address, although their issuers differ.

Where several issuers share an address, it does not show which of them answered: a hostile one could be given
the code of another (RFC 9700, section 4.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolyard.registry.server_builder import build_oauth_spec
from toolyard.types.registry import AuthKind, RegistryServer
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = [
    "find_servers_sharing_redirect",
    "shared_redirect_issuers_in_files",
    "shared_redirect_issuers_in_registry",
]


def shared_redirect_issuers_in_files(servers: Iterable[Server]) -> dict[str, str]:
    """Return the issuers by server id, for clients entered in the files that use the shared address."""
    return {
        server.id: server.oauth.issuer or server.transport.url
        for server in servers
        if isinstance(server.transport, HttpSpec)
        and server.oauth is not None
        and _uses_shared_redirect(server.oauth)
    }


def shared_redirect_issuers_in_registry(servers: Iterable[RegistryServer]) -> dict[str, str]:
    """Return the issuers by server name, for clients entered in the registry that use the shared address."""
    return {
        server.name: choice.issuer or server.url
        for server in servers
        for choice in server.choices
        if choice.kind is AuthKind.OAUTH and _uses_shared_redirect(build_oauth_spec(choice))
    }


def find_servers_sharing_redirect(*issuers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the servers to warn about: all, if they belong to more than one issuer."""
    if len({issuer for each in issuers for issuer in each.values()}) < 2:
        return ()
    return tuple(name for each in issuers for name in each)


def _uses_shared_redirect(oauth: OAuthSpec) -> bool:
    interactive = oauth.grant == "authorization_code"
    return interactive and oauth.client_id is not None and not oauth.issuer_redirect
