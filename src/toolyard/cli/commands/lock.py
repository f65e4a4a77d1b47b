"""``toolyard lock``: pin tool definitions, show changes and accept them.

With ``--remote URL`` it does so for the servers of a running Toolyard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.backends.remote_client import RemoteClient, quote_path_segment
from toolyard.cli.database import record_if_database_exists
from toolyard.cli.invocation import Options, RemoteCommand, Usage, open_yard, run_async
from toolyard.cli.output import console
from toolyard.cli.output.notices import clean_server_text
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.errors import ToolRefused, Unreachable

if TYPE_CHECKING:
    from toolyard.catalog.lock import Change, PinsByServer, ServerPins
    from toolyard.library import Toolyard

__all__ = ["command", "lock_remotely"]


_DIFFERENT_EXIT_CODE = 1


@click.command("lock", cls=RemoteCommand)
@click.option("--check", is_flag=True, help="Only compare; exit with 1 if there are differences. For CI.")
@click.option("--diff", is_flag=True, help="Only show the exact differences.")
@click.option(
    "--accept", "names", metavar="NAME", multiple=True, help="Accept the changes of a tool or a server."
)
@click.option("--all", "every", is_flag=True, help="Accept all changes.")
@click.pass_obj
def command(options: Options, check: bool, diff: bool, names: tuple[str, ...], every: bool) -> int:
    """Write mcp.lock beside the configuration file: the full definition of each tool, with its hash.

    With a lock, a new or changed tool is quarantined until it is accepted. Without one this applies to
    untrusted servers (see the setting pin_tools), and --accept writes no file. Servers that are not in the
    lock yet are added; changes are shown, and accepted with --accept NAME (server/tool, server, or the name
    that `toolyard tools` shows) or --all. --accept accepts the last listing, as --diff showed it.

    With --remote URL it works on a running Toolyard: its servers, for admins, and your own instances.
    """
    given = {"check": check, "diff": diff, "accept": bool(names), "all": every}
    tasks = [task for task, wanted in given.items() if wanted]
    if len(tasks) > 1:
        raise Usage("--check, --diff, --accept and --all cannot be combined", hint="use only one of them")
    task = tasks[0] if tasks else "write"
    if options.remote is not None:
        return run_async(lock_remotely(options, task, names))
    return run_async(_run_lock(options, task, names))


@dataclass(frozen=True, slots=True)
class _LockComparison:
    """The current definitions compared with the lock."""

    path: Path
    lock: PinsByServer | None
    current_pins: Mapping[str, ServerPins]
    changes: list[Change]
    removed_servers: list[str]
    """Servers in the lock that are no longer configured."""
    unpinned_packages: Mapping[str, str]
    failures: Mapping[str, str]
    first_use_pins: Mapping[str, ServerPins]
    """Definitions that servers were pinned to at first use; empty if there is a lock file."""

    @property
    def baseline(self) -> PinsByServer:
        """The definitions that the changes are relative to."""
        return self.first_use_pins if self.lock is None else self.lock


async def _run_lock(options: Options, task: str, names: tuple[str, ...]) -> int:
    async with open_yard(options) as yard:
        # With the core, which is loaded by now.
        from toolyard.catalog.lock import lock_for_editing, lock_path, read_lock

        path = lock_path(yard.configuration.file, options.resolved_data_dir)
        read_lock(path)  # A broken one is told before anything is started.
        async with ProgressIndicator("listing", quiet=options.json):
            await yard.tools(fresh=task != "accept")
        first_use = await _load_first_use_pins(yard)
        with lock_for_editing(path):
            # Another process may have accepted changes while the servers were listed.
            found = _compare_with_lock(yard, path, read_lock(path), first_use)
            wanted = _select_changes(task, names, found, yard)
            pinned = (
                found.lock is None
                and task == "accept"
                and all(change.server_id in found.first_use_pins for change in wanted)
            )
            written = None if pinned or task in ("check", "diff") else _build_lock(found, wanted, task)
            if written is not None and written != found.lock:
                _write_lock_file(path, written)
        if pinned:
            await yard.accept(wanted)
    if wanted and (pinned or written != found.lock):
        await record_if_database_exists(options, "lock.accept", _audit_details(wanted))
    taken = {id(change) for change in wanted}
    left = [change for change in found.changes if id(change) not in taken]
    _show_outcome(options, task, found, wanted, left, written)
    if found.failures:
        return Unreachable.exit_code
    missing = task == "check" and found.lock is None
    different = bool(left or found.removed_servers) if task == "check" else bool(left)
    return _DIFFERENT_EXIT_CODE if (different or missing) and task in ("check", "write") else 0


def _audit_details(accepted: list[Change]) -> dict[str, dict[str, object]]:
    """Return the details of the audit entries by server, as those of the web app."""
    tools: dict[str, list[str]] = {}
    for change in accepted:
        tools.setdefault(change.server_id, []).append(change.tool or change.kind.value)
    return {
        server_id: {"name": server_id, "accepted": names[:100], "count": len(names)}
        for server_id, names in tools.items()
    }


async def _load_first_use_pins(yard: Toolyard) -> dict[str, ServerPins]:
    """Return the definitions that untrusted servers were pinned to at first use."""
    lock, found = yard.locks.first_use, dict[str, "ServerPins"]()
    for server_id, server in yard.configuration.servers.items():
        pins = None if lock is None else await lock.load_accepted_pins(server)
        if pins is not None:
            found[server_id] = pins
    return found


def _compare_with_lock(
    yard: Toolyard, path: Path, lock: PinsByServer | None, first_use_pins: Mapping[str, ServerPins]
) -> _LockComparison:
    from toolyard.catalog.lock import ChangeKind, compare_pins, pin_server_contents
    from toolyard.catalog.lock.lock_file import detect_unpinned_package
    from toolyard.types.server import StdioSpec

    servers, roster = yard.configuration.servers, yard.known()
    now: dict[str, ServerPins] = {}
    changes: list[Change] = []
    unpinned: dict[str, str] = {}
    for server_id, server in sorted(servers.items()):
        catalogue = roster.catalogues.get(server_id)
        if not server.enabled or catalogue is None or server_id in roster.failures:
            continue
        newest = (
            detect_unpinned_package(server.transport) if isinstance(server.transport, StdioSpec) else None
        )
        if newest is not None:
            unpinned[server_id] = newest
        now[server_id] = pin_server_contents(server, catalogue.contents)
        if lock is None and server_id in first_use_pins:
            pins = replace(first_use_pins[server_id], package=now[server_id].package)
            found = compare_pins(server_id, now[server_id], pins)
            changes += [change for change in found if change.kind is not ChangeKind.REMOVED]
        else:
            changes += compare_pins(server_id, now[server_id], (lock or {}).get(server_id))
    failures = {id: clean_server_text(error.cause, servers.get(id)) for id, error in roster.failures.items()}
    gone = sorted((lock or {}).keys() - servers.keys())
    return _LockComparison(
        path, lock, now, changes, gone, unpinned, failures, {} if lock is not None else first_use_pins
    )


def _select_changes(
    task: str, names: tuple[str, ...], comparison: _LockComparison, yard: Toolyard
) -> list[Change]:
    """Return the changes to accept now."""
    if task in ("check", "diff"):
        return []
    if task == "all":
        return list(comparison.changes)
    if task == "write":
        # A new server is trusted on first use as a whole; a new tool of a known server is not.
        return [change for change in comparison.changes if change.server_id not in comparison.baseline]
    wanted: dict[int, Change] = {}
    for name in names:
        definition = yard.known().tools.get(name)
        meant = {name} if definition is None else {name, definition.id}
        mine = [change for change in comparison.changes if {change.id, change.server_id} & meant]
        if not mine:
            raise _no_such_change_error(name, comparison)
        wanted.update({id(change): change for change in mine})
    return list(wanted.values())


def _no_such_change_error(name: str, comparison: _LockComparison) -> Usage:
    ids = [change.id for change in comparison.changes]
    near = get_close_matches(name, ids, n=1)
    if near:
        return Usage(f"'{name}' has no change to accept", hint=f"did you mean '{near[0]}'?")
    there = ", ".join(ids[:10]) if ids else "no differences"
    return Usage(f"'{name}' has no change to accept", hint=f"changes: {there}" if ids else there)


def _build_lock(comparison: _LockComparison, to_accept: list[Change], task: str) -> dict[str, ServerPins]:
    from toolyard.catalog.lock import apply_changes

    before = comparison.lock or {}
    # A server that could not be listed, or is disabled, keeps its accepted definitions.
    written = {
        id: pins for id, pins in before.items() if id not in comparison.removed_servers or task == "accept"
    }
    for server_id, now in comparison.current_pins.items():
        mine = [change for change in to_accept if change.server_id == server_id]
        if mine or (server_id not in before and task != "accept"):
            written[server_id] = apply_changes(comparison.baseline.get(server_id), now, mine)
    return written


def _write_lock_file(path: Path, lock: PinsByServer) -> None:
    from toolyard.catalog.lock import write_lock
    from toolyard.catalog.lock.errors import LockUnwritable

    try:
        write_lock(path, lock)
    except OSError as error:
        raise LockUnwritable(
            f"{path} cannot be written: {error.strerror or error}",
            hint="nothing was accepted; check the file's permissions and the free disk space",
        ) from error


# Output.


def _show_outcome(
    options: Options,
    task: str,
    comparison: _LockComparison,
    to_accept: list[Change],
    remaining: list[Change],
    written: Mapping[str, ServerPins] | None,
) -> None:
    if options.json:
        console.print_json(
            _comparison_json(
                comparison, to_accept, remaining, written is not None and written != comparison.lock
            )
        )
        return
    if task == "check" and comparison.lock is None:
        console.show_error(f"{comparison.path} does not exist", "create it with `toolyard lock`")
        remaining = []
    for change in to_accept:
        print(f"accepted {change.id}: {change.kind.value}")
    unpinned: list[str] = []
    if task == "diff" and comparison.lock is None and comparison.first_use_pins:
        # Without a lock, a change of a pinned server would be lost among the definitions of all others.
        unpinned = [id for id in comparison.current_pins if id not in comparison.first_use_pins]
    for change in remaining:
        if change.server_id in unpinned:
            continue
        _show_change(change.kind.value, change.id, change.was, change.diff() if task == "diff" else ())
    if unpinned:
        console.show_note(
            f"not pinned: {', '.join(unpinned)}", "`toolyard lock` pins the tools of all servers"
        )
    for server_id in comparison.removed_servers:
        console.show_note(f"server '{server_id}' is in the lock but no longer configured")
    if written is not None:
        tools = sum(len(pins.tools) for pins in written.values())
        state = "is up to date" if written == comparison.lock else "written"
        print(
            f"{comparison.path} {state}: {console.format_count(tools, 'tool')} of "
            f"{console.format_count(len(written), 'server')}"
        )
    elif (
        not remaining
        and comparison.lock is not None
        and not comparison.removed_servers
        and not comparison.failures
    ):
        print("no differences")
    for server_id, package in comparison.unpinned_packages.items():
        console.show_note(
            f"server '{server_id}' runs the latest version of {package}, which can change at any time",
            f"pin a version in its entry, e.g. {package}@1.2.3",
        )
    for server_id, cause in comparison.failures.items():
        console.show_error(f"server '{server_id}': {cause}")
    if remaining and task in ("check", "write"):
        _show_unaccepted_notice(len(remaining))


def _comparison_json(
    comparison: _LockComparison, to_accept: list[Change], remaining: list[Change], written: bool
) -> dict[str, Any]:
    def change_json(change: Change) -> dict[str, Any]:
        return {
            "id": change.id,
            "kind": change.kind.value,
            "was": change.was or None,
            "reason": change.reason,
            "diff": change.diff(),
        }

    return {
        "lock": str(comparison.path),
        "written": written,
        "accepted": [change_json(change) for change in to_accept],
        "changes": [change_json(change) for change in remaining],
        "not_configured": comparison.removed_servers,
        "unpinned": dict(comparison.unpinned_packages),
        "failures": dict(comparison.failures),
    }


@dataclass(frozen=True, slots=True)
class _RemoteServer:
    """A server or an instance of the remote."""

    api_path: str
    name: str


@dataclass(frozen=True, slots=True)
class _RemoteChange:
    """One change, as the API reports it."""

    place: _RemoteServer
    record: dict[str, Any]

    @property
    def id(self) -> str:
        """Return the id by which the change is accepted."""
        tool = self.record["tool"]
        return f"{self.place.name}/{tool}" if tool else self.place.name


async def lock_remotely(options: Options, task: str, names: tuple[str, ...]) -> int:
    """Compare, show or accept the changes that the caller may see: servers for admins, and their own
    instances."""
    done: list[_RemoteChange] = []
    left: list[_RemoteChange] = []
    failures: list[dict[str, Any]] = []
    async with RemoteClient.from_options(options) as remote, ProgressIndicator("listing", quiet=options.json):
        if task != "accept":
            failures = (await remote.get("/tools", fresh="true"))["failures"]
        # In sequence, because a change that is accepted for a server is no longer a change of its instances.
        async for place in _iter_servers(remote):
            found = [
                _RemoteChange(place, one) for one in (await remote.get(f"{place.api_path}/changes"))["items"]
            ]
            wanted = [each for each in found if task == "all" or _is_selected(each, names)]
            if wanted:
                keys = [each.record["key"] for each in wanted]
                await remote.post(f"{place.api_path}/changes", {"keys": keys})
            done += wanted
            left += [each for each in found if each not in wanted]
    for name in names:
        if not any(_is_selected(each, (name,)) for each in done):
            raise Usage(f"'{name}' has no change to accept", hint="`toolyard lock --diff` shows all changes")
    _show_changes(options, task, done, left)
    for failure in failures:
        console.show_error(f"server '{failure['server']}': {console.one_line(failure['problem']['detail'])}")
    if failures:
        return Unreachable.exit_code
    return _DIFFERENT_EXIT_CODE if left and task in ("check", "write") else 0


def _is_selected(change: _RemoteChange, names: Collection[str]) -> bool:
    return change.id in names or change.place.name in names


async def _iter_servers(remote: RemoteClient) -> AsyncIterator[_RemoteServer]:
    for each in await _fetch_admin_servers(remote):
        yield each
    for one in (await remote.get("/instances"))["items"]:
        yield _RemoteServer(f"/instances/{quote_path_segment(one['id'])}", one["slug"])


async def _fetch_admin_servers(remote: RemoteClient) -> list[_RemoteServer]:
    """Return the remote's servers; none for callers who may not accept changes for others."""
    config = [one for one in (await remote.get("/status"))["items"] if one["kind"] == "config"]
    found = [
        _RemoteServer(f"/servers/{quote_path_segment(one['id'])}", one["id"])
        for one in config
        if one["enabled"]
    ]
    registered = (await remote.get("/servers"))["items"]
    found += [_RemoteServer(f"/servers/{quote_path_segment(one['id'])}", one["name"]) for one in registered]
    try:
        if found:
            await remote.get(f"{found[0].api_path}/changes")
    except ToolRefused:
        return []
    return found


