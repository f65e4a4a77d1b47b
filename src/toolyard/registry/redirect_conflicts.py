"""Detection of configured clients that share one redirect URI but have different issuers.

If several issuers share a redirect URI, it does not identify the issuer of a response: a hostile issuer
could obtain the code of another one (mix-up attack, RFC 9700, section 4.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.registry.server_builder import build_oauth_spec
from toolyard.types.registry import AuthKind, RegistryServer
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = ["find_servers_sharing_redirect"]


def find_servers_sharing_redirect(
    file_servers: Iterable[Server], registry_servers: Iterable[RegistryServer] = ()
) -> tuple[str, ...]:
    """Return the servers whose clients use the shared address if they have more than one issuer, else none.

    Servers of the registry are named, those of configuration files have their id.
    """
    in_registry = {
        server.name: choice.issuer or server.url
        for server in registry_servers
        for choice in server.choices
        if choice.kind is AuthKind.OAUTH and _uses_shared_redirect(build_oauth_spec(choice))
    }
    in_files = {
        server.id: server.oauth.issuer or server.transport.url
        for server in file_servers
        if isinstance(server.transport, HttpSpec)
        and server.oauth is not None
        and _uses_shared_redirect(server.oauth)
    }
    issuers = {*in_registry.values(), *in_files.values()}
    return (*in_registry, *in_files) if len(issuers) > 1 else ()


def _uses_shared_redirect(oauth: OAuthSpec) -> bool:
    is_interactive = oauth.grant == "authorization_code"
    return is_interactive and oauth.client_id is not None and not oauth.issuer_redirect
