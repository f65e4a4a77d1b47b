"""Review of changed tool definitions: a diff of each change, and buttons that accept it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fastapi import Request, Response

from toolyard.catalog.lock import Change
from toolyard.catalog.lock.changes import common_end_lengths
from toolyard.catalog.lock.errors import LockBroken, LockUnwritable, Outdated
from toolyard.errors import ToolyardError
from toolyard.types.account import RequestUser
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.tool_acceptance import ReviewedServer, ToolAcceptance
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count, one_line
from toolyard.web.ui.tools.server_tools import ServerToolsDep, find_file_server

__all__ = ["router"]

router = Routes()

_MAX_CHANGES_PER_PAGE = 200
"""Maximum number of changes on one page. Only changes that are shown can be accepted."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff. ``mark`` is the part that differs from the line's counterpart."""

    kind: Literal["in", "out", "place", "same"]
    start: str
    mark: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class ChangeDiff:
    """A change and the lines of its diff."""

    change: Change
    lines: Sequence[DiffLine]


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """Content of the page: all changes of one server."""

    name: str
    back: str
    for_whom: str
    """Scope of accepting, as the object of “Accepting applies to …”."""
    changes: Sequence[ChangeDiff]
    problem: ToolyardError | None = None
    more: int = 0
    """Number of changes left for the next page."""
    for_everyone: str = ""
    """URL of the page where an admin accepts the changes for everyone; empty for others."""

    @property
    def problem_title(self) -> str:
        """Title of the problem."""
        return (
            "Can’t use the lock file" if isinstance(self.problem, LockBroken) else "Couldn’t reach the server"
        )

    @property
    def blocked(self) -> int:
        """Number of tools that are blocked until their changes are accepted."""
        return sum(each.change.blocks for each in self.changes)


# Servers from files.


@router.get("/ui/admin/mcp/files/{server_id}/changes")
async def show_file_changes(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    config: deps.ConfigDep,
    locks: deps.LocksDep,
    server_tools: ServerToolsDep,
    tool_acceptance: deps.ToolAcceptanceDep,
) -> Response:
    """Show how a fresh listing differs from the lock file."""
    server = find_file_server(config, server_id)
    problem: ToolyardError | None = None
    changes: list[Change] = []
    try:
        problem = (await server_tools.fetch(me.principal, server)).error
        changes = await tool_acceptance.find_changes(me, server)
    except ToolyardError as error:
        problem = error
    where = locks.file
    whom = f"everyone, in {where.path}" if where is not None and where.exists else "everyone"
    return await _render_changes_page(
        request, server.label or server.id, f"/ui/admin/mcp/files/{server.id}", whom, changes, problem
    )


@router.post("/ui/admin/mcp/files/{server_id}/changes")
async def accept_file_changes(
    me: deps.AdminUser,
    server_id: str,
    form: forms.FormDep,
    config: deps.ConfigDep,
    tool_acceptance: deps.ToolAcceptanceDep,
) -> Response:
    """Accept changes in the lock file."""
    server = find_file_server(config, server_id)
    return await _accept_changes(tool_acceptance, me, server, form, f"/ui/admin/mcp/files/{server.id}")


# Servers of the registry.


@router.get("/ui/admin/mcp/{server_id}/changes")
async def show_server_changes(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
) -> Response:
    """Show all changes of the server that no admin has accepted, as listed by any instance."""
    server = await registry.get_server(server_id)
    changes = await tool_acceptance.find_changes(me, server)
    return await _render_changes_page(
        request, server.name, f"/ui/admin/mcp/{server.id}", "all instances of this server", changes
    )


@router.post("/ui/admin/mcp/{server_id}/changes")
async def accept_server_changes(
    me: deps.AdminUser,
    server_id: str,
    form: forms.FormDep,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
) -> Response:
    """Accept changes for all instances."""
    server = await registry.get_server(server_id)
    return await _accept_changes(tool_acceptance, me, server, form, f"/ui/admin/mcp/{server.id}")


# Instances.