def _show_changes(
    options: Options, task: str, accepted: list[_RemoteChange], remaining: list[_RemoteChange]
) -> None:
    if options.json:
        told = {
            name: [_change_json(each) for each in some]
            for name, some in (("accepted", accepted), ("changes", remaining))
        }
        console.print_json(told)
        return
    for each in accepted:
        print(f"accepted {console.one_line(each.id)}: {each.record['kind']}")
    for each in remaining:
        diff = each.record["diff"] if task == "diff" else ()
        _show_change(each.record["kind"], each.id, each.record["was"], diff)
    if not accepted and not remaining:
        print("no differences")
    if remaining and task in ("check", "write"):
        _show_unaccepted_notice(len(remaining))


def _change_json(change: _RemoteChange) -> dict[str, Any]:
    told = change.record
    return {"id": change.id, **{name: told[name] for name in ("kind", "was", "reason", "diff")}}


def _show_change(kind: str, id: str, was: str | None, diff: Iterable[str] = ()) -> None:
    """Print one change, with its ``diff`` if there is one."""
    print(f"{kind:<12} {console.one_line(id)}{f' (was {console.one_line(was)})' if was else ''}")
    for line in diff:
        print(f"    {console.one_line(line) if line[:1] != ' ' else console.make_printable(line)}")


def _show_unaccepted_notice(number: int) -> None:
    """Print how many changes are not accepted, and how to accept them."""
    hint = "review with `toolyard lock --diff`, accept with `toolyard lock --accept NAME` or --all"
    console.show_note(f"{console.format_count(number, 'change')} not accepted", hint)
