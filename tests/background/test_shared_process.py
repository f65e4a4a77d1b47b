"""``toolyard stdio`` attaches its clients to one process that they share."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.cookiejar
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests import prefork
from tests.background.conftest import INITIALIZE, wait_until
from tests.processes import is_running
from tests.sqlite_template import copy_template

from toolyard.background.runtime_dir import RuntimePaths
from toolyard.store import Database
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent, StoredAgent

if TYPE_CHECKING:
    from tests.background.conftest import Machine, StdioClient


def test_clients_share_one_background_process_and_its_servers(machine: Machine) -> None:
    first, second = machine.start().initialize(), machine.start().initialize()
    assert (first.weekday(), second.weekday()) == ("Tuesday", "Tuesday")
    owner = psutil.Process(machine.owner)
    assert owner.children() != []
    assert psutil.Process(first.process.pid).children() == []
    status = machine.status()
    assert status["pid"] == owner.pid
    assert [client["pid"] for client in status["clients"]] == [first.process.pid, second.process.pid]
    assert (first.close(), second.close()) == ("", "")


def test_the_background_process_belongs_to_no_client(machine: Machine) -> None:
    """A client that ends all descendants and the whole session of its servers does not end it."""
    client = machine.start().initialize()
    owner = psutil.Process(machine.owner)
    assert client.process.pid not in {parent.pid for parent in owner.parents()}
    assert (os.getsid(owner.pid) == os.getsid(client.process.pid), owner.cwd()) == (False, "/")
    targets = {os.readlink(f"/proc/{owner.pid}/fd/{number}") for number in (0, 1, 2)}
    assert targets == {"/dev/null", str(machine.data / "background.log")}


def test_clients_that_start_together_start_one_background_process(machine: Machine) -> None:
    clients = [machine.start() for _ in range(20)]
    request_ids = [client.send("tools/list") for client in clients]
    for client, id in zip(clients, request_ids, strict=True):
        assert "demo_weekday" in json.dumps(client.receive(id))
    assert machine.backgrounds == [machine.owner]
    assert len(machine.status()["clients"]) == 20


def test_clients_survive_the_death_of_the_background_process(machine: Machine) -> None:
    clients = [machine.start().initialize() for _ in range(20)]
    caller, *others = clients
    call = caller.start_long_call()
    servers = psutil.Process(machine.owner).children(recursive=True)
    owner = machine.owner
    os.kill(owner, signal.SIGKILL)
    error = caller.receive(call)["error"]
    assert "the outcome is unknown" in error["message"]
    assert error["data"]["kind"] == "outcome_unknown"
    assert {client.weekday() for client in clients} == {"Tuesday"}
    assert machine.owner != owner
    assert machine.backgrounds == [machine.owner]
    wait_until(lambda: not any(is_running(server.pid) for server in servers))
    other = others[0]
    wait_until(lambda: other.ask("ping") and "notifications/tools/list_changed" in other.notifications)
    assert [client.close() for client in clients] == [""] * 20


def test_a_client_that_is_killed_in_a_call_leaves_no_call_behind(machine: Machine) -> None:
    client, other = machine.start().initialize(), machine.start().initialize()
    client.start_long_call()
    client.process.kill()
    wait_until(lambda: [each["busy"] for each in machine.status()["clients"]] == [False])
    assert other.weekday() == "Tuesday"


def test_a_stale_socket_is_replaced(machine: Machine) -> None:
    machine.start().initialize()
    os.kill(machine.owner, signal.SIGKILL)
    wait_until(lambda: not machine.backgrounds)
    assert machine.socket.exists()
    for client in machine.clients:
        client.process.kill()
    assert machine.start().initialize().weekday() == "Tuesday"


def test_a_deleted_socket_is_made_again_by_its_owner(machine: Machine) -> None:
    machine.start().initialize()
    owner = machine.owner
    machine.socket.unlink()
    assert machine.start().initialize().weekday() == "Tuesday"
    wait_until(lambda: machine.backgrounds == [owner])
    assert len(machine.status()["clients"]) == 2


def test_stop_ends_it_and_attached_clients_start_it_again_when_they_ask(machine: Machine) -> None:
    client = machine.start().initialize()
    assert client.weekday() == "Tuesday"
    assert machine.run("stop").stdout == "Stopped.\n"
    assert machine.backgrounds == []
    assert machine.run("status").returncode == 3
    assert client.process.poll() is None
    assert client.weekday() == "Tuesday"
    assert len(machine.backgrounds) == 1
    assert machine.run("stop").returncode == 0
    assert client.close() == ""
    assert machine.run("stop").stdout == "No Toolyard is running in the background.\n"


def test_it_ends_when_no_client_was_there_for_a_while(machine: Machine) -> None:
    machine.env["TOOLYARD_IDLE_EXIT"] = "0.3"
    machine.start().initialize().close()
    wait_until(lambda: not machine.backgrounds)
    assert list((machine.runtime / "toolyard").glob("*.sock")) == []
    log = (machine.data / "background.log").read_text()
    assert "the background process has ended" in log


def test_it_ends_although_its_folder_was_removed(machine: Machine) -> None:
    machine.env["TOOLYARD_IDLE_EXIT"] = "1"
    client = machine.start().initialize()
    shutil.rmtree(machine.runtime)
    client.close()
    wait_until(lambda: not machine.backgrounds)


def test_requests_before_the_end_of_the_input_are_answered(machine: Machine) -> None:
    client = machine.start()
    request_ids = [client.send("tools/list"), client.send("ping")]
    client.process.stdin.close()
    assert {client.receive(id)["id"] for id in request_ids} == set(request_ids)
    assert client.process.wait(30) == 0


def test_long_requests_and_those_after_them_are_answered(machine: Machine) -> None:
    client = machine.start().initialize()
    call = {"name": "demo_weekday", "arguments": {"date": "x" * 1_000_000}}
    request_ids = [client.send("tools/call", call), client.send("ping"), client.send("tools/call", call)]
    client.process.stdin.write(b"no JSON\n\n")
    request_ids.append(client.send("ping"))
    client.process.stdin.close()
    assert {client.receive(id)["id"] for id in request_ids} == set(request_ids)
    assert client.process.wait(30) == 0


def test_cancelled_requests_are_not_answered_after_a_restart(machine: Machine) -> None:
    client = machine.start().initialize()
    call = client.start_long_call()
    client.send("notifications/cancelled", {"requestId": call}, notify=True)
    assert client.weekday() == "Tuesday"
    os.kill(machine.owner, signal.SIGKILL)
    answer = client.ask("ping")
    assert answer["id"] != call
    client.process.stdin.close()
    client.reader.join(30)
    remaining = [message for message in client.messages.queue if message and message.get("id") == call]
    assert remaining == []


# Where no process can be shared.


def test_a_setting_in_the_environment_that_differs_means_standalone(machine: Machine) -> None:
    machine.start().initialize()
    other = machine.start(TOOLYARD_WRITE_TOOLS="allow").initialize()
    assert other.weekday() == "Tuesday"
    assert "TOOLYARD_WRITE_TOOLS" in other.close()
    assert len(machine.status()["clients"]) == 1


def test_another_users_folder_is_not_used(machine: Machine) -> None:
    folder = machine.runtime / "toolyard"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    client = machine.start().initialize()
    assert client.weekday() == "Tuesday"
    assert "belongs to another user (id 12345)" in client.close()
    assert machine.backgrounds == []


def test_a_link_in_place_of_the_folder_is_not_used(machine: Machine) -> None:
    (machine.home / "elsewhere").mkdir(mode=0o700)
    (machine.runtime / "toolyard").symlink_to(machine.home / "elsewhere")
    client = machine.start().initialize()
    assert "is not a folder" in client.close()
    assert list((machine.home / "elsewhere").iterdir()) == []


def test_a_folder_that_others_can_enter_is_not_used(machine: Machine) -> None:
    (machine.runtime / "toolyard").mkdir(mode=0o755)
    assert "other users have access to" in machine.start().initialize().close()


LISTEN = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setuid(12345)
listening.listen()
print("listening", flush=True)
connection = listening.accept()[0]
print(connection.recv(1000), flush=True)
"""


