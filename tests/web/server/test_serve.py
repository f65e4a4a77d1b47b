"""``toolyard serve`` as people run it: a process that starts at once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest
from playwright.async_api import Browser, expect
from tests import prefork
from tests.ports import free_port
from tests.processes import is_running

if TYPE_CHECKING:
    from tests.web.conftest import Starting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Until = Callable[..., Awaitable[None]]


def giving(seconds: float) -> tuple[str, str]:
    """The program, which gives open requests so much time to end by themselves."""
    code = f"""
import toolyard.web.http_server.run
from toolyard.cli import main
assert toolyard.web.http_server.run._DRAIN_SECONDS == 5.0
toolyard.web.http_server.run._DRAIN_SECONDS = {seconds}
main()
"""
    return "-c", code


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


async def get_reply(url: str, path: str = "/healthz", **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url + path, **options) as response:
        return response.status, await response.text()


async def post_json(url: str, path: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as response:
        return response.status, await response.json(content_type=None)


async def statuses(url: str) -> dict[str, dict[str, Any]]:
    _, text = await get_reply(url, "/api/v1/status")
    return {each["id"]: each for each in json.loads(text)["items"]}


async def state_of(url: str, server: str) -> str:
    return (await statuses(url))[server]["state"]


async def until_state(url: str, server: str, state: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while (server_state := await state_of(url, server)) != state:
        assert time.monotonic() < deadline, f"{server} is {server_state}, not {state}"
        await asyncio.sleep(0.05)


async def until_open(url: str) -> None:
    """Until a request beside our own is being answered."""
    deadline = time.monotonic() + 30
    while "toolyard_http_requests_open 2.0" not in (await get_reply(url, "/metrics"))[1]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def wait_until_refused(url: str) -> None:
    """Until it takes no more requests."""
    async with asyncio.timeout(30):
        with contextlib.suppress(aiohttp.ClientError):
            while True:
                await get_reply(url)
                await asyncio.sleep(0.01)


# Starting.


async def test_it_listens_on_a_free_port_of_this_machine_and_prints_the_address(serve: Starting) -> None:
    site = await serve()
    assert site.url.startswith("http://127.0.0.1:")
    assert await get_reply(site.url) == (200, "ok\n")
    assert (await get_reply(site.url, "/readyz"))[0] == 200


HOLDING_IMPORTER = """
import pathlib, sys, time
class Held:
    def find_spec(self, name, path=None, target=None):
        while name == held and not go.exists():
            time.sleep(0.01)
