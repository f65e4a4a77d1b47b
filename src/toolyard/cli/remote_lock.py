"""The command ``toolyard lock --remote URL``: tool changes that were not accepted on a running Toolyard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import show_error
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.cli.output.safe_text import one_line, print_json
from toolyard.cli.output.tool_changes import show_change, show_unaccepted_changes_notice
from toolyard.cli.remote_client import RemoteClient, quote_path_segment
from toolyard.errors import ToolRefused

__all__ = ["lock_remotely"]

_DIFFERENT_EXIT_CODE = 1
_UNREACHABLE_EXIT_CODE = 3


@dataclass(frozen=True, slots=True)
class _RemoteServer:
    """A server or an instance of the remote."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class _RemoteChange:
    """One change, as the API reports it."""

    place: _RemoteServer
    told: dict[str, Any]

    @property
    def id(self) -> str:
        """Return the id by which the change is accepted."""
        tool = self.told["tool"]
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
                _RemoteChange(place, one) for one in (await remote.get(f"{place.path}/changes"))["items"]
            ]
            wanted = [each for each in found if task == "all" or _is_selected(each, names)]
            if wanted:
                keys = [each.told["key"] for each in wanted]
                await remote.post(f"{place.path}/changes", {"keys": keys})
            done += wanted
            left += [each for each in found if each not in wanted]
    for name in names:
        if not any(_is_selected(each, (name,)) for each in done):
            raise Usage(
                f"'{name}' has no change to accept", hint="`toolyard lock --diff` shows what there is"
            )
    _show_changes(options, task, done, left)
    for failure in failures:
        show_error(f"server '{failure['server']}': {one_line(failure['problem']['detail'])}")
    if failures:
        return _UNREACHABLE_EXIT_CODE
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
            await remote.get(f"{found[0].path}/changes")
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
        print_json(told)
        return
    for each in accepted:
        print(f"accepted {one_line(each.id)}: {each.told['kind']}")
    for each in remaining:
        diff = each.told["diff"] if task == "diff" else ()
        show_change(each.told["kind"], each.id, each.told["was"], diff)
    if not accepted and not remaining:
        print("nothing is different")
    if remaining and task in ("check", "write"):
        show_unaccepted_changes_notice(len(remaining))


def _change_json(change: _RemoteChange) -> dict[str, Any]:
    told = change.told
    return {"id": change.id, **{name: told[name] for name in ("kind", "was", "reason", "diff")}}
