"""What became different about a server, line by line, and the button that accepts it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.catalog.lock import Change
from toolyard.catalog.lock.diff import shared_ends
from toolyard.catalog.lock.errors import LockBroken, LockUnwritable, Outdated
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.server import Server
from toolyard.web.access.dependencies import Visitor, admin, visitor
from toolyard.web.services import Site
from toolyard.web.tool_acceptance import (
    accept_for_everyone,
    accept_in_file,
    accept_in_instance,
    changes_for_everyone,
    changes_in_file,
    changes_in_instance,
)
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.formatting import count, one_line
from toolyard.web.ui.components.forms import posted
from toolyard.web.ui.components.render import render
from toolyard.web.ui.registry.server_listing import ask_now

__all__ = ["router"]

router = APIRouter()

AnAdmin = Annotated[Visitor, Depends(admin)]
Owner = Annotated[Visitor, Depends(visitor)]

_AT_ONCE = 200
"""Changes on one page: nobody accepts what the page does not show."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference. ``mark`` is what its counterpart does not have."""

    kind: Literal["in", "out", "place", "same"]
    start: str
    mark: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ChangeShown:
    """A change, ready to be read."""

    change: Change
    lines: Sequence[DiffLine]


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """All that is different about one server."""

    name: str
    back: str
    for_whom: str
    """Who gets what is accepted here, in words."""
    changes: Sequence[ChangeShown]
    problem: ToolyardError | None = None
    more: int = 0
    """Changes that are shown once these are accepted."""
    for_everyone: str = ""
    """The page where an admin accepts for everyone what is accepted here for one."""

    @property
    def trouble(self) -> str:
        """What the problem is with."""
        return "The lock cannot be used" if isinstance(self.problem, LockBroken) else "It could not be asked"

    @property
    def blocked(self) -> int:
        """How many tools cannot be used until they are accepted."""
        return sum(each.change.blocks for each in self.changes)


# A server of the files.


@router.get("/ui/admin/mcp/files/{server_id}/changes")
async def show_file_changes(request: Request, me: AnAdmin, server_id: str) -> Response:
    """What its lock file does not have, asked now."""
    site: Site = request.app.state.site
    server = _file_server(site, server_id)
    problem: ToolyardError | None = None
    changes: list[Change] = []
    try:
        problem = (await ask_now(site, me.principal, server)).error
        changes = await changes_in_file(site, me, server)
    except ToolyardError as error:
        problem = error
    where = site.parts.locks.file
    whom = f"for everyone, in {where.path}" if where is not None and where.holds else "for everyone"
    return await _shown(
        request, server.label or server.id, f"/ui/admin/mcp/files/{server.id}", whom, changes, problem
    )


@router.post("/ui/admin/mcp/files/{server_id}/changes")
async def accept_file_changes(request: Request, me: AnAdmin, server_id: str) -> Response:
    """Write what was accepted into the lock file."""
    site: Site = request.app.state.site
    server = _file_server(site, server_id)
    at = f"/ui/admin/mcp/files/{server.id}"
    keys = (await posted(request)).all("change")
    try:
        done = await accept_in_file(site, me, server, keys)
        return _done(at, done, await changes_in_file(site, me, server))
    except (Outdated, LockUnwritable, LockBroken) as error:
        return go(f"{at}/changes", error.cause, kind="bad", hint=error.hint)


# A server of the registry.


@router.get("/ui/admin/mcp/{server_id}/changes")
async def show_server_changes(request: Request, me: AnAdmin, server_id: str) -> Response:
    """What anybody was given of it that was not accepted."""
    site: Site = request.app.state.site
    server = await site.registry.server(server_id)
    changes = await changes_for_everyone(site, server)
    return await _shown(
        request, server.name, f"/ui/admin/mcp/{server.id}", "for everybody’s instances of it", changes
    )


@router.post("/ui/admin/mcp/{server_id}/changes")
async def accept_server_changes(request: Request, me: AnAdmin, server_id: str) -> Response:
    """Accept for everyone."""
    site: Site = request.app.state.site
    server = await site.registry.server(server_id)
    at = f"/ui/admin/mcp/{server.id}"
    keys = (await posted(request)).all("change")
    try:
        done = await accept_for_everyone(site, me, server, keys)
        return _done(at, done, await changes_for_everyone(site, server))
    except Outdated as error:
        return go(f"{at}/changes", error.cause, kind="bad", hint=error.hint)


