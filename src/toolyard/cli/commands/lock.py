"""``toolyard lock``: pin what the tools are, see what changed, accept it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Options, RemoteCommand
from toolyard.cli.output.messages import note, show_error
from toolyard.cli.output.notices import clean
from toolyard.cli.output.progress import Busy
from toolyard.cli.output.safe_text import count, print_json
from toolyard.cli.output.tool_changes import show_change, tell_left
from toolyard.cli.runner import open_yard, run_async

if TYPE_CHECKING:
    from toolyard.catalog.lock import Change, Lock, ServerPins
    from toolyard.yard import Toolyard

__all__ = ["command"]

_DIFFERENT = 1
_UNREACHABLE = 3


@click.command("lock", cls=RemoteCommand, short_help=COMMANDS["lock"])
@click.option("--check", is_flag=True, help="Only compare; any difference ends with 1. For CI.")
@click.option("--diff", is_flag=True, help="Only show what is different, to the letter.")
@click.option(
    "--accept", "names", metavar="NAME", multiple=True, help="Accept the changes of a tool or a server."
)
@click.option("--all", "every", is_flag=True, help="Accept all changes.")
@click.pass_obj
def command(options: Options, check: bool, diff: bool, names: tuple[str, ...], every: bool) -> int:
    """Write mcp.lock beside the configuration file: what each tool is, whole, with its hash.

    With a lock, a tool that is new or changed is in quarantine until it is accepted. Without one this holds
    for untrusted servers (see the setting pin_tools), and --accept writes no file. Servers that are not in
    the lock yet are put in; what changed is told, and accepted with --accept NAME (server/tool, server, or
    the name that `toolyard tools` shows) or --all. --accept takes what was listed last, which --diff showed.

    With --remote URL it is about a Toolyard that runs: its servers, for admins, and your own instances.
    """
    given = {"check": check, "diff": diff, "accept": bool(names), "all": every}
    tasks = [task for task, wanted in given.items() if wanted]
    if len(tasks) > 1:
        raise Usage("--check, --diff, --accept and --all exclude each other", hint="give one of them")
    task = tasks[0] if tasks else "write"
    if options.remote is not None:
        from toolyard.cli.remote_lock import lock_remotely  # only for --remote

        return run_async(lock_remotely(options, task, names))
    return run_async(_lock(options, task, names))


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is now, held against the lock."""

    path: Path
    lock: Lock | None
    now: Mapping[str, ServerPins]
    changes: list[Change]
    gone: list[str]
    """Servers in the lock that are not configured any more."""
    unpinned: Mapping[str, str]
    failures: Mapping[str, str]
    first_use: Mapping[str, ServerPins]
    """Definitions that servers were pinned to at first use; empty where there is a lock file."""

    @property
    def base(self) -> Lock:
        """The definitions that the changes are relative to."""
        return self.first_use if self.lock is None else self.lock


async def _lock(options: Options, task: str, names: tuple[str, ...]) -> int:
    async with open_yard(options) as yard:
        path = _path(yard, options)
        from toolyard.catalog.lock import editing, read_lock  # with the core, which is loaded by now

        read_lock(path)  # A broken one is told before anything is started.
        async with Busy("listing", quiet=options.json):
            await yard.tools(fresh=task != "accept")
        first_use = await _first_use(yard)
        with editing(path):
            # Others may have accepted something while the servers were listed.
            found = _found(yard, path, read_lock(path), first_use)
            wanted = _wanted(task, names, found, yard)
            pinned = found.lock is None and task == "accept" and _are_pinned(wanted, found)
            written = None if pinned or task in ("check", "diff") else _written(found, wanted, task)
            if written is not None and written != found.lock:
                _write(path, written)
        if pinned:
            await yard.accept(wanted)
    taken = {id(change) for change in wanted}
    left = [change for change in found.changes if id(change) not in taken]
    _tell(options, task, found, wanted, left, written)
    if found.failures:
        return _UNREACHABLE
    missing = task == "check" and found.lock is None
    different = bool(left or found.gone) if task == "check" else bool(left)
    return _DIFFERENT if (different or missing) and task in ("check", "write") else 0


def _path(yard: Toolyard, options: Options) -> Path:
    from toolyard.catalog.lock import lock_path  # with the core, which is loaded by now

    return lock_path(yard.configuration.file, options.folder)


async def _first_use(yard: Toolyard) -> dict[str, ServerPins]:
    """The definitions that untrusted servers were pinned to at first use."""
    lock, found = yard.locks.first_use, dict[str, "ServerPins"]()
    for server_id, server in yard.configuration.servers.items():
        pins = None if lock is None else await lock.accepted_pins(server)
        if pins is not None:
            found[server_id] = pins
    return found


def _are_pinned(changes: list[Change], found: _Found) -> bool:
    return all(change.server_id in found.first_use for change in changes)


