"""Requests of clients whose background process ends: which are sent to the next one, and which end."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import socket
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.background.conftest import wait_until
from tests.processes import is_running

from toolyard.background.attach_protocol import Greeting, open_line_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.background.conftest import Machine

CALL = {"name": "demo_weekday", "arguments": {"date": "2026-07-28"}}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LISTEN = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}


def pause(pid: int) -> None:
    """Let a process read and run nothing, as one that is being killed does until its connections close."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def is_read(pipe: int) -> bool:
    """Return whether the other end of a pipe has read all of it."""
    unread = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, unread)
    return unread[0] == 0


def test_calls_made_after_its_death_are_carried_out_by_the_next_process(machine: Machine) -> None:
    """Until its memory is freed, a dead process keeps its connections, and takes what is sent to them."""
    client = machine.start().initialize()
    assert client.weekday() == "Tuesday"
    long_call = client.start_long_call()
    owner = machine.owner
    pause(owner)
    request_ids = [client.send("tools/call", CALL) for _ in range(3)]
    wait_until(lambda: is_read(client.process.stdin.fileno()))
    os.kill(owner, signal.SIGKILL)
    assert client.receive(long_call)["error"]["data"]["kind"] == "outcome_unknown"
    assert ["Tuesday" in json.dumps(client.receive(id).get("result")) for id in request_ids] == [True] * 3
    assert client.close() == ""


def test_a_client_survives_several_deaths_in_a_row(machine: Machine) -> None:
    clients = [machine.start().initialize() for _ in range(2)]
    for _ in range(5):
        os.kill(machine.owner, signal.SIGKILL)
        assert [client.weekday() for client in clients] == ["Tuesday"] * 2
    assert [client.close() for client in clients] == [""] * 2


def test_calls_before_the_end_of_the_input_are_carried_out_by_the_next_process(machine: Machine) -> None:
    client = machine.start().initialize()
    owner = machine.owner
    pause(owner)
    id = client.send("tools/call", CALL)
    client.process.stdin.close()
    os.kill(owner, signal.SIGKILL)
    assert "Tuesday" in json.dumps(client.receive(id).get("result"))
    assert client.process.wait(30) == 0


def test_a_list_that_runs_at_its_death_is_made_by_the_next_process(machine: Machine, tmp_path: Path) -> None:
    start_marker = tmp_path / "started"
    script = (
        f"import os, time; open({str(start_marker)!r}, 'a').write('x')\n"
        f"time.sleep(0 if os.path.getsize({str(start_marker)!r}) > 1 else 60)"
    )
    machine.write_config(slow={"command": sys.executable, "args": ["-c", script]})
    client = machine.start().initialize()
    id = client.send("tools/list")
    wait_until(start_marker.exists)
    os.kill(machine.owner, signal.SIGKILL)
    assert "demo_weekday" in json.dumps(client.receive(id).get("result"))


def test_a_client_that_listens_does_not_start_it_again_after_stop(machine: Machine) -> None:
    client = machine.start()
    client.send("subscriptions/listen", LISTEN)
    assert "Tuesday" in json.dumps(client.ask("tools/call", {**CALL, "_meta": MODERN}))
    assert machine.run("stop").returncode == 0
    machine.run("status")
    assert machine.backgrounds == []
    assert "Tuesday" in json.dumps(client.ask("tools/call", {**CALL, "_meta": MODERN}))
    owner = machine.owner
    os.kill(owner, signal.SIGKILL)
    wait_until(lambda: not is_running(owner))
    assert "Tuesday" in json.dumps(client.ask("tools/call", {**CALL, "_meta": MODERN}))


class EndingProcess:
    """A background process that accepts a client, and ends when it has read a line."""

    def __init__(self, path: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()

    def serve(self, *descriptors: int) -> Any:
        """Serve one connection, and return the first message. A descriptor is that of a line count."""
        connection = self._listening.accept()[0]
        with connection, connection.makefile("rb") as file:
            connection.sendall(Greeting.of_this_process().to_line())
            file.read(int(file.readline().split()[1]))
            socket.send_fds(connection, [b"ok\n"], descriptors)
            return json.loads(file.readline())

    def refuse(self) -> None:
        connection = self._listening.accept()[0]
        with connection, connection.makefile("rb") as file:
            connection.sendall(Greeting.of_this_process().to_line())
            file.read(int(file.readline().split()[1]))
            connection.sendall(b"no its configuration is not valid\n")

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def ending(machine: Machine) -> Iterator[EndingProcess]:
    machine.start().initialize().close()
    path = machine.socket
    assert machine.run("stop").returncode == 0
    process = EndingProcess(path)
    yield process
    process.close()
    path.unlink()


def test_without_a_count_of_handled_lines_a_call_is_sent_once(
    machine: Machine, ending: EndingProcess
) -> None:
    """There is no count on systems without files in memory, and from a process of an earlier version."""
    client = machine.start()
    id = client.send("tools/call", CALL)
    assert ending.serve()["id"] == id
    assert client.receive(id)["error"]["data"]["kind"] == "outcome_unknown"


def test_a_line_that_ends_each_process_is_sent_three_times(machine: Machine, ending: EndingProcess) -> None:
    line_count = open_line_count()
    assert line_count is not None
    client = machine.start()
    first, second = client.send("tools/list"), client.send("tools/call", CALL)
    assert [ending.serve(line_count)["id"] for _ in range(3)] == [first] * 3
    kinds = {client.receive(id)["error"]["data"]["kind"] for id in (first, second)}
    assert kinds == {"outcome_unknown"}
    os.close(line_count)
    third = client.send("tools/list")
    assert ending.serve()["id"] == third


def test_a_request_that_no_process_takes_was_not_carried_out(machine: Machine, ending: EndingProcess) -> None:
    line_count = open_line_count()
    assert line_count is not None
    client = machine.start()
    id = client.send("tools/call", CALL)
    ending.serve(line_count)
    ending.refuse()
    os.close(line_count)
    error = client.receive(id)["error"]
    assert error["data"]["kind"] == "unreachable"
    assert error["message"].endswith("this request was not carried out: its configuration is not valid")
    assert client.process.wait(30) == 1
