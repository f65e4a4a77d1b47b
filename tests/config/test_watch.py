from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from toolyard.config import ConfigBroken, ConfigChange, Configuration, approve_file, load_config, watch_config

CHANGE_DEADLINE_SECONDS = 20


def text(**commands: str) -> str:
    return json.dumps({"mcpServers": {key: {"command": value} for key, value in commands.items()}})


def replace(path: Path, content: str) -> None:
    """Replace a file atomically like an editor: write beside it, then rename."""
    beside = path.with_name(f"{path.name}.swp")
    beside.write_text(content)
    os.replace(beside, path)


class Watch:
    """A running watch and its events.

    The first check runs as soon as the folders are watched and may find the first change. To see an event, a
    test makes two changes.
    """

    def __init__(self, events: AsyncGenerator[ConfigChange | ConfigBroken, None]) -> None:
        self._events = events
        self._waiting: asyncio.Task[ConfigChange | ConfigBroken] | None = None

    def start(self) -> None:
        async def following() -> ConfigChange | ConfigBroken:
            return await anext(self._events)

        self._waiting = asyncio.create_task(following())

    async def next(self) -> Any:
        if self._waiting is None:
            self.start()
        assert self._waiting is not None
        waiters, self._waiting = self._waiting, None
        return await asyncio.wait_for(waiters, CHANGE_DEADLINE_SECONDS)

    async def stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting], timeout=CHANGE_DEADLINE_SECONDS)


@pytest.fixture
async def watch(project: Path, data_dir: Path) -> AsyncGenerator[Callable[..., Any]]:
    """Load, then watch with the same arguments, by events only."""
    watches: list[Watch] = []
    stack: list[Any] = []

    async def begin(path: Path | None = None, poll_seconds: float = 600, **options: Any) -> Watch:
        options = {"env": {}, "cwd": project, "data_dir": data_dir, **options}
        current = load_config(path, **options)
        events = watch_config(current, path, poll_seconds=poll_seconds, **options)
        stack.append(events)
        watches.append(Watch(events))
        watches[-1].start()
        return watches[-1]

    yield begin
    for one in watches:
        await one.stop()
    for events in stack:
        async with aclosing(events):
            pass


async def test_a_change_is_reported_with_added_removed_and_changed_servers(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x", b="x", c="x"))
    config_watch = await watch(file)
    replace(file, text(a="x", b="y", d="x"))
    change = await config_watch.next()
    assert isinstance(change, ConfigChange)
    assert (change.added, change.removed, change.changed) == (("d",), ("c",), ("b",))
    assert list(change.configuration.servers) == ["a", "b", "d"]


async def test_an_editor_that_replaces_the_file_is_seen_again_and_again(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="0"))
    config_watch = await watch(file)
    for number in ("1", "2", "3"):
        replace(file, text(a=number))
        change = await config_watch.next()
        assert change.changed == ("a",)
        assert change.configuration.servers["a"].transport.command == number


