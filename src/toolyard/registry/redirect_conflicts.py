"""Detection of configured clients that share one redirect address but have different issuers.

If several issuers share a redirect address, it does not identify the issuer of a response: a hostile issuer
could obtain the code of another one (mix-up attack, RFC 9700, section 4.4).
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
    """Return issuers by server id, for clients in configuration files that use the shared address."""
    return {
        server.id: server.oauth.issuer or server.transport.url
        for server in servers
        if isinstance(server.transport, HttpSpec)
        and server.oauth is not None
        and _uses_shared_redirect(server.oauth)
    }


def shared_redirect_issuers_in_registry(servers: Iterable[RegistryServer]) -> dict[str, str]:
    """Return issuers by server name, for clients in the registry that use the shared address."""
    return {
        server.name: choice.issuer or server.url
        for server in servers
        for choice in server.choices
        if choice.kind is AuthKind.OAUTH and _uses_shared_redirect(build_oauth_spec(choice))
    }


def find_servers_sharing_redirect(*issuers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the servers to warn about: all of them if there is more than one issuer, else none."""
    if len({issuer for mapping in issuers for issuer in mapping.values()}) < 2:
        return ()
    return tuple(name for mapping in issuers for name in mapping)


def _uses_shared_redirect(oauth: OAuthSpec) -> bool:
    is_interactive = oauth.grant == "authorization_code"
    return is_interactive and oauth.client_id is not None and not oauth.issuer_redirect