def test_nothing_is_sent_to_the_socket_of_another_user(machine: Machine) -> None:
    machine.start().initialize()
    path = machine.socket
    assert machine.run("stop").returncode == 0
    words = [sys.executable, "-c", LISTEN, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "listening\n"
        client = machine.start().initialize()
        assert client.weekday() == "Tuesday"
        assert other.stdout.readline() == "b''\n"
        assert "another user listens on" in client.close()


def test_a_process_that_does_not_answer_is_not_waited_for(machine: Machine) -> None:
    machine.start().initialize()
    os.kill(machine.owner, signal.SIGSTOP)
    try:
        client = machine.start().initialize()
        assert client.weekday() == "Tuesday"
        assert "is not responding" in client.close()
    finally:
        os.kill(machine.owner, signal.SIGCONT)


def test_a_process_of_another_protocol_is_left_to_end(machine: Machine) -> None:
    machine.start().initialize()
    path = machine.socket
    assert machine.run("stop").returncode == 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        client = machine.start()
        connection = listening.accept()[0]
        with connection:
            connection.sendall(b"toolyard 99 99.0 abc - 1\n")
            assert connection.recv(100) == b"replace\n"
        assert client.initialize().weekday() == "Tuesday"
        assert "runs another version (99.0)" in client.close()
    path.unlink()


def test_standalone_starts_servers_of_its_own(machine: Machine) -> None:
    client = machine.start("--standalone").initialize()
    assert client.weekday() == "Tuesday"
    assert psutil.Process(client.process.pid).children() != []
    assert machine.backgrounds == []


def test_the_shim_imports_little(machine: Machine) -> None:
    machine.start().initialize()
    script = (
        "import sys\nbefore = set(sys.modules)\nfrom toolyard.__main__ import main\n"
        "sys.argv = ['toolyard', 'stdio']\n"
        "try:\n    main()\nexcept SystemExit:\n"
        "    print(sorted(set(sys.modules) - before), file=sys.stderr)\n"
    )
    words = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=machine.environment()) as shim:
        out, err = shim.communicate(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', timeout=60)
    assert json.loads(out) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    loaded_modules = {name for name in eval(err) if not name.startswith("toolyard")}
    assert loaded_modules <= {"__future__", "_blake2", "_socket", "errno", "fcntl", "select", "time"}


def test_the_shim_finds_the_data_directory_that_the_program_uses(machine: Machine) -> None:
    script = (
        "from toolyard.background.shim import find_data_dir\n"
        "from toolyard.config import default_data_dir\n"
        "assert find_data_dir({}) == str(default_data_dir()), (find_data_dir({}), default_data_dir())"
    )
    for env in ({}, {"XDG_DATA_HOME": "/x"}, {"XDG_DATA_HOME": " "}, {"TOOLYARD_DATA_DIR": "~/y"}):
        subprocess.run([sys.executable, "-c", script], env={"HOME": "/h", **env}, check=True, timeout=60)


def test_serve_takes_over_and_the_clients_move(machine: Machine) -> None:
    clients = [machine.start().initialize() for _ in range(3)]
    assert clients[0].weekday() == "Tuesday"
    owner = machine.owner
    words = [sys.executable, "-m", "toolyard", "serve", "--port", "0"]
    pipe = subprocess.PIPE
    with prefork.Popen(words, stdout=pipe, stderr=pipe, cwd=machine.home, env=machine.environment()) as serve:
        try:
            wait_until(lambda: machine.owner == serve.pid)
            wait_until(lambda: not is_running(owner))
            wait_until(lambda: len(machine.status()["clients"]) == 3)
            assert {client.weekday() for client in clients} == {"Tuesday"}
            assert machine.run("stop").returncode == 2
            assert machine.backgrounds == []
        finally:
            serve.terminate()
            serve.communicate(timeout=60)
    assert {client.weekday() for client in clients} == {"Tuesday"}
    assert len(machine.backgrounds) == 1
    assert {client.close() for client in clients} == {""}


def test_serve_and_its_local_clients_share_the_processes_of_servers(machine: Machine) -> None:
    words = [sys.executable, "-m", "toolyard", "serve", "--port", "0"]
    pipe = subprocess.PIPE
    with prefork.Popen(words, stdout=pipe, stderr=pipe, cwd=machine.home, env=machine.environment()) as serve:
        try:
            url = re.search(rb"http://[^/]+", serve.stdout.readline())[0].decode()
            wait_until(lambda: machine.owner == serve.pid)
            client = machine.start().initialize()
            assert client.weekday() == "Tuesday"
            body = json.dumps({"arguments": {"date": "2026-07-28"}}).encode()
            headers = {"Content-Type": "application/json"}
            call = urllib.request.Request(f"{url}/api/v1/tools/demo_weekday/call", body, headers)
            with urllib.request.urlopen(call, timeout=60) as answer:
                assert b"Tuesday" in answer.read()
            (server,) = find_servers(serve.pid)
            assert json.loads(machine.run("servers", "--json").stdout)[0]["processes"][0]["pid"] == server
            # The pages restart it for both.
            restart = urllib.request.Request(f"{url}/api/v1/servers/demo/restart", b"{}", headers)
            urllib.request.urlopen(restart, timeout=60).close()
            assert client.weekday() == "Tuesday"
            (again,) = find_servers(serve.pid)
            assert again != server
        finally:
            serve.terminate()
            serve.communicate(timeout=60)
    assert not is_running(again)


def find_servers(pid: int) -> list[int]:
    """Return the processes of the demo server that a process has started."""
    children = psutil.Process(pid).children(recursive=True)
    return [each.pid for each in children if any("demo_server" in word for word in each.cmdline())]


# Folders of servers.

FOLDER_SERVER = Path(__file__).with_name("folder_server.py")
LONG_LIST_SERVER = Path(__file__).with_name("long_list_server.py")


def folder_of(client: StdioClient, name: str) -> str:
    """Return the working directory of a server."""
    answer = client.ask("tools/call", {"name": f"{name}_folder", "arguments": {}})
    return answer["result"]["content"][0]["text"].partition(" ")[2]


def test_servers_without_a_folder_get_one_of_their_own(machine: Machine) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(FOLDER_SERVER)]}
    machine.write_config(own=entry, client={**entry, "cwd": "${TOOLYARD_CLIENT_DIR}"})
    places = [machine.home / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    clients = [machine.start(cwd=place).initialize() for place in places]
    assert [folder_of(client, "own") for client in clients] == [str(machine.data / "servers/own")] * 2
    assert [folder_of(client, "client") for client in clients] == [str(place) for place in places]
    pids = {
        (server["id"], server["pid"])
        for view in machine.status()["views"]
        for server in view["servers"]
        if server["pid"] and server["id"] in ("own", "client")
    }
    assert sorted(id for id, _ in pids) == ["client", "client", "own"]
    status_lines = machine.run("status").stdout.splitlines()
    user = "{name} {version}".format(**INITIALIZE["clientInfo"])
    for id, pid in pids:
        (line,) = (line for line in status_lines if line.startswith(f"{id}: process {pid}, used by {user}"))
        assert ("(" in line) is (id == "client")
    assert all(any(f" in {place})" in line for line in status_lines) for place in places)


def test_status_names_all_clients_of_a_process(machine: Machine) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(FOLDER_SERVER)]}
    machine.write_config(own={**entry, "sessions": "per-client"}, shared=entry)
    modern = machine.start()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "2"},
    }
    legacy = machine.start().initialize()
    for name in ("own", "shared"):
        folder_of(legacy, name)
        modern.ask("tools/call", {"name": f"{name}_folder", "arguments": {}, "_meta": meta})
    old = "{name} {version}".format(**INITIALIZE["clientInfo"])
    servers = {each["id"]: each for each in machine.status()["views"][0]["servers"]}
    assert [each["users"] for each in servers["shared"]["processes"]] == [["modern 2", old]]
    assert sorted(each["users"] for each in servers["own"]["processes"] if each["users"]) == [
        ["modern 2"],
        [old],
    ]


