"""Servers that admins add or edit: the server itself is asked how to sign in, unless that was chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from toolyard.auth.errors import AuthUnavailable
from toolyard.core.audit import AuditRecorder
from toolyard.errors import PrivateAddress, ServerError, SignInNeeded
from toolyard.registry import Registry
from toolyard.registry.field_validation import TEXT_FAULTS
from toolyard.registry.service import propose
from toolyard.types.account import RequestUser
from toolyard.types.registry import (
    AuthKind,
    ChoiceDraft,
    InstanceDraft,
    RegistryServer,
    ServerDraft,
    TextRule,
)
from toolyard.web.server_preview import ServerPreview, ServerPreviews

__all__ = ["AUTOMATIC", "NewServers", "Obstacle", "ObstacleKind", "fill_draft"]

AUTOMATIC = "auto"
"""Kind of a sign-in method in a draft that stands for the one that the server asks for."""

_KEY_HEADER = "Authorization"


class ObstacleKind(Enum):
    """Reason why a server is not added yet."""

    PRIVATE_ADDRESS = auto()
    """It has a private address, which must be allowed."""
    NEEDS_KEY = auto()
    """It needs an API key, and the name of the header must be entered. The draft has a usual one."""
    UNKNOWN_SIGN_IN = auto()
    """It did not answer, or not as an MCP server, so that the way to sign in is unknown."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What has to be decided before a server can be added."""

    kind: ObstacleKind
    error: ServerError


class NewServers:
    """Adds servers for admins."""

    def __init__(self, registry: Registry, previews: ServerPreviews, audit: AuditRecorder) -> None:
        self._registry = registry
        self._previews = previews
        self._audit = audit

    async def find_sign_in(
        self, me: RequestUser, draft: ServerDraft, old: RegistryServer | None = None
    ) -> tuple[ServerDraft, Obstacle | None]:
        """Replace an automatic sign-in method by the one that the server asks for. Raises Invalid.

        ``old`` is the server that the draft replaces, if there is one.
        """
        if all(choice.kind != AUTOMATIC for choice in draft.choices):
            return draft, None
        named = replace(draft, name=draft.name.strip() or "-", choices=())
        checked = self._registry.check_server(named, old)
        preview = await self._previews.fetch_server_preview(me, checked, use_instance=False)
        error, offered = preview.error, preview.offered_issuer
        if isinstance(error, PrivateAddress):
            return draft, Obstacle(ObstacleKind.PRIVATE_ADDRESS, error)
        if isinstance(error, SignInNeeded) and offered is not None:
            if offered.issuer:
                return fill_draft(draft, AuthKind.OAUTH, preview, old), None
            if isinstance(offered.error, AuthUnavailable):
                return draft, Obstacle(ObstacleKind.UNKNOWN_SIGN_IN, offered.error)
            filled = fill_draft(draft, AuthKind.HEADER, preview, old)
            return filled, Obstacle(ObstacleKind.NEEDS_KEY, error)
        if error is None or preview.protocol_version is not None:
            return fill_draft(draft, AuthKind.PUBLIC, preview, old), None
        return draft, Obstacle(ObstacleKind.UNKNOWN_SIGN_IN, error)

    async def add(self, me: RequestUser, draft: ServerDraft) -> RegistryServer:
        """Add a server whose sign-in methods are known. Raises Invalid or Taken."""
        server = await self._registry.add_server(draft)
        await self._audit.record_change(me, "server.add", server.id, name=server.name, url=server.url)
        return server

    async def create_own_instance(self, me: RequestUser, server: RegistryServer) -> str:
        """Create an instance for the request's user that needs no input, and return its id.

        It uses OAuth if the server offers that.
        """
        choice = next((each for each in server.choices if each.kind is AuthKind.OAUTH), server.choices[0])
        made = await self._registry.create_instance(me.user.id, InstanceDraft(server.id, choice.id))
        await self._audit.record_change(me, "instance.create", made.id, slug=made.slug, server=server.id)
        return made.id


def fill_draft(
    draft: ServerDraft, kind: AuthKind, preview: ServerPreview, old: RegistryServer | None = None
) -> ServerDraft:
    """Return the draft with the sign-in method that was found, and a name.

    A method of ``old`` that has the kind already is kept, with the credentials that people entered for it.
    """
    choices = tuple(
        _fill_choice(choice, kind, old) if choice.kind == AUTOMATIC else choice for choice in draft.choices
    )
    return replace(draft, choices=choices, name=draft.name.strip() or _choose_name(draft.url, preview))


def _fill_choice(choice: ChoiceDraft, kind: AuthKind, old: RegistryServer | None) -> ChoiceDraft:
    known = None if old is None or choice.id is None else old.find_choice(choice.id)
    if known is not None and known.kind is kind:
        return replace(choice, kind=kind.value)
    return ChoiceDraft(kind.value, id=choice.id, key=_KEY_HEADER if kind is AuthKind.HEADER else None)


def _choose_name(url: str, preview: ServerPreview) -> str:
    """Return the name that the server reports, if it is usable, else one from its address."""
    for reported in (preview.server_info.get("title"), preview.server_info.get("name")):
        if isinstance(reported, str) and TEXT_FAULTS[TextRule.NAME](reported.strip()) is None:
            return reported.strip()
    return propose(url)
