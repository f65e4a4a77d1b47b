"""Unvalidated input for servers and instances, from a form or the API."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ChoiceDraft", "InstanceDraft", "ServerDraft"]


@dataclass(frozen=True, slots=True)
class ChoiceDraft:
    """Input for a sign-in choice. Fields that do not apply to its kind are ignored.

    ``id`` is the existing choice that this one replaces; None creates a new one. ``client_secret`` None keeps
    the stored secret, an empty one removes it.
    """

    kind: str = "public"
    label: str = ""
    id: str | None = None
    place: str = "header"
    key: str | None = None
    registration: str = "auto"
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    resource: str | None = None
    legacy_discovery: bool = False
    issuer: str | None = None
    issuer_redirect: bool = False


@dataclass(frozen=True, slots=True)
class ServerDraft:
    """Input for a registry server. Without any choices, the server is public."""

    name: str
    url: str
    transport: str = "http"
    trust: str = "trusted"
    description: str = ""
    private_addresses: bool = False
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    choices: tuple[ChoiceDraft, ...] = ()
    enabled: bool | None = None
    """None keeps the current value; a new one is enabled."""


@dataclass(frozen=True, slots=True)
class InstanceDraft:
    """Input for a user's instance. ``value`` None keeps the stored value, an empty one removes it."""

    server_id: str = ""
    """Used for a new instance; it cannot be changed later."""
    choice_id: str | None = None
    """None keeps the current choice; for a new instance, it means the server's only choice."""
    slug: str | None = None
    """None or empty keeps the current slug; for a new instance, one is derived from the server's URL."""
    name: str | None = None
    """None or empty keeps the current name; for a new instance, it is the server's name."""
    tool_filter: tuple[str, ...] | None = None
    """Enabled tools, by the server's own names; None enables all, () none."""
    value: str | None = field(default=None, repr=False)
    enabled: bool | None = None
    """None keeps the current value; a new one is enabled."""
