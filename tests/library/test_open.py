"""Opening a yard: where its servers, agents and settings come from, and that opening starts nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard import AgentsError, ConfigError, State, ToolRefused, Toolyard, Unreachable, load_config
from toolyard.config import approve_file, review_file
from toolyard.types.agent import Agent
from toolyard.types.call import WriteTools

if TYPE_CHECKING:
    from tests.library.conftest import JournalServer

AGENTS = "## Architect\n---\ntools: [one_echo]\n---\nYou plan.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def one(recorder: Callable[..., Any]) -> Any:
    return recorder("one")


def write(path: Path, one: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"one": one.entry}}))
    return path


async def echoes(yard: Toolyard) -> None:
    async with yard:
        assert (await yard.call("one_echo", {"text": "hello"})).text == "hello"


@pytest.mark.parametrize("kind", [str, Path])
async def test_a_path_names_the_file(kind: Callable[[Path], Any], tmp_path: Path, one: Any) -> None:
    await echoes(Toolyard.open(kind(write(tmp_path / "my.json", one))))


async def test_a_mapping_is_the_configuration_itself(one: Any) -> None:
    await echoes(Toolyard.open({"mcpServers": {"one": one.entry}}))


async def test_a_mapping_may_hold_variables_of_the_environment(
    one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_PYTHON", one.entry["command"])
    await echoes(Toolyard.open({"mcpServers": {"one": {**one.entry, "command": "${THE_PYTHON}"}}}))


async def test_a_loaded_configuration_is_taken_as_it_is(tmp_path: Path, one: Any) -> None:
    configuration = load_config(write(tmp_path / "my.json", one))
    yard = Toolyard.open(configuration)
    assert yard.configuration is configuration
    await echoes(yard)


async def test_nothing_named_takes_the_data_directorys_file(project: Path, data_dir: Path, one: Any) -> None:
    write(data_dir / "mcp.json", one)
    await echoes(Toolyard.open(data_dir=data_dir))


async def test_nothing_named_and_nothing_there_is_a_yard_without_servers(
    project: Path, data_dir: Path
) -> None:
    async with Toolyard.open() as yard:
        assert await yard.tools() == []
        assert yard.servers() == []
        with pytest.raises(ToolRefused, match="no tool named 'one_echo' is available"):
            await yard.call("one_echo")


async def test_of_a_discovered_file_that_was_not_approved_nothing_starts(
    project: Path, data_dir: Path, one: Any, children: Callable[[], list[str]]
) -> None:
    file = write(project / ".mcp.json", one)
    async with Toolyard.open(data_dir=data_dir) as yard:
        assert yard.configuration.waiting == str(file)
        assert await yard.tools(fresh=True) == []
        assert await yard.connect() == []
        with pytest.raises(ToolRefused):
            await yard.call("one_echo", {"text": "hello"})
        (status,) = yard.servers()
        assert status.state is State.DISABLED
        assert status.cause == f"not approved: run `toolyard approve {file}`"
        assert children() == []
    assert one.starts() == []


async def test_once_it_is_approved_it_is_used(project: Path, data_dir: Path, one: Any) -> None:
    file = write(project / ".mcp.json", one)
    approve_file(file, data_dir, sha256=review_file(file, data_dir).sha256)
    await echoes(Toolyard.open(data_dir=data_dir))


async def test_opening_starts_nothing(open_yard: Callable[..., Toolyard], one: Any) -> None:
    async with open_yard({"one": one}) as yard:
        assert [status.state for status in yard.servers()] == [State.IDLE]
    assert one.starts() == []


def test_a_named_file_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        Toolyard.open(tmp_path / "nowhere.json")


def test_an_invalid_configuration_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as exc_info:
        Toolyard.open({"servers": {"a": {"trust": "trusted"}}, "mcpServers": {"b": {"command": 5}}})
    assert [problem.path for problem in exc_info.value.problems] == [
        "servers.a.transport",
        "mcpServers.b.command",
    ]


async def test_a_server_with_an_invalid_entry_has_failed_and_the_others_work(
    data_dir: Path, one: Any
) -> None:
    file = data_dir / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"bad": {"command": 5}, "one": one.entry}}))
    async with Toolyard.open(data_dir=data_dir) as yard:
        assert "one_echo" in [tool.name for tool in await yard.tools()]
        for _ in range(2):
            bad = next(status for status in yard.servers() if status.server == "bad")
            assert (bad.state, bad.reason) == (State.FAILED, "invalid_entry")
            assert (
                bad.cause == f"{file}:1: mcpServers.bad.command: expected a non-empty string, found a number"
            )
            assert bad.hint
            await yard.restart("bad")


# Agents.


async def test_agents_stand_beside_the_configuration_in_the_data_directory(
    project: Path, data_dir: Path, one: Any
) -> None:
    write(data_dir / "mcp.json", one)
    (data_dir / "AGENTS.md").write_text(AGENTS)
    async with Toolyard.open(data_dir=data_dir) as yard:
        assert [tool.name for tool in await yard.tools(agent="architect")] == ["one_echo"]


async def test_agents_may_be_read_from_elsewhere_or_be_given(
    tmp_path: Path, open_yard: Callable[..., Toolyard], one: Any
) -> None:
    file = tmp_path / "team.md"
    file.write_text(AGENTS)
    assert set(open_yard({"one": one}, agents=file).agents) == {"architect"}
    assert set(open_yard({"one": one}, agents=str(file)).agents) == {"architect"}
    assert set(open_yard({"one": one}, settings={"agents_path": str(file)}).agents) == {"architect"}
    agent = Agent("reader", "Reader")
    assert open_yard({"one": one}, agents=[agent]).agents == {"reader": agent}


@pytest.mark.parametrize("how", ["argument", "setting"])
def test_a_named_agents_file_that_is_missing_is_an_error_that_names_it(how: str, tmp_path: Path) -> None:
    path = tmp_path / "team.md"
    options: dict[str, Any] = {"agents": path} if how == "argument" else {"settings": {"agents_path": path}}
    with pytest.raises(AgentsError, match=r"team\.md: cannot be read"):
        Toolyard.open({}, **options)


def test_invalid_agents_are_reported_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "team.md"
    file.write_text("## A\n---\nmode: both\nmax_steps: 0\n---\n")
    with pytest.raises(AgentsError) as exc_info:
        Toolyard.open({}, agents=file)
    assert [(problem.file, problem.line) for problem in exc_info.value.problems] == [
        (str(file), 3),
        (str(file), 4),
    ]


# Settings.


def test_settings_come_from_the_data_directory_and_the_caller_overrides_them(data_dir: Path) -> None:
    (data_dir / "toolyard.toml").write_text('write_tools = "ask"\nresult_limit = 5000\n')
    yard = Toolyard.open({}, data_dir=data_dir, settings={"write_tools": "allow"})
    assert (yard.settings.write_tools, yard.settings.result_limit) == (WriteTools.ALLOW, 5000)


def test_an_unknown_setting_is_an_error_with_a_suggestion(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'write_tools'"):
        Toolyard.open({}, data_dir=data_dir, settings={"write_tool": "allow"})


def test_a_naming_template_that_cannot_work_is_an_error(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"must contain \{tool\} once"):
        Toolyard.open({}, data_dir=data_dir, settings={"naming_template": "{server}"})


async def test_no_more_children_run_than_may(recorder: Callable[..., JournalServer]) -> None:
    servers = {name: recorder(name).entry for name in ("one", "two", "three")}
    async with Toolyard.open({"mcpServers": servers}, settings={"max_stdio_servers": 2}) as yard:
        statuses = await yard.connect()
        assert sorted(status.state for status in statuses) == ["failed", "ready", "ready"]
        failed_status = next(status for status in statuses if status.state == "failed")
        assert failed_status.cause == "2 stdio servers are running already, which is the maximum"
        assert "max_stdio_servers" in (failed_status.hint or "")
        server = next(status.server for status in statuses if status.state == "ready")
        await yard.restart(server)
        assert [status.state for status in await yard.connect([failed_status.server])] == ["ready"]


async def test_one_server_is_closed_alone_and_connects_again_at_its_next_call(
    open_yard: Callable[..., Toolyard],
    recorder: Callable[..., JournalServer],
    children: Callable[[], list[str]],
) -> None:
    one, two = recorder("one"), recorder("two")
    async with open_yard({"one": one, "two": two}) as yard:
        await yard.connect()
        await yard.close("one")
        assert [status.state for status in yard.servers()] == ["idle", "ready"]
        running = children()
        assert [any(str(each.path) in child for child in running) for each in (one, two)] == [False, True]
        with pytest.raises(Unreachable, match="not configured"):
            await yard.close("absent")
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"
        assert (len(one.starts()), len(two.starts())) == (2, 1)
