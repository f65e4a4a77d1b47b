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
from toolyard.catalog.lock.changes import common_end_lengths
from toolyard.catalog.lock.errors import LockBroken, LockUnwritable, Outdated
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.server import Server
from toolyard.web.access.dependencies import RequestUser, require_admin, require_user
from toolyard.web.services import Services
from toolyard.web.tool_acceptance import (
    accept_changes_for_everyone,
    accept_changes_in_file,
    accept_changes_in_instance,
    find_file_changes,
    find_instance_changes,
    find_registry_changes,
)
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import count, one_line
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.registry.server_listing import fetch_server_listing

__all__ = ["router"]

router = APIRouter()

AdminUser = Annotated[RequestUser, Depends(require_admin)]
CurrentUser = Annotated[RequestUser, Depends(require_user)]

_MAX_CHANGES_PER_PAGE = 200
"""Changes on one page: nobody accepts what the page does not show."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference. ``mark`` is what its counterpart does not have."""

    kind: Literal["in", "out", "place", "same"]
    start: str
    mark: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ChangeDiff:
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
    changes: Sequence[ChangeDiff]
    problem: ToolyardError | None = None
    more: int = 0
    """Changes that are shown once these are accepted."""
    for_everyone: str = ""
    """The page where an admin accepts for everyone what is accepted here for one."""

    @property
    def trouble(self) -> str:
        """What the problem is with."""
        return (
            "Can’t use the lock file" if isinstance(self.problem, LockBroken) else "Couldn’t reach the server"
        )

    @property
    def blocked(self) -> int:
        """How many tools cannot be used until they are accepted."""
        return sum(each.change.blocks for each in self.changes)


# A server of the files.


@router.get("/ui/admin/mcp/files/{server_id}/changes")
async def show_file_changes(request: Request, me: AdminUser, server_id: str) -> Response:
    """What its lock file does not have, asked now."""
    site: Services = request.app.state.site
    server = _find_file_server(site, server_id)
    problem: ToolyardError | None = None
    changes: list[Change] = []
    try:
        problem = (await fetch_server_listing(site, me.principal, server)).error
        changes = await find_file_changes(site, me, server)
    except ToolyardError as error:
        problem = error
    where = site.parts.locks.file
    whom = f"everyone, in {where.path}" if where is not None and where.exists else "everyone"
    return await _render_changes_page(
        request, server.label or server.id, f"/ui/admin/mcp/files/{server.id}", whom, changes, problem
    )


@router.post("/ui/admin/mcp/files/{server_id}/changes")
async def accept_file_changes(request: Request, me: AdminUser, server_id: str) -> Response:
    """Write what was accepted into the lock file."""
    site: Services = request.app.state.site
    server = _find_file_server(site, server_id)
    at = f"/ui/admin/mcp/files/{server.id}"
    keys = (await read_submitted_form(request)).all_values("change")
    try:
        done = await accept_changes_in_file(site, me, server, keys)
        return _redirect_after_accept(at, done, await find_file_changes(site, me, server))
    except (Outdated, LockUnwritable, LockBroken) as error:
        return redirect_with_message(f"{at}/changes", error.cause, kind="bad", hint=error.hint)


# A server of the registry.


@router.get("/ui/admin/mcp/{server_id}/changes")
async def show_server_changes(request: Request, me: AdminUser, server_id: str) -> Response:
    """What anybody was given of it that was not accepted."""
    site: Services = request.app.state.site
    server = await site.registry.server(server_id)
    changes = await find_registry_changes(site, server)
    return await _render_changes_page(
        request, server.name, f"/ui/admin/mcp/{server.id}", "all instances of this server", changes
    )


@router.post("/ui/admin/mcp/{server_id}/changes")
async def accept_server_changes(request: Request, me: AdminUser, server_id: str) -> Response:
    """Accept for everyone."""
    site: Services = request.app.state.site
    server = await site.registry.server(server_id)
    at = f"/ui/admin/mcp/{server.id}"
    keys = (await read_submitted_form(request)).all_values("change")
    try:
        done = await accept_changes_for_everyone(site, me, server, keys)
        return _redirect_after_accept(at, done, await find_registry_changes(site, server))
    except Outdated as error:
        return redirect_with_message(f"{at}/changes", error.cause, kind="bad", hint=error.hint)


# An instance.


