"""Invalid entries of other clients' dialect fail alone: on the command line, in ``serve`` and on its pages.

Everything is real: the commands, ``toolyard serve``, the process of the valid server, and a browser.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from tests import prefork
from tests.conftest import ProgramStarter

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

DEMO = Path(__file__).parent.parent.parent / "src/toolyard/cli/demo_server.py"


def configuration(**changes: Any) -> str:
    demo = {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}
    servers = {
        "good": demo,
        "pigeon": {"type": "carrier-pigeon", "url": "http://localhost/"},
        "number": {"command": 5},
        "@21st-dev/magic": {**demo, "env": {"PORT": 8080, "DEBUG": True}},
        **changes,
    }
    return json.dumps({"mcpServers": servers}, indent=2)


def find_line(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


async def test_invalid_entries_fail_alone(tmp_path: Path, chromium: Browser) -> None:
    data, text = tmp_path / "data", configuration()
    data.mkdir()
    file = data / "mcp.json"
    file.write_text(text)
    pigeon = f"{file}:{find_line(text, 'carrier-pigeon')}: mcpServers.pigeon.type: expected"
    number = f"{file}:{find_line(text, ': 5')}: mcpServers.number.command: expected a non-empty string"
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env = {**keep, "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(data)}

    async def run(*words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "toolyard", *words]
        result = await asyncio.to_thread(prefork.run, command, env=env, cwd=tmp_path, timeout=120)
        return result.returncode, result.stdout, result.stderr

    # The command line.
    code, out, err = await run("servers", "--json")
    servers = {each["server"]: each for each in json.loads(out)}
    states = {name: each["state"] for name, each in servers.items()}
    assert states == {"good": "ready", "pigeon": "failed", "number": "failed", "21st-dev-magic": "ready"}
    assert servers["pigeon"]["cause"].startswith(pigeon)
    assert servers["number"]["cause"].startswith(number)
    assert servers["number"]["hint"]
    assert (await run("servers", "--fail"))[0] == 3
    code, out, err = await run("tools")
    assert code == 0
    assert "good_weekday" in out
    assert "21st-dev-magic_weekday" in out
    assert f"error: {pigeon}" in err
    assert f"error: {number}" in err
    failures = json.loads((await run("tools", "--json"))[1])["failures"]
    assert set(failures) == {"pigeon", "number"}
    code, out, err = await run("check")
    assert code == 1
    assert f"error: {pigeon}" in out
    assert f"error: {number}" in out
    assert "used here as '21st-dev-magic'" in out
    code, out, err = await run("call", "good_weekday", "date=2026-11-16")
    assert (code, "Monday" in out) == (0, True)

    # The web app.
    programs = ProgramStarter()
    log = tmp_path / "log"
    try:
        command = f"exec '{sys.executable}' -m toolyard --data-dir '{data}' serve --port {{port}} 2>'{log}'"
        url = programs("sh", "-c", command).url

        async def status() -> dict[str, Any]:
            body = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/api/v1/status").read())
            return {each["id"]: each for each in json.loads(body)["items"]}

        async def wait_for_state(server_id: str, state: str) -> dict[str, Any]:
            while (server_status := await status())[server_id]["state"] != state:
                await asyncio.sleep(0.1)
            return server_status

        state = await wait_for_state("good", "ready")
        assert state["pigeon"]["state"] == "failed"
        assert state["pigeon"]["reason"] == "invalid_entry"
        assert state["pigeon"]["cause"].startswith(pigeon)
        assert state["number"]["hint"]
        assert pigeon in log.read_text()
        context = await chromium.new_context(base_url=url)
        page = await context.new_page()
        await page.goto("/ui/admin/mcp")
        await expect(page.locator("#f-pigeon")).to_contain_text(pigeon)
        await expect(page.locator("#f-number")).to_contain_text("Failed")
        await expect(page.locator("#f-21st-dev-magic")).to_contain_text("Ready")
        await page.goto("/ui/")
        await expect(page.locator("main")).to_contain_text(number)

        # A later edit breaks another entry: that server stops, and the others go on.
        process = state["good"]["pid"]
        await page.goto("/ui/admin/mcp")
        file.write_text(configuration(**{"@21st-dev/magic": {"command": 7}}))
        state = await wait_for_state("21st-dev-magic", "failed")
        assert (state["good"]["state"], state["good"]["pid"]) == ("ready", process)
        await expect(page.locator("#f-21st-dev-magic")).to_contain_text("Failed")
        file.write_text(configuration(pigeon={"command": "/absent"}))
        state = await wait_for_state("21st-dev-magic", "ready")
        assert "mcpServers" not in (state["pigeon"]["cause"] or "")
        assert state["good"]["pid"] == process
        await context.close()
    finally:
        programs.stop()
