"""The smoke plan of BooChat v1.15, step by step, through the library and real processes.

A documentation server of our own stands in Context7's place. Each step opens a new yard on the same data
directory, as a restart does.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.processes import is_running

from toolyard import State, ToolRefused, Toolyard

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

ROOT = Path(__file__).parent.parent.parent
DOCS_SERVER = ROOT / "tests/servers/docs_server.py"
RECORDER = ROOT / "tests/library/recording_server.py"
TOOLS = ["context7_query-docs", "context7_resolve-library-id"]


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None) -> None:
    """Whatever a step starts is gone at its end."""


@pytest.fixture
def context7(start_program: ProgramStarter, nothing_is_left: None) -> dict[str, Any]:
    """The entry of a documentation server that runs."""
    program = start_program(sys.executable, DOCS_SERVER, "{port}")
    return {"type": "streamableHttp", "url": f"{program.url}/mcp", "headers": {"X-API-Key": "optional-key"}}


@pytest.fixture
def open_restarted_yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Toolyard]:
    """``restarted(**entries)``: write ``mcp.json`` into the data directory, and open a yard there."""
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.chdir(data)
    for name in ("TOOLYARD_CONFIG_JSON", "TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)

    def restart(**entries: dict[str, Any]) -> Toolyard:
        (data / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        return Toolyard.open(data_dir=data)

    return restart


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_1_an_enabled_server_of_the_file_is_discovered_and_that_is_logged(
    context7: dict[str, Any], open_restarted_yard: Callable[..., Toolyard], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolyard")
    async with open_restarted_yard(context7={**context7, "enabled": True}) as yard:
        assert [tool.name for tool in await yard.tools()] == TOOLS
    assert "server 'context7' lists 3 tools" in [record.getMessage() for record in caplog.records]
    assert warnings_of(caplog) == []


async def test_2_its_tools_are_called_and_their_results_come_back(
    context7: dict[str, Any], open_restarted_yard: Callable[..., Toolyard]
) -> None:
    async with open_restarted_yard(context7=context7) as yard:
        library = await yard.answer("context7_resolve-library-id", {"library": "Toolyard"})
        assert library.for_model() == "/docs/toolyard"
        docs_arguments = {"library_id": library.text, "topic": "names"}
        assert (await yard.answer("context7_query-docs", docs_arguments)).for_model() == (
            "/docs/toolyard says about names: read the manual"
        )
        with pytest.raises(ToolRefused):
            await yard.call("context7_publish-note", {"text": "x"})


async def test_3_disabled_in_the_file_and_restarted_there_are_zero_tools(
    context7: dict[str, Any], open_restarted_yard: Callable[..., Toolyard]
) -> None:
    async with open_restarted_yard(context7=context7) as yard:
        assert [tool.name for tool in await yard.tools()] == TOOLS
    async with open_restarted_yard(context7={**context7, "enabled": False}) as yard:
        assert await yard.tools() == []
        with pytest.raises(ToolRefused):
            await yard.call("context7_query-docs")
        assert [status.state for status in yard.servers()] == [State.DISABLED]


async def test_4_a_dummy_server_that_is_cat_fails_with_a_logged_warning_and_the_other_works(
    context7: dict[str, Any], open_restarted_yard: Callable[..., Toolyard], caplog: pytest.LogCaptureFixture
) -> None:
    dummy = {"type": "stdio", "command": "/bin/cat"}
    async with open_restarted_yard(context7=context7, dummy=dummy) as yard:
        assert [tool.name for tool in await yard.tools()] == TOOLS
        assert (await yard.call("context7_resolve-library-id", {"library": "x"})).text == "/docs/x"
        states = {status.server: status.state for status in yard.servers()}
        assert states == {"context7": State.READY, "dummy": State.FAILED}
    assert warnings_of(caplog) == [
        "server 'dummy' cannot be used: echoes its input back; is it an MCP server?"
    ]


async def test_5_an_agent_with_a_glob_in_its_tools_sees_only_those(
    context7: dict[str, Any], open_restarted_yard: Callable[..., Toolyard], tmp_path: Path
) -> None:
    (tmp_path / "data" / "AGENTS.md").write_text(
        "## Architect\n---\ndescription: Plans.\ntools: [context7_*]\n---\nYou plan.\n"
        "\n## Coder\n---\ntools: [*, !context7_*]\n---\nYou write.\n"
    )
    local = {"command": sys.executable, "args": ["-I", "-S", str(RECORDER), str(tmp_path / "journal")]}
    async with open_restarted_yard(context7=context7, codecontext=local) as yard:
        everything = [tool.name for tool in await yard.tools()]
        assert [tool.name for tool in await yard.tools(agent="Architect")] == TOOLS
        others = [name for name in everything if not name.startswith("context7_")]
        assert "codecontext_echo" in others
        assert [tool.name for tool in await yard.tools(agent="Coder")] == others
        assert (await yard.call("context7_resolve-library-id", {"library": "x"}, agent="Architect")).text
        with pytest.raises(ToolRefused):
            await yard.call("codecontext_echo", agent="Architect")


PROGRAM = """
import asyncio, signal, sys
from toolyard import Toolyard

async def main():
    stopped = asyncio.Event()
    if sys.argv[2] == "closes":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Toolyard.open(data_dir=sys.argv[1]) as yard:
        for name in ("plain", "shell"):
            await yard.call(f"{name}_echo")
        print("running", flush=True)
        await stopped.wait()
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["closes", "just dies"])
def test_6_a_stopped_program_leaves_no_child_processes(how: str, tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", str(RECORDER), str(tmp_path / "journal"), "--stay"]
    entries = {
        "plain": {"type": "stdio", "command": words[0], "args": words[1:]},
        "shell": {
            "type": "stdio",
            "command": "/bin/sh",
            "args": ["-c", f"sleep 300 & {' '.join(words)}; true"],
        },
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("TOOLYARD_", "MCP_"))
    }
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), how],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "running\n"
            children = psutil.Process(program.pid).children(recursive=True)
            assert sum("recording_server.py" in " ".join(child.cmdline()) for child in children) >= 2
            assert sum("sleep" in child.name() for child in children) == 1
            program.send_signal(signal.SIGTERM)
            output, _ = program.communicate(timeout=30)
        finally:
            program.kill()
    assert (output, program.returncode) == (("closed\n", 0) if how == "closes" else ("", -signal.SIGTERM))
    deadline = time.monotonic() + 30
    while any(is_running(child.pid) for child in children):
        assert time.monotonic() < deadline, "its children live on"
        time.sleep(0.02)