@router.get("/ui/mcp/{instance_id}/changes")
async def show_instance_changes(request: Request, me: CurrentUser, instance_id: str) -> Response:
    """What its owner may not use yet, asked now."""
    site: Services = request.app.state.site
    instance, registered = await site.instance(me, instance_id)
    asked = await fetch_server_listing(
        site, me.principal, site.registry.build_instance_server(instance, registered)
    )
    changes = await find_instance_changes(site, instance)
    whom = "this instance only"
    everyone = f"/ui/admin/mcp/{registered.id}/changes" if me.is_admin else ""
    return await _render_changes_page(
        request, instance.name, f"/ui/mcp/{instance.id}", whom, changes, asked.error, everyone
    )


@router.post("/ui/mcp/{instance_id}/changes")
async def accept_instance_changes(request: Request, me: CurrentUser, instance_id: str) -> Response:
    """Accept for this instance alone."""
    site: Services = request.app.state.site
    instance, _ = await site.instance(me, instance_id)
    at = f"/ui/mcp/{instance.id}"
    keys = (await read_submitted_form(request)).all_values("change")
    try:
        done = await accept_changes_in_instance(site, me, instance, keys)
        return _redirect_after_accept(at, done, await find_instance_changes(site, instance))
    except Outdated as error:
        return redirect_with_message(f"{at}/changes", error.cause, kind="bad", hint=error.hint)


# How it is shown.


def _find_file_server(site: Services, server_id: str) -> Server:
    server = site.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("server not found", hint="it may have been removed from its file")
    return server


async def _render_changes_page(
    request: Request,
    name: str,
    back: str,
    whom: str,
    changes: Sequence[Change],
    problem: ToolyardError | None = None,
    everyone: str = "",
) -> Response:
    shown: list[ChangeDiff] = []
    for change in changes[:_MAX_CHANGES_PER_PAGE]:
        shown.append(ChangeDiff(change, build_diff_lines(change.diff())))
        # Definitions are long, and there may be many.
        await asyncio.sleep(0)
    more = len(changes) - len(shown)
    return render_page(
        request, "changes.html", page=ChangesPage(name, back, whom, shown, problem, more, everyone)
    )


def _redirect_after_accept(at: str, accepted: Sequence[Change], remaining: Sequence[Change]) -> Response:
    """On to what is left, or back to the server."""
    said = (
        one_line(accepted[0].tool or accepted[0].kind.value, 80)
        if len(accepted) == 1
        else count(len(accepted), "change")
    )
    return redirect_with_message(f"{at}/changes" if remaining else at, f"Accepted: {said}.")


def build_diff_lines(lines: Sequence[str]) -> list[DiffLine]:
    """The lines of a difference as a page shows them; of two that belong together, what differs is marked."""
    told: list[DiffLine] = []
    place = 0
    while place < len(lines):
        here, after = lines[place], lines[place + 1] if place + 1 < len(lines) else ""
        if (
            _classify_line(here)[0] == "out"
            and _classify_line(after)[0] == "in"
            and _get_line_key(here) == _get_line_key(after)
        ):
            told += _mark_pair(_classify_line(here)[1], _classify_line(after)[1])
            place += 2
        else:
            kind, text = _classify_line(here)
            told.append(DiffLine(kind, text))
            place += 1
    return told


def _classify_line(line: str) -> tuple[Literal["in", "out", "place", "same"], str]:
    """Lines of a text that differs are set in by four."""
    said = line.removeprefix("    ")
    sign = said[:1]
    if sign == "+":
        return "in", said[1:].removeprefix(" ")
    if sign == "-":
        return "out", said[1:].removeprefix(" ")
    is_place = sign == "~" and not line.startswith("    ")
    return ("place", said[2:]) if is_place else ("same", said.strip())


def _get_line_key(line: str) -> str:
    """What a line is about: a place, or a line of a text."""
    return "" if line.startswith("    ") else line[1:].partition(":")[0]


def _mark_pair(before: str, after: str) -> tuple[DiffLine, DiffLine]:
    start, end = common_end_lengths(before, after)
    return _mark_difference("out", before, start, end), _mark_difference("in", after, start, end)


def _mark_difference(kind: Literal["in", "out"], text: str, start: int, end: int) -> DiffLine:
    last = len(text) - end
    return DiffLine(kind, text[:start], text[start:last], text[last:])