# An instance.


@router.get("/ui/mcp/{instance_id}/changes")
async def show_instance_changes(request: Request, me: Owner, instance_id: str) -> Response:
    """What its owner may not use yet, asked now."""
    site: Site = request.app.state.site
    instance, registered = await site.instance(me, instance_id)
    asked = await ask_now(site, me.principal, site.registry.core_server(instance, registered))
    changes = await changes_in_instance(site, instance)
    whom = "for this instance of yours alone"
    everyone = f"/ui/admin/mcp/{registered.id}/changes" if me.is_admin else ""
    return await _shown(
        request, instance.name, f"/ui/mcp/{instance.id}", whom, changes, asked.error, everyone
    )


@router.post("/ui/mcp/{instance_id}/changes")
async def accept_instance_changes(request: Request, me: Owner, instance_id: str) -> Response:
    """Accept for this instance alone."""
    site: Site = request.app.state.site
    instance, _ = await site.instance(me, instance_id)
    at = f"/ui/mcp/{instance.id}"
    keys = (await posted(request)).all("change")
    try:
        done = await accept_in_instance(site, me, instance, keys)
        return _done(at, done, await changes_in_instance(site, instance))
    except Outdated as error:
        return go(f"{at}/changes", error.cause, kind="bad", hint=error.hint)


# How it is shown.


def _file_server(site: Site, server_id: str) -> Server:
    server = site.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("there is no such server", hint="it may have been taken out of its file")
    return server


async def _shown(
    request: Request,
    name: str,
    back: str,
    whom: str,
    changes: Sequence[Change],
    problem: ToolyardError | None = None,
    everyone: str = "",
) -> Response:
    shown: list[ChangeShown] = []
    for change in changes[:_AT_ONCE]:
        shown.append(ChangeShown(change, diff_lines(change.diff())))
        # Definitions are long, and there may be many.
        await asyncio.sleep(0)
    more = len(changes) - len(shown)
    return render(request, "changes.html", page=ChangesPage(name, back, whom, shown, problem, more, everyone))


def _done(at: str, done: Sequence[Change], left: Sequence[Change]) -> Response:
    """On to what is left, or back to the server."""
    said = one_line(done[0].tool or done[0].kind.value, 80) if len(done) == 1 else count(len(done), "change")
    return go(f"{at}/changes" if left else at, f"Accepted: {said}.")


def diff_lines(lines: Sequence[str]) -> list[DiffLine]:
    """The lines of a difference as a page shows them; of two that belong together, what differs is marked."""
    told: list[DiffLine] = []
    place = 0
    while place < len(lines):
        here, after = lines[place], lines[place + 1] if place + 1 < len(lines) else ""
        if _body(here)[0] == "out" and _body(after)[0] == "in" and _key(here) == _key(after):
            told += _pair(_body(here)[1], _body(after)[1])
            place += 2
        else:
            kind, text = _body(here)
            told.append(DiffLine(kind, text))
            place += 1
    return told


def _body(line: str) -> tuple[Literal["in", "out", "place", "same"], str]:
    """Lines of a text that differs are set in by four."""
    said = line.removeprefix("    ")
    sign = said[:1]
    if sign == "+":
        return "in", said[1:].removeprefix(" ")
    if sign == "-":
        return "out", said[1:].removeprefix(" ")
    is_place = sign == "~" and not line.startswith("    ")
    return ("place", said[2:]) if is_place else ("same", said.strip())


def _key(line: str) -> str:
    """What a line is about: a place, or a line of a text."""
    return "" if line.startswith("    ") else line[1:].partition(":")[0]


def _pair(before: str, after: str) -> tuple[DiffLine, DiffLine]:
    start, end = shared_ends(before, after)
    return _marked("out", before, start, end), _marked("in", after, start, end)


def _marked(kind: Literal["in", "out"], text: str, start: int, end: int) -> DiffLine:
    last = len(text) - end
    return DiffLine(kind, text[:start], text[start:last], text[last:])