def test_servers_of_a_project_run_in_its_folder_with_its_variables(machine: Machine) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(FOLDER_SERVER), "${WORD}"]}
    for name in ("a", "b"):
        (machine.home / name / "deep").mkdir(parents=True)
        (machine.home / name / ".mcp.json").write_text(json.dumps({"mcpServers": {"it": entry}}))
        assert machine.run("approve", str(machine.home / name / ".mcp.json"), "--yes").returncode == 0
    texts = [
        machine.start(cwd=machine.home / place, WORD=word)
        .initialize()
        .ask("tools/call", {"name": "it_folder", "arguments": {}})["result"]["content"][0]["text"]
        for place, word in (("a/deep", "one"), ("b", "one"), ("a", "two"))
    ]
    home = machine.home
    assert texts == [f"one {home}/a", f"one {home}/b", f"two {home}/a"]


def test_a_broken_configuration_does_not_affect_attached_clients(machine: Machine) -> None:
    client = machine.start().initialize()
    assert client.weekday() == "Tuesday"
    (machine.data / "mcp.json").write_text("{")
    wait_until(lambda: machine.status()["views"][0]["problem"] is not None)
    assert client.weekday() == "Tuesday"
    assert machine.start().initialize().weekday() == "Tuesday"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(FOLDER_SERVER)]}
    machine.write_config(more=entry)
    wait_until(lambda: "more_folder" in json.dumps(client.ask("tools/list")))
    assert machine.status()["views"][0]["problem"] is None


