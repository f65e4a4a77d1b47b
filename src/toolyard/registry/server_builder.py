"""Conversion of registry servers and instances to ``Server`` definitions for connections."""

from __future__ import annotations

from toolyard.types.registry import AuthChoice, AuthKind, Instance, RegistrationMethod, RegistryServer
from toolyard.types.server import HttpSpec, InstanceRef, OAuthSpec, Provenance, Server

__all__ = ["build_instance_server", "build_oauth_spec", "build_preview_server"]

_IDLE_TIMEOUT_SECONDS = 120.0
"""Inactivity after which an instance's connection is closed."""


def build_instance_server(instance: Instance, server: RegistryServer, *, ttl: float = 0.0) -> Server:
    """Return the server definition of an instance; ``ttl`` is the lifetime of its listing in seconds.

    The address guard applies unless the admin allows private addresses for the server.
    """
    choice = server.find_choice(instance.choice_id)
    reason = _find_disabled_reason(instance, server, choice)
    return Server(
        id=instance.core_id,
        transport=_build_transport(instance, server, choice),
        trust=server.trust,
        enabled=reason is None,
        disabled_reason=reason,
        label=instance.name,
        description=server.description or None,
        stop_when_idle=_IDLE_TIMEOUT_SECONDS,
        cache_ttl=ttl,
        allow_tools=server.allow_tools,
        deny_tools=server.deny_tools,
        private_addresses=server.private_addresses,
        oauth=build_oauth_spec(choice) if choice is not None and choice.kind is AuthKind.OAUTH else None,
        provenance=Provenance("registry"),
        instance=InstanceRef(instance.user_id, instance.slug, instance.tool_filter, instance.id, server.id),
    )


def build_preview_server(server: RegistryServer) -> Server:
    """Return the server definition for an admin's preview: without an instance and credentials."""
    return Server(
        # The colon keeps the id apart from the ids of instances and of servers from files.
        id=f"registry:{server.id}",
        transport=HttpSpec(server.url, type=server.transport),
        trust=server.trust,
        label=server.name,
        description=server.description or None,
        stop_when_idle=_IDLE_TIMEOUT_SECONDS,
        cache_ttl=0.0,
        allow_tools=server.allow_tools,
        deny_tools=server.deny_tools,
        private_addresses=server.private_addresses,
        provenance=Provenance("registry"),
    )


def build_oauth_spec(choice: AuthChoice) -> OAuthSpec:
    """Return the OAuth configuration of a choice, without fields that its registration does not use."""
    uses_client_id = choice.registration in (RegistrationMethod.ENTERED, RegistrationMethod.AUTO)
    return OAuthSpec(
        client_id=choice.client_id if uses_client_id else None,
        client_secret=choice.client_secret if uses_client_id else None,
        scopes=choice.scopes,
        resource=choice.resource,
        legacy_discovery=choice.legacy_discovery,
        issuer=choice.issuer if uses_client_id else None,
        issuer_redirect=choice.issuer_redirect,
    )


def _find_disabled_reason(
    instance: Instance, server: RegistryServer, choice: AuthChoice | None
) -> str | None:
    """Return the reason why the instance is disabled, or None if it is enabled."""
    if not server.enabled:
        return f"an admin has disabled the server '{server.name}'"
    if not instance.enabled:
        return "you have disabled this instance"
    if choice is None:
        return "the server no longer offers this instance's sign-in method: choose another one"
    if choice.kind is AuthKind.HEADER and instance.value is None:
        return f"the value for {choice.key} is missing: enter it"
    return None


def _build_transport(instance: Instance, server: RegistryServer, choice: AuthChoice | None) -> HttpSpec:
    credentials: dict[str, str] = {}
    if choice is not None and choice.kind is AuthKind.HEADER and choice.key and instance.value is not None:
        credentials = {choice.key: instance.value}
    in_query = choice is not None and choice.place == "query"
    return HttpSpec(
        server.url,
        headers={} if in_query else credentials,
        type=server.transport,
        query=credentials if in_query else {},
    )
