"""Registry servers as the core knows servers: ready to connect to."""

from __future__ import annotations

from toolyard.types.registry import AuthChoice, AuthKind, Instance, RegistrationMethod, RegistryServer
from toolyard.types.server import HttpSpec, InstanceSpec, OAuthSpec, Provenance, Server

__all__ = ["build_instance_server", "build_oauth_spec", "build_preview_server"]

_IDLE_TIMEOUT_SECONDS = 120.0
"""Seconds without a call after which an instance's connection is closed."""


def build_instance_server(instance: Instance, server: RegistryServer, *, ttl: float = 0.0) -> Server:
    """One user's instance. Its addresses are guarded unless the admin allows private ones for the server."""
    choice = server.choice(instance.choice_id)
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
        instance=InstanceSpec(instance.user_id, instance.slug, instance.tool_filter, instance.id, server.id),
    )


def build_preview_server(server: RegistryServer, *, ttl: float = 0.0) -> Server:
    """The server itself, for the admin who looks at it: nobody's instance, and without credentials."""
    return Server(
        id=f"registry:{server.id}",
        transport=HttpSpec(server.url, type=server.transport),
        trust=server.trust,
        label=server.name,
        description=server.description or None,
        stop_when_idle=_IDLE_TIMEOUT_SECONDS,
        cache_ttl=ttl,
        allow_tools=server.allow_tools,
        deny_tools=server.deny_tools,
        private_addresses=server.private_addresses,
        provenance=Provenance("registry"),
    )


def build_oauth_spec(choice: AuthChoice) -> OAuthSpec:
    """What the admin entered about signing in. What does not belong to the registration is left out."""
    entered = choice.registration in (RegistrationMethod.ENTERED, RegistrationMethod.AUTO)
    return OAuthSpec(
        client_id=choice.client_id if entered else None,
        client_secret=choice.client_secret if entered else None,
        scopes=choice.scopes,
        resource=choice.resource,
        legacy_discovery=choice.legacy_discovery,
        issuer=choice.issuer if entered else None,
        issuer_redirect=choice.issuer_redirect,
    )


def _find_disabled_reason(
    instance: Instance, server: RegistryServer, choice: AuthChoice | None
) -> str | None:
    """Why nothing may be called."""
    if not server.enabled:
        return f"an admin has disabled the server '{server.name}'"
    if not instance.enabled:
        return "you have disabled this instance"
    if choice is None:
        return "its way of signing in is no longer offered: choose another one"
    if choice.kind is AuthKind.HEADER and instance.value is None:
        return f"the value for {choice.key} is missing: enter it"
    return None


def _build_transport(instance: Instance, server: RegistryServer, choice: AuthChoice | None) -> HttpSpec:
    given: dict[str, str] = {}
    if choice is not None and choice.kind is AuthKind.HEADER and choice.key and instance.value is not None:
        given = {choice.key: instance.value}
    in_query = choice is not None and choice.place == "query"
    return HttpSpec(
        server.url,
        headers={} if in_query else given,
        type=server.transport,
        query=given if in_query else {},
    )
