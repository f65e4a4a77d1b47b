"""Refusals explain themselves to the operator: on the command line, in the library, in ``serve``, its API and
its pages.

Everything is real: the commands, ``toolyard serve``, the processes of the servers and a browser.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from tests import prefork
from tests.conftest import ProgramStarter

from toolyard import ToolRefused, Toolyard

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

DEMO = Path(__file__).parent.parent.parent / "src/toolyard/cli/demo_server.py"
HIDDEN = (
    "'demo_forget' is hidden: this tool can change data (readOnlyHint is false), and write_tools is 'reject'"
)
AGENTS = "## Counter\n---\ntools: [demo_cuont]\n---\nCount.\n"
NOT_MCP = "is it an MCP server? It must write MCP messages to its stdout, and nothing else"


def write_files(data: Path) -> None:
    data.mkdir()
    demo = {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}
    servers: dict[str, Any] = {
        "demo": demo,
        "wary": {**demo, "trust": "untrusted", "allowTools": ["weekday"]},
        "noise": {"command": sys.executable, "args": ["-c", "for _ in range(10**7): print('hello')"]},
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (data / "AGENTS.md").write_text(AGENTS)


async def test_every_refusal_names_its_rule_and_a_next_step(tmp_path: Path, chromium: Browser) -> None:
    data = tmp_path / "data"
    write_files(data)
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env = {**keep, "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(data)}

    async def run(*words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "toolyard", *words]
        result = await asyncio.to_thread(prefork.run, command, env=env, cwd=tmp_path, timeout=120)
        return result.returncode, result.stdout, result.stderr

    # The command line.
    code, out, err = await run("tools")
    assert code == 0
    assert "demo_weekday" in out
    assert "error: server 'noise': was disconnected: it sent more than 10,000 lines" in err
    assert f"hint: {NOT_MCP}\n" in err
    assert "note: server 'wary' offers nothing: 3 tools hidden (write tools)" in err
    assert "note: 4 more are hidden (write tools): --all shows them" in err
    assert "still failing: noise" in (await run("tools"))[2]
    code, out, err = await run("call", "demo_forget")
    assert (code, out) == (4, "")
    assert f"error: {HIDDEN}\n" in err
    assert "`toolyard why demo_forget` explains all rules" in err
    code, out, err = await run("call", "demo_nothing")
    assert (code, "no tool named 'demo_nothing' is available" in err) == (4, True)
    assert "unknown tool 'demo_cuont'" in (await run("tools", "--agent", "counter"))[2]

    # The library.
    config = {"mcpServers": {"demo": {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}}}
    async with Toolyard.open(config, data_dir=tmp_path / "library") as yard:
        with pytest.raises(ToolRefused) as exc_info:
            await yard.call("demo_forget")
    assert exc_info.value.cause == HIDDEN
    assert exc_info.value.rule == "write tools"

    # The web app.
    programs, log = ProgramStarter(), tmp_path / "log"
    try:
        command = f"exec '{sys.executable}' -m toolyard --data-dir '{data}' serve --port {{port}} 2>'{log}'"
        url = programs("sh", "-c", command).url

        async def ask(path: str, body: object | None = None, **headers: str) -> tuple[int, Any]:
            def send() -> tuple[int, Any]:
                content = None if body is None else json.dumps(body).encode()
                request_headers = {
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    **headers,
                }
                try:
                    with urllib.request.urlopen(
                        urllib.request.Request(f"{url}{path}", content, request_headers), timeout=60
                    ) as answer:
                        return answer.status, json.loads(answer.read())
                except urllib.error.HTTPError as error:
                    return error.code, json.loads(error.read())

            return await asyncio.to_thread(send)

        while "unknown tool 'demo_cuont'" not in log.read_text():
            await asyncio.sleep(0.1)
        assert log.read_text().count("server 'noise': was disconnected: it sent more than 10,000 lines") == 1
        assert log.read_text().count("'noise'") == 1
        problems = (await ask("/api/v1/agents"))[1]["problems"]
        assert [each["message"] for each in problems] == [
            "unknown tool 'demo_cuont'",
            "has no tools: its patterns match no tool",
        ]
        status, refusal = await ask("/api/v1/tools/demo_forget/call", {})
        assert (status, refusal["detail"]) == (404, HIDDEN)
        assert refusal["hint"] == "GET /api/v1/tools/{name}/why explains all rules"

        # Its pages.
        context = await chromium.new_context(base_url=url)
        page = await context.new_page()
        await page.goto("/ui/chat/console")
        await page.get_by_text("4 hidden tools (can change data)").click()
        hidden = page.locator(".hidden-tool").filter(has_text="demo_forget")
        await expect(hidden).to_contain_text(
            "Hidden: this tool can change data, and such tools are turned off."
        )
        await page.goto("/ui/chat/console?tool=demo_forget")
        await expect(page.locator("main")).to_contain_text(
            "“demo_forget” is hidden: this tool can change data"
        )
        await page.goto("/ui/")
        await expect(page.locator("main")).to_contain_text("it sent more than 10,000 lines")
        await context.close()
    finally:
        programs.stop()
