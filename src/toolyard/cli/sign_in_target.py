"""The server and storage key of ``login`` and ``logout``."""

from __future__ import annotations

from dataclasses import dataclass

from toolyard.cli.error_exit import Usage
from toolyard.types.config import Configuration
from toolyard.types.server import HttpSpec, Server

__all__ = ["SignInServer", "find_sign_in_server"]


@dataclass(frozen=True, slots=True)
class SignInServer:
    """A server that supports sign-in."""

    server: Server
    spec: HttpSpec


def find_sign_in_server(configuration: Configuration, server_id: str) -> SignInServer:
    """Return the server with this id. Raises Usage if it does not exist or needs no sign-in."""
    server = configuration.servers.get(server_id)
    if server is None:
        there = ", ".join(configuration.servers) or "none"
        raise Usage(f"there is no server '{server_id}'", hint=f"there are: {there}")
    spec = server.transport
    if not isinstance(spec, HttpSpec):
        raise Usage(
            f"server '{server_id}' is a command that we start, and such servers have no sign-in of ours",
            hint="give it what it needs in 'env'",
        )
    if spec.auth_provider_id is not None:
        raise Usage(
            f"server '{server_id}' takes its credentials from the auth provider '{spec.auth_provider_id}'",
            hint="remove authProviderId from its entry to sign in here",
        )
    if any(name.lower() == "authorization" for name in spec.headers):
        raise Usage(
            f"server '{server_id}' sends an Authorization header of its own",
            hint="remove that header from its entry to sign in here",
        )
    return SignInServer(server, spec)
