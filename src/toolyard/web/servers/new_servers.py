"""Servers that admins add: from the catalogue of well-known servers, from pasted text, or by their address.

The server itself is asked how to sign in, unless that was chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal
from urllib.parse import urlsplit

from toolyard.auth.errors import AuthUnavailable
from toolyard.config.importers.formats import read_pasted_servers
from toolyard.config.known_servers import KnownServer, read_known_servers, search_known_servers
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import ConfigError, PrivateAddress, Problem, ServerError, SignInNeeded
from toolyard.registry import Registry
from toolyard.registry.errors import Invalid, NotFound
from toolyard.registry.field_validation import TEXT_FAULTS
from toolyard.registry.public_registry import PublicRegistry
from toolyard.registry.server_draft_from_config import EntryDraft, build_entry_draft
from toolyard.registry.service import derive_slug
from toolyard.store.sql.stored_values import fold_case
from toolyard.types.account import RequestUser
from toolyard.types.proposal import Proposal
from toolyard.types.registry import (
    AuthKind,
    ChoiceDraft,
    InstanceDraft,
    RegistryServer,
    ServerDraft,
    TextRule,
)
from toolyard.types.server import HttpSpec, TransportSpec
from toolyard.web.servers.previews import ServerPreview, ServerPreviews

__all__ = [
    "AUTOMATIC",
    "AddedServer",
    "NewServers",
    "Obstacle",
    "ObstacleKind",
    "ServerCatalog",
    "read_pasted_draft",
]


AUTOMATIC = "auto"
"""Kind of a sign-in method in a draft that stands for the one that the server asks for."""

_KEY_HEADER = "Authorization"
_UNNAMED = "server"
"""Name of a pasted entry that has none: the server's own name is used instead."""


class ObstacleKind(Enum):
    """Reason why a server is not added yet."""

    PRIVATE_ADDRESS = auto()
    """It has a private address, which must be allowed."""
    NEEDS_KEY = auto()
    """It needs an API key, and the name of the header must be entered. The draft has a usual one."""
    UNKNOWN_SIGN_IN = auto()
    """It did not answer, or not as an MCP server, so the way to sign in is unknown."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Open decision without which a server cannot be added."""

    kind: ObstacleKind
    error: ServerError


@dataclass(frozen=True, slots=True)
class NewServers:
    """Adds servers for admins."""

    _registry: Registry
    _previews: ServerPreviews
    _audit: AuditRecorder

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
                return await self.fill_draft(draft, AuthKind.OAUTH, preview, old), None
            if isinstance(offered.error, AuthUnavailable):
                return draft, Obstacle(ObstacleKind.UNKNOWN_SIGN_IN, offered.error)
            filled = await self.fill_draft(draft, AuthKind.HEADER, preview, old)
            return filled, Obstacle(ObstacleKind.NEEDS_KEY, error)
        if error is None or preview.protocol_version is not None:
            return await self.fill_draft(draft, AuthKind.PUBLIC, preview, old), None
        return draft, Obstacle(ObstacleKind.UNKNOWN_SIGN_IN, error)

    async def fill_draft(
        self, draft: ServerDraft, kind: AuthKind, preview: ServerPreview, old: RegistryServer | None = None
    ) -> ServerDraft:
        """Return the draft with the sign-in method that was found, and a name that no other server has.

        A method of ``old`` that has the kind already is kept, with the credentials that people entered.
        """
        choices = tuple(
            _fill_choice(choice, kind, old) if choice.kind == AUTOMATIC else choice
            for choice in draft.choices
        )
        name = draft.name.strip()
        if not name:
            others = [
                each for each in await self._registry.list_servers() if old is None or each.id != old.id
            ]
            name = _make_name_unique(_choose_name(draft.url, preview), {each.name for each in others})
        return replace(draft, choices=choices, name=name)

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
    return derive_slug(url)


def _make_name_unique(name: str, taken: Collection[str]) -> str:
    """Return the name, or the first of `` 2``, `` 3`` … appended that no server has, ignoring case."""
    used, candidate = {fold_case(each) for each in taken}, name
    for number in range(2, len(taken) + 2):
        if fold_case(candidate) not in used:
            break
        candidate = f"{name} {number}"
    return candidate


@dataclass(frozen=True, slots=True)
class AddedServer:
    """A server of the registry or of a configuration file that is the same as one of the catalogue."""

    origin: Literal["registry", "file"]
    id: str
    name: str


