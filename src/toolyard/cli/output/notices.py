"""What a command tells beside its own output, on standard error: who is off, who failed, what is old."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.cli.output.messages import note, place_of, show_error, show_problems
from toolyard.cli.output.safe_text import ago, count, one_line
from toolyard.errors import ServerError, ToolRefused
from toolyard.types.config import Configuration
from toolyard.types.server import Server

if TYPE_CHECKING:
    from toolyard.catalog.lock.combined_locks import Locks
    from toolyard.catalog.tool_listing import Roster

__all__ = [
    "clean",
    "explained",
    "switched_off",
    "tell_failures",
    "tell_nothing_configured",
    "tell_off",
    "tell_old",
    "tell_set_aside",
    "tell_unaccepted",
    "tell_waiting",
]

_NAMED = 5


def clean(text: str, server: Server | None) -> str:
    """What a server said, on one line and without its secrets."""
    from toolyard.clients.server_secrets import secrets_of  # loaded with the yard
    from toolyard.results.redaction import redact

    return one_line(redact(text, secrets_of(server)) if server is not None else text)


def tell_nothing_configured(configuration: Configuration, folder: Path) -> None:
    """There is no server at all."""
    if not configuration.servers:
        place = configuration.file or str(folder / "mcp.json")
        note("no servers are configured", f"write them into {place}, or run `toolyard import`")


def tell_waiting(configuration: Configuration) -> None:
    """Which file waits for approval."""
    for hint in configuration.hints:
        if hint.file == configuration.waiting and hint.line is None:
            note(place_of(hint), hint.hint)


def tell_off(configuration: Configuration) -> None:
    """Which file waits; which servers are off though their entries say otherwise, and why."""
    tell_waiting(configuration)
    for server in configuration.servers.values():
        reason = server.disabled_reason
        # Those that wait for approval have one reason in common, which was told just now.
        if reason is not None and not reason.startswith("not approved"):
            note(f"server '{server.id}' is disabled: {reason}")


def tell_failures(failures: Mapping[str, ServerError], configuration: Configuration) -> None:
    """Which servers could not be asked, a line each."""
    for server_id, failure in failures.items():
        show_error(f"server '{server_id}': {clean(failure.cause, configuration.servers.get(server_id))}")


def tell_old(roster: Roster, server: str | None = None) -> None:
    """Whose tools are shown from a copy that is past its time."""
    old = {
        server_id: catalogue.age
        for server_id, catalogue in roster.catalogues.items()
        if catalogue.stale
        and catalogue.age >= 1
        and server_id not in roster.failures
        and server in (None, server_id)
    }
    if old:
        names = ", ".join(f"{server_id} {ago(age)}" for server_id, age in old.items())
        note(f"listed earlier: {names}", "--fresh asks again")


def tell_set_aside(roster: Roster, server: str | None = None) -> None:
    """Which tools cannot be used, a line each."""
    for one in roster.quarantined():
        if server in (None, one.server_id):
            note(str(one))


def tell_unaccepted(roster: Roster, locks: Locks) -> None:
    """Which tools a lock keeps in quarantine."""
    lock = locks.file
    if lock is not None and lock.problem is not None:
        show_problems(lock.problem.problems)
        return
    if locks.first_use is not None:
        while locks.first_use.notices:
            note(one_line(locks.first_use.notices.popleft()), "see the setting pin_tools")
    aside = [
        f"{server_id}/{tool}"
        for server_id, catalogue in roster.catalogues.items()
        for tool in locks.reasons(catalogue.contents)
    ]
    if aside:
        shown = ", ".join(aside[:_NAMED]) + (", …" if len(aside) > _NAMED else "")
        hint = "see them with `toolyard lock --diff`, accept with `toolyard lock --accept NAME` or --all"
        where = f"accepted in {lock.path}" if lock is not None and lock.holds else "first listed"
        note(f"{count(len(aside), 'tool')} not as {where}: {shown}", hint)


def switched_off(name: str, configuration: Configuration) -> Server | None:
    """The disabled server that a tool of this name would belong to, as far as names tell."""
    for server in configuration.servers.values():
        if not server.enabled and name.startswith((f"{server.id}/", f"{server.id}_")):
            return server
    return None


def explained(error: ToolRefused, name: str, configuration: Configuration) -> ToolRefused:
    """The same refusal with a hint for the operator. It says the same of a hidden tool and of no tool."""
    off = switched_off(name, configuration)
    if off is not None:
        reason = off.disabled_reason or "its entry says so"
        return ToolRefused(error.cause, hint=f"server '{off.id}' is disabled: {reason}")
    if error.hint and ("did you mean" in error.hint or "toolyard lock" in error.hint):
        return error
    return ToolRefused(error.cause, hint=f"`toolyard why {name}` may tell more, `toolyard tools` lists them")