def test_an_entry_that_starts_ourselves_does_not_start(machine: Machine) -> None:
    itself = {
        "command": sys.executable,
        "args": ["-m", "toolyard", "stdio", "--data-dir", str(machine.data)],
        "env": {"XDG_RUNTIME_DIR": str(machine.runtime)},
    }
    machine.write_config(me=itself)
    client = machine.start().initialize()
    assert client.weekday() == "Tuesday"
    states = {server["id"]: server["state"] for server in machine.status()["views"][0]["servers"]}
    assert states["me"] == "disabled"


def test_open_brings_up_the_pages_on_this_machine(machine: Machine) -> None:
    copy_template(machine.data)
    machine.env |= {"TOOLYARD_IDLE_EXIT": "1", "TOOLYARD_PORT": "0"}
    client = machine.start().initialize()
    first, second = (machine.run("open", "--no-browser") for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    url = first.stdout.strip()
    assert url.startswith("http://127.0.0.1:")
    address = url.partition("/open/")[0]
    assert second.stdout.startswith(f"{address}/open/")
    assert second.stdout != first.stdout
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{address}/api/v1/status", timeout=60)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=60) as answer:
        assert answer.url.startswith(f"{address}/ui")
    with browser.open(f"{address}/api/v1/status", timeout=60) as answer:
        assert b'"demo"' in answer.read()
    # The link works once, and again only for the browser that opened it.
    browser.open(url, timeout=60).close()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url, timeout=60)
    assert client.weekday() == "Tuesday"
    client.close()
    wait_until(lambda: not machine.backgrounds)