async def test_a_broken_edit_keeps_the_last_good_configuration(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x"))
    config_watch = await watch(file)
    replace(file, '{"servers": {"a": {"command": 5}}}')
    broken = await config_watch.next()
    assert isinstance(broken, ConfigBroken)
    assert broken.error.problems[0].path == "servers.a.trust"
    assert broken.configuration.servers["a"].transport.command == "x"
    replace(file, text(a="x", b="y"))
    change = await config_watch.next()
    assert (change.added, change.changed) == (("b",), ())


async def test_an_entry_that_becomes_invalid_is_a_change_of_this_server_alone(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x", b="y"))
    config_watch = await watch(file)
    replace(file, '{"mcpServers": {"a": {"command": 5}, "b": {"command": "y"}}}')
    change = await config_watch.next()
    assert (change.added, change.removed, change.changed) == ((), (), ("a",))
    assert change.configuration.servers["a"].problems[0].path == "mcpServers.a.command"
    assert change.configuration.servers["b"].enabled


async def test_after_a_broken_edit_the_way_back_is_told_though_nothing_changed(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x"))
    config_watch = await watch(file)
    replace(file, "{oops")
    assert isinstance(await config_watch.next(), ConfigBroken)
    replace(file, text(a="x"))
    change = await config_watch.next()
    assert isinstance(change, ConfigChange)
    assert (change.added, change.removed, change.changed) == ((), (), ())


async def test_an_edit_of_comments_is_not_worth_telling(watch: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x"))
    config_watch = await watch(file)
    replace(file, f"// hello\n{text(a='x')}")
    replace(file, text(a="x", b="x"))
    assert (await config_watch.next()).added == ("b",)


async def test_a_change_between_loading_and_watching_is_not_missed(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x"))
    current = load_config(file, env={}, cwd=project, data_dir=tmp_path)
    file.write_text(text(a="y"))
    async with aclosing(watch_config(current, file, env={}, cwd=project, data_dir=tmp_path)) as events:
        change = await asyncio.wait_for(anext(events), CHANGE_DEADLINE_SECONDS)
    assert isinstance(change, ConfigChange)
    assert change.changed == ("a",)


async def test_a_file_that_vanishes_stops_no_server(watch: Callable[..., Any], data_dir: Path) -> None:
    file = data_dir / "mcp.json"
    file.write_text(text(a="x"))
    config_watch = await watch()
    file.unlink()
    broken = await config_watch.next()
    assert isinstance(broken, ConfigBroken)
    assert "removed" in str(broken.error)
    assert list(broken.configuration.servers) == ["a"]
    replace(file, text(a="x", b="y"))
    assert (await config_watch.next()).added == ("b",)


async def test_the_default_file_is_seen_when_it_appears(watch: Callable[..., Any], data_dir: Path) -> None:
    config_watch = await watch()
    replace(data_dir / "mcp.json", text(a="x"))
    assert (await config_watch.next()).added == ("a",)
    replace(data_dir / "mcp.json", text(a="x", b="x"))
    assert (await config_watch.next()).added == ("b",)


async def test_without_file_events_polling_finds_the_change(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "later" / "mcp.json"
    config_watch = await watch(poll_seconds=0.1, data_dir=file.parent)
    for number in ("1", "2"):
        file.parent.mkdir()
        replace(file, text(a=number))
        change = await config_watch.next()
        assert change.configuration.servers["a"].transport.command == number
        file.unlink()
        file.parent.rmdir()
        assert isinstance(await config_watch.next(), ConfigBroken)


async def test_a_change_behind_a_link_is_seen(watch: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "dotfile.json"
    real.write_text(text(a="x"))
    (tmp_path / "link.json").symlink_to(real)
    config_watch = await watch(tmp_path / "link.json")
    for number in ("1", "2", "3"):
        replace(real, text(a=number))
        assert (await config_watch.next()).configuration.servers["a"].transport.command == number


async def test_a_swapped_folder_behind_the_links_is_seen_as_kubernetes_does_it(
    watch: Callable[..., Any], tmp_path: Path
) -> None:
    mount = tmp_path / "mount"
    for version in ("1", "2", "3"):
        (mount / f"..v{version}").mkdir(parents=True)
        (mount / f"..v{version}" / "mcp.json").write_text(text(a=version))
    (mount / "..data").symlink_to("..v1")
    (mount / "mcp.json").symlink_to("..data/mcp.json")
    config_watch = await watch(mount / "mcp.json")
    for version in ("2", "3"):
        (mount / "..next").symlink_to(f"..v{version}")
        os.replace(mount / "..next", mount / "..data")
        assert (await config_watch.next()).configuration.servers["a"].transport.command == version


async def test_a_discovered_file_that_changes_waits_and_an_approval_applies_it(
    watch: Callable[..., Any], project: Path, data_dir: Path
) -> None:
    file = project / ".mcp.json"
    file.write_text(text(a="x"))
    approve_file(file, data_dir)
    config_watch = await watch()
    replace(file, text(a="y"))
    update = await config_watch.next()
    assert update.configuration.waiting == str(file)
    assert (update.changed, update.configuration.servers["a"].transport.command) == ((), "x")
    approve_file(file, data_dir)
    change = await config_watch.next()
    assert (change.changed, change.configuration.servers["a"].transport.command) == (("a",), "y")


async def test_the_file_is_chosen_once(watch: Callable[..., Any], project: Path, data_dir: Path) -> None:
    own_file = data_dir / "mcp.json"
    own_file.write_text(text(a="x"))
    config_watch = await watch()
    (project / ".mcp.json").write_text(text(evil="x"))
    for number in ("1", "2"):
        replace(own_file, text(a=number))
        change = await config_watch.next()
        assert list(change.configuration.servers) == ["a"]


async def test_overrides_stay_over_every_new_content(watch: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(text(a="x"))
    config_watch = await watch(file, overrides={"mcpServers": {"a": {"command": "mine"}}})
    replace(file, text(a="y", b="y"))
    change: ConfigChange = await config_watch.next()
    assert (change.added, change.changed) == (("b",), ())


async def test_cancelling_ends_the_watch(project: Path, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(text(a="x"))
    started = asyncio.Event()

    async def follow() -> None:
        async for _ in watch_config(Configuration(), env={}, cwd=project, data_dir=tmp_path):
            started.set()

    task = asyncio.create_task(follow())
    await asyncio.wait_for(started.wait(), CHANGE_DEADLINE_SECONDS)
    task.cancel()
    done_tasks, _ = await asyncio.wait([task], timeout=CHANGE_DEADLINE_SECONDS)
    assert done_tasks
    assert task.cancelled()