class ServerCatalog:
    """Known servers, beside those that this Toolyard has.

    ``public_registry`` describes others, which nobody has checked. It is None if it is turned off.
    """

    def __init__(
        self,
        registry: Registry,
        config: CurrentConfig,
        public_registry: PublicRegistry | None = None,
        known: Mapping[str, KnownServer] | None = None,
    ) -> None:
        self._registry = registry
        self._config = config
        self.public_registry = public_registry
        self.known = read_known_servers() if known is None else known

    def search(self, words: str) -> list[KnownServer]:
        """Return the servers with all of the words, best first; without words all, those with an address
        first, since they need no more than a press."""
        found = search_known_servers(words, self.known.values())
        return found if words.strip() else sorted(found, key=lambda each: not each.is_remote)

    def get(self, known_id: str) -> KnownServer:
        """Return a server. Raises NotFound."""
        if known_id not in self.known:
            raise NotFound("the catalogue has no such server", hint="search the catalogue")
        return self.known[known_id]

    async def find_public_server(self, name: str) -> KnownServer:
        """Return a server of the public registry. Raises NotFound or ServerError."""
        found = None if self.public_registry is None else await self.public_registry.find(name)
        if found is None:
            raise NotFound("the public registry has no such server", hint="search again")
        return found

    async def find_added(self) -> dict[str, AddedServer]:
        """Return the servers that were added, by their id in the catalogue."""
        added: dict[str, AddedServer] = {}
        for each in self._config.configuration.servers.values():
            server = AddedServer("file", each.id, each.label or each.id)
            added.setdefault(_format_location(each.transport), server)
        for each in await self._registry.list_servers():
            added[_normalize_url(each.url)] = AddedServer("registry", each.id, each.name)
        locations = {each.id: _normalize_url(each.location) for each in self.known.values()}
        return {known_id: added[place] for known_id, place in locations.items() if place in added}

    def build_draft(self, server: KnownServer, values: Mapping[str, str]) -> ServerDraft:
        """Return the input for a server with an address. Raises Invalid if it has none, or lacks a value."""
        wanted = {each.name: each for each in server.address_variables}
        missing = [each for each in wanted.values() if not values.get(each.name, "").strip()]
        if missing:
            raise Invalid([Problem("is required", path=each.name, hint=each.purpose) for each in missing])
        entry = server.fill_entry({name: values[name].strip() for name in wanted})
        return _with_sign_in(build_entry_draft(server.title, entry, server.purpose).draft)

    def build_proposed_draft(self, proposal: Proposal) -> ServerDraft:
        """Return the input for a proposed server with an address. Raises Invalid."""
        known = self.known.get(proposal.known_id or "")
        entry = proposal.entry or ({} if known is None else known.entry)
        found = build_entry_draft(proposal.name, entry, "" if known is None else known.purpose)
        return _with_sign_in(found.draft)


def read_pasted_draft(text: str) -> EntryDraft:
    """Return the server that a text describes: an address, or an entry in the format of any client.

    Raises Invalid.
    """
    text = text.strip()
    if text.lower().startswith(("http://", "https://")) and not text.split()[1:]:
        found = build_entry_draft("", {"url": text})
    elif not text.startswith(("{", "[", '"')):
        hint = "paste an http(s) URL, or the JSON of one server"
        raise Invalid([Problem("is neither a URL nor an entry", path="text", hint=hint)])
    else:
        try:
            servers = read_pasted_servers(text, _UNNAMED)
        except ConfigError as error:
            raise Invalid([replace(each, path="text", file=None) for each in error.problems[:1]]) from None
        if len(servers) != 1:
            hint = "run `toolyard import` to add several"
            raise Invalid([Problem(f"has {len(servers)} servers; paste one of them", path="text", hint=hint)])
        name = servers[0].name
        found = build_entry_draft("" if name == _UNNAMED else name, servers[0].entry)
        found = replace(found, notes=(*servers[0].notes, *found.notes))
    return replace(found, draft=_with_sign_in(found.draft))


def _with_sign_in(draft: ServerDraft) -> ServerDraft:
    """Return the draft, with the sign-in method left to the server if it is unknown."""
    return draft if draft.choices else replace(draft, choices=(ChoiceDraft(AUTOMATIC),))


def _format_location(transport: TransportSpec) -> str:
    """Return the place of a server as ``KnownServer.location`` writes it."""
    if isinstance(transport, HttpSpec):
        return _normalize_url(transport.url)
    package = next(_without_version(transport.args), "")
    return f"{transport.command} {package}"


def _without_version(args: Iterable[str]) -> Iterator[str]:
    return (word[0] + word[1:].partition("@")[0] for word in args if not word.startswith("-") and word)


def _normalize_url(location: str) -> str:
    """Return an address without a slash at its end and with a host in lower case; others as they are."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return location
    if not parts.scheme.startswith("http"):
        return location
    return f"{parts.netloc.lower()}{parts.path.rstrip('/')}?{parts.query}"