REQUEST = """
import http.client, os, socket, sys
family, host, port, path, cookie = sys.argv[1:]
os.setuid(12345)
connection = http.client.HTTPConnection("127.0.0.1", int(port))
connection.sock = socket.socket(getattr(socket, family))
connection.sock.connect((host, int(port)))
connection.request("GET", path, headers={"Cookie": cookie})
print(connection.getresponse().status)
"""


@pytest.mark.parametrize(("family", "host"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::ffff:127.0.0.1")])
def test_neither_a_link_nor_a_cookie_works_for_another_user(machine: Machine, family: str, host: str) -> None:
    """Other users see both: a link among the arguments of the browser, a cookie on a port of their own."""
    copy_template(machine.data)
    machine.env |= {"TOOLYARD_PORT": "0"}
    url = machine.run("open", "--no-browser").stdout.strip()
    address, _, token = url.partition("/open/")
    port = address.rpartition(":")[2]

    def request_as_another_user(path: str, cookie: str = "") -> str:
        words = [sys.executable, "-c", REQUEST, family, host, port, path, cookie]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    assert request_as_another_user(f"/open/{token}") == "403"
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    with browser.open(url, timeout=60) as answer:
        assert answer.url.startswith(f"{address}/ui")
    cookie = next(f"{each.name}={each.value}" for each in cookies if each.name == "toolyard_background")
    assert request_as_another_user("/api/v1/me", cookie) == "403"


CLOSED_REQUEST = """
import os, socket, sys
os.setuid(12345)
connection = socket.socket()
connection.connect(("127.0.0.1", int(sys.argv[1])))
connection.sendall(f"GET {sys.argv[2]} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n".encode())
print(connection.getsockname()[1])
connection.close()
"""


def is_user_of_port_known(port: int) -> bool:
    """Return whether the kernel still shows who opened the connection from a local port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[7] != "0" for row in rows)


def test_a_request_of_another_user_without_waiting_for_its_response_is_refused(machine: Machine) -> None:
    """The kernel no longer says whose a closed connection was, and shows the user id 0 in its place."""
    copy_template(machine.data)
    machine.env |= {"TOOLYARD_PORT": "0"}
    url = machine.run("open", "--no-browser").stdout.strip()
    parts = urllib.parse.urlsplit(url)
    owner = psutil.Process(machine.owner)
    # The request and the end of its connection are there before it is read.
    owner.suspend()
    try:
        words = [sys.executable, "-c", CLOSED_REQUEST, str(parts.port), parts.path]
        port = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        wait_until(lambda: not is_user_of_port_known(port))
    finally:
        owner.resume()
    # The link was not used.
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("page", ["%5Cexample.org", "%09/example.org", "/example.org", "%0D%0AX-Evil:%201"])
def test_a_link_leads_to_no_other_site(machine: Machine, page: str) -> None:
    """Browsers read a backslash as a slash, and ignore tabs and line breaks."""
    copy_template(machine.data)
    machine.env |= {"TOOLYARD_PORT": "0"}
    url = machine.run("open", "--no-browser").stdout.strip()
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
    connection.request("GET", urllib.parse.urlsplit(url).path + page)
    with contextlib.closing(connection), connection.getresponse() as response:
        assert (response.status, response.getheader("Location")) == (303, "/")


def test_an_idle_shim_uses_no_cpu_time_after_a_long_list(machine: Machine) -> None:
    """A list that the pipe cannot take at once is written in parts; afterwards nothing is left to do."""
    entry = {"command": sys.executable, "args": ["-I", "-S", str(LONG_LIST_SERVER)]}
    machine.write_config(long=entry)
    client = machine.start().initialize()
    assert len(json.dumps(client.ask("tools/list"))) > 1_000_000
    shim = psutil.Process(client.process.pid)
    client.ask("ping")
    # A process that spins is running whenever one looks.
    wait_until(lambda: all(shim.status() == psutil.STATUS_SLEEPING for _ in range(20)))


def test_a_client_without_the_variable_of_the_runtime_folder_finds_the_same_socket() -> None:
    """Codex passes only a few variables to the servers that it starts."""
    # The path of a socket is short, and the folders of tests are not.
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / str(os.getuid())
        folder.mkdir(mode=0o700)
        with_variable = RuntimePaths("/data", str(folder), base)
        without = RuntimePaths("/data", "", base)
        assert without.socket == with_variable.socket
        assert without.folder == str(folder / "toolyard")


async def _store_agent(data: Path) -> None:
    database = await Database.open(data, url=None, secret_key=None)
    agent = Agent("reader", "Reader", tools=("demo_weekday",))
    await database.agents.add(StoredAgent("ag_1", LOCAL_PRINCIPAL.id, agent, 1, 1.0))
    await database.close()


def test_a_client_has_the_tools_of_an_agent_that_was_created_in_the_pages(machine: Machine) -> None:
    copy_template(machine.data)
    asyncio.run(_store_agent(machine.data))
    client = machine.start("--agent", "reader").initialize()
    tools = client.ask("tools/list")["result"]["tools"]
    assert [each["name"] for each in tools] == ["demo_weekday"]
    assert machine.backgrounds == [machine.owner]
