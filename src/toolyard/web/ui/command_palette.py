"""``/ui/search``: pages, chats, servers, tools and actions by name. The script shows it as a palette."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fastapi import Request, Response

from toolyard.agents.chat.chats import ChatService
from toolyard.config.settings.table import PeopleMode
from toolyard.types.account import RequestUser
from toolyard.types.tool import Definition
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.navigation import list_pages

__all__ = ["router"]

router = Routes()

_MAX_ENTRIES = 8
"""Entries per group, if there is a query."""
_MAX_RECENT_CHATS = 5
_MAX_QUERY_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One destination."""

    title: str
    href: str
    icon: str
    detail: str = ""
    """Further searched text, such as the title of a tool."""
    for_admins: bool = False
    people_mode: PeopleMode | None = None
    """The only mode in which it has a use; None for all."""


@dataclass(frozen=True, slots=True)
class PaletteGroup:
    """Entries of one kind that match the query, best first."""

    title: str
    entries: Sequence[PaletteEntry]


_ACTIONS = (
    PaletteEntry("New chat", "/ui/chat", "plus"),
    PaletteEntry("Run a tool", "/ui/chat?run=", "play"),
    PaletteEntry("Connect to a server", "/ui/mcp/new", "plug"),
    PaletteEntry("Create an agent", "/ui/agents/_new", "agent"),
    PaletteEntry("Create an API token", "/ui/tokens", "key"),
    PaletteEntry("Connect an editor or agent", "/ui/connect", "globe"),
    PaletteEntry("Download your data", "/ui/account", "save"),
    PaletteEntry("Add a server", "/ui/admin/mcp/new", "server", for_admins=True),
    PaletteEntry("Add a model", "/ui/admin/models/new", "model", for_admins=True),
    PaletteEntry(
        "Invite a person", "/ui/admin/people", "people", for_admins=True, people_mode=PeopleMode.PASSWORD
    ),
)


@router.get("/ui/search")
async def search_everything(
    request: Request,
    me: deps.CurrentUser,
    callers: deps.CallersDep,
    chats: deps.ChatsDep,
    server_records: deps.ServerRecordsDep,
    tool_directory: deps.ToolDirectoryDep,
    call_path: deps.CallPathDep,
    settings: deps.SettingsDep,
    q: str = "",
) -> Response:
    """Show what matches a query; without one, actions, recent chats and pages.

    Contacts no server: tools are those of the known listings.
    """
    # PostgreSQL rejects NUL characters in text.
    query = " ".join(q[:_MAX_QUERY_CHARACTERS].replace("\0", "").split())
    caller = callers.get(me)
    actions = [each for each in _ACTIONS if each.people_mode in (None, settings.people_mode)]
    pages = [PaletteEntry(each.search_title or each.title, each.href, each.icon) for each in list_pages(me)]
    groups = [
        PaletteGroup("Actions", _match_entries(actions, query, me)),
        PaletteGroup("Chats", await _find_chats(chats, me, query)),
        PaletteGroup("Pages", _match_entries(pages, query, me)),
    ]
    if query:
        records = await server_records.list_server_records(caller)
        tools = call_path.visible_tools(tool_directory.known_listing(caller.principal), caller)
        # There may be tens of thousands of tools.
        found = await asyncio.to_thread(_match_entries, _list_tool_entries(tools), query, me)
        groups.insert(1, PaletteGroup("Tools", found))
        servers = [_build_server_entry(each, is_admin=me.is_admin) for each in records]
        groups.insert(1, PaletteGroup("Servers", _match_entries(servers, query, me)))
    return responses.render_page(
        request, "search.html", query=query, groups=[group for group in groups if group.entries]
    )


def _match_entries(entries: Iterable[PaletteEntry], query: str, me: RequestUser) -> list[PaletteEntry]:
    """Return the entries that contain all words, those whose title begins with the query first.

    Without a query, return all.
    """
    folded, allowed = query.casefold(), (each for each in entries if me.is_admin or not each.for_admins)
    if not folded:
        return list(allowed)
    words = folded.split()
    found = [
        each for each in allowed if all(word in f"{each.title} {each.detail}".casefold() for word in words)
    ]
    found.sort(key=lambda each: (not each.title.casefold().startswith(folded), len(each.title)))
    return found[:_MAX_ENTRIES]


async def _find_chats(chats: ChatService, me: RequestUser, query: str) -> list[PaletteEntry]:
    limit = _MAX_ENTRIES if query else _MAX_RECENT_CHATS
    found = await chats.list(me.user.id, search_text=query or None, limit=limit)
    return [PaletteEntry(each.title or "New chat", f"/ui/chat/{each.id}", "chat") for each in found]


def _build_server_entry(record: ServerRecord, *, is_admin: bool) -> PaletteEntry:
    id_ = quote(record.id, safe="")
    if record.kind == "instance":
        return PaletteEntry(record.label, f"/ui/mcp/{id_}", "plug", record.slug or "")
    place = "admin/mcp/files" if is_admin else "servers"
    return PaletteEntry(record.label, f"/ui/{place}/{id_}", "server", record.id)


def _list_tool_entries(tools: Mapping[str, Definition]) -> Iterator[PaletteEntry]:
    for name, tool in tools.items():
        yield PaletteEntry(name, f"/ui/chat?{urlencode({'run': '', 'tool': name})}", "tool", tool.title or "")