held, go = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
sys.meta_path.insert(0, Held())
from toolyard.cli import main
main()
"""


async def test_it_takes_connections_before_the_application_is_loaded(serve: Starting, tmp_path: Path) -> None:
    """Who comes early waits for an answer, and is not sent away."""
    port, go = free_port(), tmp_path / "go"
    starting = asyncio.create_task(
        serve({}, "--port", str(port), program=("-c", HOLDING_IMPORTER, "fastapi", str(go)))
    )
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.01)
    early = asyncio.create_task(get_reply(f"http://127.0.0.1:{port}"))
    await asyncio.wait({early, starting}, timeout=0.1)
    assert not early.done()
    assert not starting.done()
    go.touch()
    writer.close()
    assert await early == (200, "ok\n")
    await starting


async def test_servers_are_warmed_after_it_listens_and_never_before(
    serve: Starting, tmp_path: Path, demo: dict[str, Any]
) -> None:
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; exec {sys.executable} -I -S {demo['args'][2]}"
    slow = {"command": "sh", "args": ["-c", waits]}
    site = await serve({"slow": slow, "quick": demo, "off": {**demo, "enabled": False}})
    await until_state(site.url, "quick", "ready")
    assert await state_of(site.url, "slow") == "connecting"
    go.touch()
    await until_state(site.url, "slow", "ready")
    # Ready comes a moment before its tools are listed.
    async with asyncio.timeout(30):
        while [
            (server_statuses := await statuses(site.url))[one]["tool_count"] for one in ("slow", "quick")
        ] != [
            3,
            3,
        ]:
            await asyncio.sleep(0.02)
    assert server_statuses["off"]["state"] == "disabled"


@pytest.mark.asyncio(loop_scope="session")
async def test_the_first_page_comes_before_a_server_answers_and_fills_itself(
    serve: Starting, tmp_path: Path, demo: dict[str, Any], chromium: Browser
) -> None:
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; exec {sys.executable} -I -S {demo['args'][2]}"
    site = await serve({"slow": {"command": "sh", "args": ["-c", waits]}})
    page = await chromium.new_page()
    try:
        await page.goto(f"{site.url}/ui/")
        await expect(page.locator("#f-slow .pill")).to_have_text("Starting", timeout=30_000)
        await expect(page.locator(".tile.starting b")).to_have_text("1")
        go.touch()
        await expect(page.locator("#f-slow .pill")).to_have_text("Ready", timeout=30_000)
        await expect(page.locator("#f-slow .row-sub")).to_contain_text("3 tools", timeout=30_000)
        await expect(page.locator(".tile.starting")).to_have_count(0)
    finally:
        await page.close()


async def test_nothing_is_started_where_the_setting_says_so(serve: Starting, demo: dict[str, Any]) -> None:
    site = await serve({"demo": demo}, TOOLYARD_WARM="false")
    assert await state_of(site.url, "demo") == "idle"
    assert not [child for child in children_of(site.process.pid) if "demo_server" in str(child.cmdline())]


MODEL = {"TOOLYARD_MODEL": "openai:one", "TOOLYARD_MODEL_BASE_URL": "http://127.0.0.1:1/v1"}


async def test_model_libraries_are_loaded_after_the_start(
    serve: Starting, tmp_path: Path, wait_until: Until
) -> None:
    go = tmp_path / "go"
    site = await serve({}, program=("-c", HOLDING_IMPORTER, "pydantic_ai", str(go)), **MODEL)
    assert await get_reply(site.url) == (200, "ok\n")
    assert "models" not in site.errors
    go.touch()
    await wait_until(lambda: "model clients are loaded" in site.errors, 90)
    site.signal()
    assert await site.ended(60) == 0


SLOW = """
import importlib, pathlib, time
pathlib.Path(__file__).with_name("began").touch()
for number in range(6_000):
    time.sleep(0.05)
    try:
        importlib.import_module(f"there_is_no_module_{number}")
    except ImportError:
        pass