def _found(yard: Toolyard, path: Path, lock: Lock | None, first_use: Mapping[str, ServerPins]) -> _Found:
    from toolyard.catalog.lock import Kind, compare, has_now
    from toolyard.catalog.lock.pinned_packages import unpinned_package
    from toolyard.types.server import StdioSpec

    servers, roster = yard.configuration.servers, yard.known()
    now: dict[str, ServerPins] = {}
    changes: list[Change] = []
    unpinned: dict[str, str] = {}
    for server_id, server in sorted(servers.items()):
        catalogue = roster.catalogues.get(server_id)
        if not server.enabled or catalogue is None or server_id in roster.failures:
            continue
        newest = unpinned_package(server.transport) if isinstance(server.transport, StdioSpec) else None
        if newest is not None:
            unpinned[server_id] = newest
        now[server_id] = has_now(server, catalogue.contents)
        if lock is None and server_id in first_use:
            pins = replace(first_use[server_id], package=now[server_id].package)
            found = compare(server_id, now[server_id], pins)
            changes += [change for change in found if change.kind is not Kind.REMOVED]
        else:
            changes += compare(server_id, now[server_id], (lock or {}).get(server_id))
    failures = {id: clean(error.cause, servers.get(id)) for id, error in roster.failures.items()}
    gone = sorted((lock or {}).keys() - servers.keys())
    return _Found(path, lock, now, changes, gone, unpinned, failures, {} if lock is not None else first_use)


def _wanted(task: str, names: tuple[str, ...], found: _Found, yard: Toolyard) -> list[Change]:
    """The changes that are accepted now."""
    if task in ("check", "diff"):
        return []
    if task == "all":
        return list(found.changes)
    if task == "write":
        # What was never seen is trusted on first use: the whole server, never a tool of a known one.
        return [change for change in found.changes if change.server_id not in found.base]
    wanted: dict[int, Change] = {}
    for name in names:
        definition = yard.known().tools.get(name)
        meant = {name} if definition is None else {name, definition.id}
        mine = [change for change in found.changes if {change.id, change.server_id} & meant]
        if not mine:
            raise _nothing_to_accept(name, found)
        wanted.update({id(change): change for change in mine})
    return list(wanted.values())


def _nothing_to_accept(name: str, found: _Found) -> Usage:
    ids = [change.id for change in found.changes]
    near = get_close_matches(name, ids, n=1)
    if near:
        return Usage(f"'{name}' has no change to accept", hint=f"did you mean '{near[0]}'?")
    there = ", ".join(ids[:10]) if ids else "nothing is different"
    return Usage(f"'{name}' has no change to accept", hint=f"there are: {there}" if ids else there)


def _written(found: _Found, wanted: list[Change], task: str) -> dict[str, ServerPins]:
    from toolyard.catalog.lock import accepted

    before = found.lock or {}
    # A server that could not be listed, or is switched off, keeps what was accepted of it.
    written = {id: pins for id, pins in before.items() if id not in found.gone or task == "accept"}
    for server_id, now in found.now.items():
        mine = [change for change in wanted if change.server_id == server_id]
        if mine or (server_id not in before and task != "accept"):
            written[server_id] = accepted(found.base.get(server_id), now, mine)
    return written


def _write(path: Path, lock: Lock) -> None:
    from toolyard.catalog.lock import write_lock
    from toolyard.catalog.lock.errors import LockUnwritable

    try:
        write_lock(path, lock)
    except OSError as error:
        raise LockUnwritable(
            f"{path} cannot be written: {error.strerror or error}",
            hint="nothing was accepted; see who may write there, and whether there is room",
        ) from error


# Telling.


def _tell(
    options: Options,
    task: str,
    found: _Found,
    wanted: list[Change],
    left: list[Change],
    written: Mapping[str, ServerPins] | None,
) -> None:
    if options.json:
        print_json(_as_json(found, wanted, left, written is not None and written != found.lock))
        return
    if task == "check" and found.lock is None:
        show_error(f"there is no {found.path}", "write it with `toolyard lock`")
        left = []
    for change in wanted:
        print(f"accepted {change.id}: {change.kind.value}")
    for change in left:
        show_change(change.kind.value, change.id, change.was, change.diff() if task == "diff" else ())
    for server_id in found.gone:
        note(f"server '{server_id}' is in the lock and not configured any more")
    if written is not None:
        tools = sum(len(pins.tools) for pins in written.values())
        state = "is up to date" if written == found.lock else "written"
        print(f"{found.path} {state}: {count(tools, 'tool')} of {count(len(written), 'server')}")
    elif not left and found.lock is not None and not found.gone and not found.failures:
        print("nothing is different")
    for server_id, package in found.unpinned.items():
        note(
            f"server '{server_id}' runs the newest version of {package}, whatever that is",
            f"name a version in its entry, e.g. {package}@1.2.3",
        )
    for server_id, cause in found.failures.items():
        show_error(f"server '{server_id}': {cause}")
    if left and task in ("check", "write"):
        tell_left(len(left))


def _as_json(found: _Found, wanted: list[Change], left: list[Change], written: bool) -> dict[str, Any]:
    def one(change: Change) -> dict[str, Any]:
        return {
            "id": change.id,
            "kind": change.kind.value,
            "was": change.was or None,
            "reason": change.reason,
            "diff": change.diff(),
        }

    return {
        "lock": str(found.path),
        "written": written,
        "accepted": [one(change) for change in wanted],
        "changes": [one(change) for change in left],
        "not_configured": found.gone,
        "unpinned": dict(found.unpinned),
        "failures": dict(found.failures),
    }
