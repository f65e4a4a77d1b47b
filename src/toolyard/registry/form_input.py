"""What somebody enters about a server or an instance, as raw as it comes."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ChoiceDraft", "InstanceDraft", "ServerDraft"]


@dataclass(frozen=True, slots=True)
class ChoiceDraft:
    """One way of signing in. What does not belong to its kind is not looked at.

    ``id`` names the choice of an edited server that this one replaces; None makes a new one. An edit keeps
    the client secret where ``client_secret`` is None, and removes it where it is empty.
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
    """A server of the registry. No choice at all means that it does not ask who calls."""

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
    """None: as it is; a new one is enabled."""


@dataclass(frozen=True, slots=True)
class InstanceDraft:
    """A user's instance. An edit keeps the value where ``value`` is None; an empty one removes it."""

    server_id: str = ""
    """Cannot be edited."""
    choice_id: str | None = None
    """None: as it is; for a new instance the server's only choice."""
    slug: str | None = None
    """None or empty: as it is; for a new instance one that is proposed from the server's address."""
    name: str | None = None
    """None or empty: as it is; for a new instance the server's name."""
    tool_filter: tuple[str, ...] | None = None
    """The server's own tool names; None all, () none."""
    value: str | None = field(default=None, repr=False)
    enabled: bool | None = None
    """None: as it is; a new one is enabled."""