@router.get("/ui/mcp/{instance_id}/changes")
async def show_instance_changes(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    server_tools: ServerToolsDep,
    tool_acceptance: deps.ToolAcceptanceDep,
) -> Response:
    """Show how a fresh listing of an instance differs from the accepted definitions."""
    instance, registered = await instance_sync.find(me, instance_id)
    fetched = await server_tools.fetch(me.principal, registry.build_instance_server(instance, registered))
    changes = await tool_acceptance.find_changes(me, instance)
    whom = "this instance only"
    everyone = f"/ui/admin/mcp/{registered.id}/changes" if me.is_admin else ""
    return await _render_changes_page(
        request, instance.name, f"/ui/mcp/{instance.id}", whom, changes, fetched.error, everyone
    )


@router.post("/ui/mcp/{instance_id}/changes")
async def accept_instance_changes(
    me: deps.CurrentUser,
    instance_id: str,
    form: forms.FormDep,
    instance_sync: deps.InstanceSyncDep,
    tool_acceptance: deps.ToolAcceptanceDep,
) -> Response:
    """Accept changes for this instance only."""
    instance, _ = await instance_sync.find(me, instance_id)
    return await _accept_changes(tool_acceptance, me, instance, form, f"/ui/mcp/{instance.id}")


# Rendering.


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
        # Diffs of many long definitions take time. Yield to the event loop between two.
        await asyncio.sleep(0)
    more = len(changes) - len(shown)
    return await responses.render_large_page(
        request, "changes.html", page=ChangesPage(name, back, whom, shown, problem, more, everyone)
    )


async def _accept_changes(
    tool_acceptance: ToolAcceptance,
    me: RequestUser,
    reviewed: ReviewedServer,
    form: forms.SubmittedForm,
    path: str,
) -> Response:
    """Accept the chosen changes, and redirect to the remaining ones, or back to the server at ``path``."""
    try:
        accepted = await tool_acceptance.accept_changes(me, reviewed, form.all_values("change"))
        remaining = await tool_acceptance.find_changes(me, reviewed)
    except (Outdated, LockUnwritable, LockBroken) as error:
        return responses.redirect_to(f"{path}/changes", error.cause, kind="bad", hint=error.hint)
    summary = (
        one_line(accepted[0].tool or accepted[0].kind.value, 80)
        if len(accepted) == 1
        else count(len(accepted), "change")
    )
    return responses.redirect_to(f"{path}/changes" if remaining else path, f"Accepted: {summary}.")


def build_diff_lines(lines: Sequence[str]) -> list[DiffLine]:
    """Return the lines of a diff for display. In pairs of a removed and an added line about the same place,
    the differing part is marked."""
    result: list[DiffLine] = []
    index = 0
    while index < len(lines):
        line, following = lines[index], lines[index + 1] if index + 1 < len(lines) else ""
        if (
            _classify_line(line)[0] == "out"
            and _classify_line(following)[0] == "in"
            and _get_line_key(line) == _get_line_key(following)
        ):
            result += _mark_pair(_classify_line(line)[1], _classify_line(following)[1])
            index += 2
        else:
            kind, text = _classify_line(line)
            result.append(DiffLine(kind, text))
            index += 1
    return result


def _classify_line(line: str) -> tuple[Literal["in", "out", "place", "same"], str]:
    """Return the kind and text of a diff line. Lines inside a changed text are indented by four spaces."""
    text = line.removeprefix("    ")
    sign = text[:1]
    if sign == "+":
        return "in", text[1:].removeprefix(" ")
    if sign == "-":
        return "out", text[1:].removeprefix(" ")
    # A tilde marks a place only at the top level. Inside a text it is content.
    is_place = sign == "~" and not line.startswith("    ")
    return ("place", text[2:]) if is_place else ("same", text.strip())


def _get_line_key(line: str) -> str:
    """Return the place that a line describes; empty for lines inside a text."""
    return "" if line.startswith("    ") else line[1:].partition(":")[0]


def _mark_pair(before: str, after: str) -> tuple[DiffLine, DiffLine]:
    # Everything between the common prefix and the common suffix is marked.
    start, end = common_end_lengths(before, after)
    return _mark_difference("out", before, start, end), _mark_difference("in", after, start, end)


def _mark_difference(kind: Literal["in", "out"], text: str, start: int, end: int) -> DiffLine:
    last = len(text) - end
    return DiffLine(kind, text[:start], text[start:last], text[last:])
