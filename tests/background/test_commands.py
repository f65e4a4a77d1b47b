"""Commands work on the Toolyard that runs in the background, with the same output as without it."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests import prefork
from tests.background.conftest import wait_until
from tests.cli.conftest import Terminal

if TYPE_CHECKING:
    from tests.background.conftest import Machine

COMMANDS = [
    ("tools",),
    ("tools", "--all"),
    ("tools", "--json"),
    ("tools", "--server", "demo"),
    ("tools", "--server", "nothing"),
    ("tools", "--server", "nothing", "--json"),
    ("tools", "--agent", "nobody"),
    ("tools", "--agent", "nobody", "--json"),
    ("tools", "--bundle", "nothing"),
    ("tools", "--mode", "meta"),
    ("tools", "--provider", "anthropic"),
    ("servers", "--fail"),
    ("servers", "--json"),
    ("search", "weekday"),
    ("search", "weekday", "--json"),
    ("search", "nothing like it"),
    ("call", "demo_weekday", "date=2026-07-28"),
    ("call", "demo_weekday", '{"date": "2026-07-28"}', "--json"),
    ("call", "demo_weekday", "date=2026-07-28", "--raw"),
    ("call", "demo_weekday", "date=soon"),
    ("call", "demo_weekday", "date=soon", "--json"),
    ("call", "demo_weekday", "date"),
    ("call", "demo_forget"),
    ("call", "demo_forget", "--json"),
    ("call", "demo_nothing"),
    ("call", "bad_tool"),
    ("call", "demo_count", "to=50", "pause=1", "--timeout", "0.4"),
    ("restart", "nothing"),
]


def demo_servers(machine: Machine) -> list[psutil.Process]:
    """Return the processes of the demo server that the background process has started."""
    children = psutil.Process(machine.owner).children(recursive=True)
    return [each for each in children if any("demo_server" in word for word in each.cmdline())]


def comparable(result: Any) -> tuple[int, Any, str]:
    """Return exit code and output, without the parts that differ between two runs of any command."""
    try:
        document = json.loads(result.stdout)
    except ValueError:
        return result.returncode, result.stdout, result.stderr
    if isinstance(document, dict):
        document.pop("listed_seconds_ago", None)
    for each in document if isinstance(document, list) else ():
        each.pop("processes", None)
        each.pop("listed_seconds_ago", None)
    return result.returncode, document, result.stderr


def test_the_output_is_the_same_with_and_without_a_background_process(machine: Machine) -> None:
    machine.write_config(
        bad={"command": "no-such-program"}, off={"url": "http://127.0.0.1:9", "enabled": False}
    )
    machine.run("tools", TOOLYARD_STANDALONE="1")  # Notices that are shown once.
    machine.start().initialize()
    machine.run("tools", "--fresh")
    (server,) = demo_servers(machine)
    for words in COMMANDS:
        alone, result = machine.run(*words, TOOLYARD_STANDALONE="1"), machine.run(*words)
        if words[0] != "restart":
            assert comparable(result) == comparable(alone), words
    assert demo_servers(machine) == [server]
    log = (machine.data / "background.log").read_text()
    assert "Traceback" not in log


def test_commands_use_the_servers_that_run(machine: Machine) -> None:
    client = machine.start().initialize()
    assert client.weekday() == "Tuesday"
    (server,) = demo_servers(machine)
    document = json.loads(machine.run("servers", "--json").stdout)
    assert [each["pid"] for each in document[0]["processes"]] == [server.pid]
    assert "Tuesday" in machine.run("call", "demo_weekday", "date=2026-07-28").stdout
    result = machine.run("restart", "demo")
    assert (result.returncode, result.stdout.split("\t")[:2]) == (0, ["demo", "ready"])
    wait_until(lambda: not server.is_running())


def test_commands_start_no_background_process(machine: Machine) -> None:
    assert "demo_weekday" in machine.run("tools").stdout
    assert machine.backgrounds == []


def test_a_command_sees_a_change_of_the_configuration_at_once(machine: Machine) -> None:
    machine.start().initialize()
    assert "demo_weekday" in machine.run("tools").stdout
    for name in ("one", "two", "three"):
        result = machine.run("add", name, "--no-check", "--", sys.executable, "-c", "pass")
        assert result.returncode == 0, result.stderr
        assert f"server '{name}'" in machine.run("tools").stderr
    (machine.data / "mcp.json").write_text("{")
    broken = machine.run("tools")
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "mcp.json" in broken.stderr


def test_a_project_has_its_own_servers(machine: Machine) -> None:
    machine.start().initialize()
    project = machine.home / "project"
    project.mkdir()
    (project / "own.json").write_text((machine.data / "mcp.json").read_text().replace('"demo"', '"mine"'))
    words = [sys.executable, "-m", "toolyard", "tools", "--config", "own.json"]
    result = prefork.run(words, cwd=project, env=machine.environment(), timeout=60)
    assert "mine_weekday" in result.stdout
    assert [view["config"] for view in machine.status()["views"]][1:] == [str(project / "own.json")]


def start_command(machine: Machine, *words: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "toolyard", *words]
    pipe = subprocess.PIPE
    return prefork.Popen(program, stdout=pipe, stderr=pipe, cwd=machine.home, env=machine.environment())


def test_a_call_ends_with_an_error_if_the_background_process_dies(machine: Machine) -> None:
    machine.start().initialize()
    with start_command(machine, "-v", "call", "demo_count", "to=100", "pause=1") as command:
        while b"progress" not in command.stderr.readline():
            pass
        os.kill(machine.owner, signal.SIGKILL)
        _, err = command.communicate(timeout=60)
    assert command.returncode == 6
    assert b"the outcome is unknown" in err


def test_a_list_is_made_locally_if_the_background_process_dies(machine: Machine, tmp_path: Path) -> None:
    slow = tmp_path / "started"
    script = (
        f"import os, time; open({str(slow)!r}, 'a').write('x')\n"
        f"time.sleep(0 if os.path.getsize({str(slow)!r}) > 1 else 60)"
    )
    machine.start().initialize()
    machine.write_config(slow={"command": sys.executable, "args": ["-c", script]})
    with start_command(machine, "tools") as command:
        wait_until(slow.exists)
        os.kill(machine.owner, signal.SIGKILL)
        out, err = command.communicate(timeout=60)
    assert b"demo_weekday" in out
    assert b"server 'slow'" in err


def test_a_call_is_cancelled_with_its_command(machine: Machine) -> None:
    machine.start().initialize()
    with start_command(machine, "-v", "call", "demo_count", "to=100", "pause=1") as command:
        while b"progress" not in command.stderr.readline():
            pass
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=60)
    assert command.returncode == 130
    assert "Tuesday" in machine.run("call", "demo_weekday", "date=2026-07-28").stdout


@pytest.mark.parametrize(
    "greeting", [b"toolyard 99 99.0 abc - 1\n", b"toolyard 1 0.0.1 abc - 1\n", b"", b"hi\n"]
)
def test_a_process_that_cannot_be_used_is_left_alone(machine: Machine, greeting: bytes) -> None:
    machine.start().initialize()
    path = machine.socket
    assert machine.run("stop").returncode == 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with start_command(machine, "tools") as command:
            connection = listening.accept()[0]
            with connection:
                connection.sendall(greeting)
            out, err = command.communicate(timeout=60)
    path.unlink()
    assert (command.returncode, b"demo_weekday" in out) == (0, True), err


def test_a_person_approves_a_call_on_the_terminal(machine: Machine) -> None:
    machine.env["TOOLYARD_WRITE_TOOLS"] = "ask"
    machine.start().initialize()
    assert machine.run("call", "demo_forget").returncode == 4
    for answer, code in (("n", 4), ("y", 0)):
        side, other = pty.openpty()
        process = prefork.Popen(
            [sys.executable, "-m", "toolyard", "call", "demo_forget"],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=machine.home,
            env={**machine.environment(), "TERM": "dumb"},
            start_new_session=True,
            preexec_fn=prefork.take_terminal,
        )
        os.close(other)
        terminal = Terminal(process, side)
        terminal.wait_for("demo_forget can change data")
        terminal.type(f"{answer}\n")
        assert terminal.end() == code, terminal.plain
        os.close(side)