"""


async def test_a_signal_while_it_is_loaded_ends_it_without_a_complaint(
    serve: Starting, tmp_path: Path, wait_until: Until
) -> None:
    library = tmp_path / "libraries/pydantic_ai"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(SLOW)
    site = await serve({}, **MODEL, PYTHONPATH=str(library.parent))
    await wait_until((library / "began").exists, 60)
    assert await get_reply(site.url) == (200, "ok\n")
    site.signal()
    assert await site.ended(60) == 0
    assert site.errors == ""


async def test_a_server_that_cannot_start_does_not_keep_the_others_or_us_from_it(
    serve: Starting, demo: dict[str, Any]
) -> None:
    site = await serve({"broken": {"command": "no-such-program"}, "demo": demo})
    await until_state(site.url, "demo", "ready")
    await until_state(site.url, "broken", "failed")
    record = (await statuses(site.url))["broken"]
    assert record["cause"] == "command not found: no-such-program"
    assert record["reason"] == "unreachable"


async def test_the_first_admin_gets_a_link_that_works_once(serve: Starting, tmp_path: Path) -> None:
    data = tmp_path / "kept"
    site = await serve({}, data=data, TOOLYARD_PEOPLE_MODE="password")
    line = await asyncio.wait_for(asyncio.to_thread(site.process.stdout.readline), 30)
    link = line.split()[-1]
    assert link.startswith(f"{site.url}/ui/invite/")
    assert (await get_reply(site.url, link.removeprefix(site.url)))[0] == 200
    assert (await get_reply(site.url, "/api/v1/status"))[0] == 401
    site.signal()
    assert await site.ended() == 0


async def test_of_the_links_of_several_replicas_it_is_said_that_the_newest_works(
    serve: Starting, postgres_url: str, wait_until: Until
) -> None:
    database = {"TOOLYARD_DATABASE_URL": postgres_url, "TOOLYARD_SECRET_KEY": "a" * 44}
    site = await serve({}, TOOLYARD_PEOPLE_MODE="password", **database)
    await wait_until(lambda: "only the newest one works" in site.errors, 60)
    site.signal()
    assert await site.ended() == 0


async def test_the_log_is_for_machines_where_the_setting_says_so(serve: Starting, wait_until: Until) -> None:
    site = await serve({"bad": {"command": "no-such-program"}}, TOOLYARD_LOG_FORMAT="json")
    await wait_until(lambda: "no-such-program" in site.errors)
    lines = [json.loads(line) for line in site.errors.splitlines()]
    warning_line = next(line for line in lines if "no-such-program" in line["message"])
    assert (warning_line["level"], warning_line["logger"]) == ("warning", "toolyard.connection")
    assert warning_line["time"].endswith("Z")


# Refusing to start.


def read_start_error(tmp_path: Path, *arguments: str, **env: str) -> str:
    """What it says when it does not start: a message and a hint, no traceback, exit code 2."""
    keep = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(tmp_path / "data")}
    words = [sys.executable, "-m", "toolyard", "serve", *arguments]
    result = prefork.run(words, timeout=60, cwd=tmp_path, env={**keep, **env})
    assert result.returncode == 2, (result.returncode, result.stdout, result.stderr)
    assert result.stderr.startswith("error: "), result.stderr
    assert "\nhint: " in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.stderr


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        error_text = read_start_error(tmp_path, "--port", str(port))
    assert f"port {port} on 127.0.0.1 is already in use" in error_text
    assert "--port" in error_text
    assert not (tmp_path / "data").exists()


def test_an_address_that_is_not_ours_is_told(tmp_path: Path) -> None:
    env = {"TOOLYARD_PEOPLE_MODE": "password"}
    assert "cannot listen" in read_start_error(tmp_path, "--host", "no.such.host.invalid", **env)


def test_the_mode_none_is_refused_beyond_loopback(tmp_path: Path) -> None:
    error_text = read_start_error(tmp_path, "--host", "0.0.0.0", "--port", "0")
    assert "mode none" in error_text
    assert "people_mode" in error_text


def test_a_wrong_key_is_told_and_changes_nothing(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(tmp_path / "data")}
    words = [sys.executable, "-m", "toolyard", "serve", "--port", "0"]
    first = prefork.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**env, "TOOLYARD_SECRET_KEY": "a" * 44}, cwd=tmp_path
    )
    assert first.stdout is not None
    with first.stdout:
        assert "listening" in first.stdout.readline()
        first.terminate()
        assert first.wait(30) == 0
    error_text = read_start_error(tmp_path, "--port", "0", TOOLYARD_SECRET_KEY="b" * 44)
    assert "another secret key" in error_text


def test_a_database_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"postgresql://nobody@127.0.0.1:{probe.getsockname()[1]}/none"
        error_text = read_start_error(
            tmp_path, "--port", "0", TOOLYARD_DATABASE_URL=url, TOOLYARD_SECRET_KEY="a" * 44
        )
    assert "database" in error_text


def test_postgresql_without_a_key_is_refused(tmp_path: Path) -> None:
    error_text = read_start_error(
        tmp_path, "--port", "0", TOOLYARD_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none"
    )
    assert "TOOLYARD_SECRET_KEY" in error_text


def test_a_configuration_that_is_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mcp.json").write_text('{"servers": {"one": {"command": 3}}}')
    error_text = read_start_error(tmp_path, "--port", "0")
    assert "mcp.json:1" in error_text


# Following the configuration.


async def test_a_changed_entry_restarts_just_that_server(
    serve: Starting, demo: dict[str, Any], wait_until: Until
) -> None:
    site = await serve({"one": demo, "two": demo})
    await until_state(site.url, "one", "ready")
    await until_state(site.url, "two", "ready")
    before = await statuses(site.url)
    changed_servers = {"one": {**demo, "env": {"OTHER": "1"}}, "two": demo, "three": demo}
    (site.data / "mcp.json").write_text(json.dumps({"mcpServers": changed_servers}))
    deadline = time.monotonic() + 60
    while True:
        now = await statuses(site.url)
        pids = {name: record["pid"] for name, record in now.items()}
        if pids.get("three") and pids["one"] not in (None, before["one"]["pid"]):
            break
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.05)
    assert pids["two"] == before["two"]["pid"]
    await wait_until(lambda: not psutil.pid_exists(before["one"]["pid"]))


async def test_a_broken_edit_keeps_the_previous_servers_and_is_reported(
    serve: Starting, demo: dict[str, Any], wait_until: Until
) -> None:
    site = await serve({"one": demo})
    await until_state(site.url, "one", "ready")
    (site.data / "mcp.json").write_text('{"mcpServers": {"one": ')
    deadline = time.monotonic() + 60
    while True:
        _, text = await get_reply(site.url, "/api/v1/status")
        document = json.loads(text)
        if document["config_problem"]:
            break
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert "mcp.json:1" in document["config_problem"]
    assert document["items"][0]["state"] == "ready"
    await wait_until(lambda: "is not valid and was not applied" in site.errors)


# Stopping.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_at_a_signal_with_nothing_left(
    serve: Starting, demo: dict[str, Any], number: int, wait_until: Until
) -> None:
    site = await serve({"demo": demo})
    await until_state(site.url, "demo", "ready")
    children = children_of(site.process.pid)
    assert children
    site.signal(number)
    assert await site.ended() == 0
    await wait_until(lambda: not any(is_running(child.pid) for child in children))
    assert "Traceback" not in site.errors


async def test_an_open_request_ends_before_it_stops(
    serve: Starting, demo: dict[str, Any], wait_until: Until
) -> None:
    site = await serve({"demo": demo}, program=giving(300))
    await until_state(site.url, "demo", "ready")
    body = {"arguments": {"to": 30, "pause": 0.2}}
    call = asyncio.create_task(post_json(site.url, "/api/v1/tools/demo_count/call", body))
    await until_open(site.url)
    children = children_of(site.process.pid)
    site.signal()
    status, result = await call
    assert (status, result["text"]) == (200, "Counted to 30.")
    assert await site.ended() == 0
    await wait_until(lambda: not any(is_running(child.pid) for child in children))


async def test_a_request_that_does_not_end_gets_an_answer_all_the_same(
    serve: Starting, minimal_server: dict[str, Any], wait_until: Until
) -> None:
    site = await serve({"tiny": minimal_server}, program=giving(1.0))
    await until_state(site.url, "tiny", "ready")
    call = asyncio.create_task(
        post_json(site.url, "/api/v1/tools/tiny_never/call", {"arguments": {"needed": 1}})
    )
    await until_open(site.url)
    children, start = children_of(site.process.pid), time.monotonic()
    site.signal()
    status, problem = await call
    assert status == 502
    assert problem["type"] in ("urn:toolyard:problem:unreachable", "urn:toolyard:problem:outcome-unknown")
    assert await site.ended() == 0
    assert time.monotonic() - start > 0.9
    await wait_until(lambda: not any(is_running(child.pid) for child in children))


async def test_a_second_signal_hurries(
    serve: Starting, minimal_server: dict[str, Any], wait_until: Until
) -> None:
    site = await serve({"tiny": minimal_server}, program=giving(300))
    await until_state(site.url, "tiny", "ready")
    call = asyncio.create_task(
        post_json(site.url, "/api/v1/tools/tiny_never/call", {"arguments": {"needed": 1}})
    )
    await until_open(site.url)
    children = children_of(site.process.pid)
    site.signal()
    await wait_until_refused(site.url)
    site.signal()
    assert await site.ended() == 0
    await wait_until(lambda: not any(is_running(child.pid) for child in children))
    with contextlib.suppress(aiohttp.ClientError):
        assert (await call)[0] == 502


async def test_a_child_that_ignores_the_signal_is_killed(
    serve: Starting, tmp_path: Path, wait_until: Until
) -> None:
    tiny = Path(__file__).parents[2] / "servers/tiny_server.py"
    deaf = ["-c", f"trap '' TERM; {sys.executable} -I -S {tiny} --stays; sleep 60"]
    site = await serve({"deaf": {"command": "sh", "args": deaf}})
    await until_state(site.url, "deaf", "ready")
    children = children_of(site.process.pid)
    site.signal()
    assert await site.ended() == 0
    await wait_until(lambda: not any(is_running(child.pid) for child in children))


async def test_streams_end_when_it_stops(serve: Starting, demo: dict[str, Any]) -> None:
    site = await serve({"demo": demo}, program=giving(300))
    async with aiohttp.ClientSession() as session, session.get(site.url + "/api/v1/events") as stream:
        async for line in stream.content:
            if line.startswith(b"event: status"):
                break
        site.signal()
        await stream.content.read()
    assert await site.ended() == 0


async def test_idle_connections_do_not_keep_it(serve: Starting) -> None:
    site = await serve(program=giving(300))
    async with aiohttp.ClientSession() as session:
        async with session.get(site.url + "/healthz") as response:
            await response.read()
        site.signal()
        assert await site.ended() == 0


async def test_nothing_survives_kill_9(serve: Starting, demo: dict[str, Any], wait_until: Until) -> None:
    wrapped_server = {"command": "sh", "args": ["-c", f"{sys.executable} -I -S {demo['args'][2]}; true"]}
    site = await serve({"demo": wrapped_server})
    await until_state(site.url, "demo", "ready")
    children = children_of(site.process.pid)
    assert any("demo_server" in " ".join(child.cmdline()) for child in children)
    site.signal(signal.SIGKILL)
    await site.ended()
    await wait_until(lambda: not any(is_running(child.pid) for child in children))


async def test_noted_entries_are_on_disk_after_the_stop(
    serve: Starting, demo: dict[str, Any], tmp_path: Path
) -> None:
    data = tmp_path / "kept"
    site = await serve({"demo": demo}, data=data)
    for _ in range(20):
        status, _ = await post_json(
            site.url, "/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}}
        )
        assert status == 200
    site.signal()
    assert await site.ended() == 0
    again = await serve({"demo": demo}, data=data, TOOLYARD_WARM="false")
    _, text = await get_reply(again.url, "/api/v1/audit?action=tool.call")
    assert len(json.loads(text)["items"]) == 20


async def test_a_request_that_waits_for_a_database_which_hangs_ends_without_a_trace(serve: Starting) -> None:
    site = await serve({}, program=giving(0.2))
    # The first visit makes the local user.
    await statuses(site.url)
    with contextlib.closing(
        sqlite3.connect(site.data / "toolyard.db", isolation_level=None)
    ) as lock_connection:
        lock_connection.execute("BEGIN IMMEDIATE")
        body = {"name": "S", "url": "http://127.0.0.1:9/mcp"}
        task = asyncio.create_task(post_json(site.url, "/api/v1/servers", body))
        await until_open(site.url)
        site.signal()
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(task, 60)
    assert await site.ended(60) == 0
    assert "Traceback" not in site.errors
    assert "did not complete in time" in site.errors
