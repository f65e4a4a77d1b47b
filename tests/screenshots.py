"""``make screenshots``: every page of a real Toolyard, light and dark, wide and narrow.

python -m tests.screenshots [FOLDER [PAGE …]]
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright
from tests.chromium import EXECUTABLE, OPTIONS
from tests.demo_data import ROOT, fill, write_files

Scheme = Literal["light", "dark"]
SIZES = {"wide": (1280, 800), "narrow": (390, 844), "large": (1920, 1080)}
MAX_HEIGHTS = {"wide": 1400, "narrow": 2400, "large": 1400}
"""Pixels. Longer pages are cut off, so that images stay small."""
WINDOW_HEIGHTS = {"chat-turn": 985}
"""Window heights that differ from the default."""
FIRST_PAGES = ("home", "instances", "instances-nothing-found")
"""Pages to capture first, because later requests change the states that they show."""


def free_port(preferred_port: int = 0) -> int:
    """Return the wanted port if it is free, so that images stay the same, else any free port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", preferred_port))
        except OSError:
            return free_port()
        return probe.getsockname()[1]


@contextmanager
def run_program(command: list[str], port: int, env: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            assert process.poll() is None, f"{command} ended"
            assert time.monotonic() < deadline, f"{command} does not listen"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


def pages(ids: dict[str, str]) -> dict[str, str]:
    """Return the address of every page, by the name of its image."""
    docs, weather = ids["docs"], ids["weather"]
    return {
        "chat-turn": f"/ui/chat/{ids['chat-turn']}",
        "chat": f"/ui/chat/{ids['chat']}",
        "chat-waits": f"/ui/chat/{ids['chat-waits']}",
        "chat-new": "/ui/chat",
        "chat-console": "/ui/chat?run=",
        "chat-run": f"/ui/chat/{ids['chat']}?run=&tool=demo_count",
        "chat-tools": f"/ui/chat/{ids['chat']}/tools",
        "approvals": "/ui/approvals",
        "home": "/ui/",
        "agents": "/ui/agents",
        "agent": "/ui/agents/librarian",
        "agent-form": "/ui/agents/_new",
        "agent-import": "/ui/agents/_import",
        "agent-hidden-tools": "/ui/agents/tidy-one",
        "instances": "/ui/mcp",
        "instances-nothing-found": "/ui/mcp?q=nothing+like+this",
        "instance-choose": "/ui/mcp/new",
        "instance-new": f"/ui/mcp/new?server={ids['Linear']}",
        "instance": f"/ui/mcp/{docs}",
        "instance-failed": f"/ui/mcp/{weather}",
        "instance-edit": f"/ui/mcp/{weather}/edit",
        "instance-delete": f"/ui/mcp/{weather}/delete",
        "tool": f"/ui/mcp/{docs}/tool?name=query-docs",
        "models": "/ui/admin/models",
        "model-add": "/ui/admin/models/new",
        "registry": "/ui/admin/mcp",
        "registry-add": "/ui/admin/mcp/new",
        "registry-edit": f"/ui/admin/mcp/{ids['Linear']}/edit",
        "registry-view": f"/ui/admin/mcp/{ids['Library docs']}",
        "file-server": "/ui/admin/mcp/files/demo",
        "file-server-failed": "/ui/admin/mcp/files/search",
        "catalog": "/ui/catalog",
        "proposals": "/ui/proposals",
        "proposal-new": "/ui/proposals/new",
        "admin-proposals": "/ui/admin/proposals",
        "docs": "/ui/docs",
        "docs-page": "/ui/docs/guides/agents",
        "people": "/ui/admin/people",
        "audit": "/ui/admin/audit",
        "tokens": "/ui/tokens",
        "connect": "/ui/connect",
        "account": "/ui/account",
        "usage": "/ui/usage",
        "admin-usage": "/ui/admin/usage",
        "budget": "/ui/budget",
        "search": "/ui/search?q=do",
        "not-found": "/ui/nothing-here",
        "parts": "/ui/dev/parts",
    }


def settle(page: Page) -> None:
    """Wait until the parts of the page that load later are present."""
    page.wait_for_function("() => !document.querySelector('[data-load][aria-busy]')", timeout=30_000)
    page.evaluate("document.activeElement.blur()")


def take_screenshot(
    browser: Browser, base: str, paths_by_name: dict[str, str], folder: Path, schemes: tuple[Scheme, ...]
) -> None:
    for scheme in schemes:
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
            )
            page = context.new_page()
            for name, path in paths_by_name.items():
                page.set_viewport_size({"width": width, "height": WINDOW_HEIGHTS.get(name, height)})
                page.goto(base + path)
                settle(page)
                # A chat opens at its end.
                whole = not name.startswith("chat")
                tall = (
                    min(page.evaluate("document.documentElement.scrollHeight"), MAX_HEIGHTS[size])
                    if whole
                    else WINDOW_HEIGHTS.get(name, height)
                )
                page.screenshot(
                    path=folder / f"{name}-{scheme}-{size}.png",
                    full_page=whole,
                    clip={"x": 0, "y": 0, "width": width, "height": tall},
                    animations="disabled",
                )
            context.close()


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="toolyard-") as place:
        data, docs_port, port = Path(place, "data"), free_port(4010), free_port()
        write_files(data)
        ids = asyncio.run(fill(data, f"http://127.0.0.1:{docs_port}/mcp"))
        docs = [sys.executable, str(ROOT / "tests/servers/docs_server.py"), str(docs_port)]
        serve = [sys.executable, "-m", "toolyard", "--data-dir", str(data), "serve", "--port", str(port)]
        with run_program(docs, docs_port), run_program(serve, port), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=OPTIONS)
            paths_by_name = {name: path for name, path in pages(ids).items() if not names or name in names}
            # Chats and agents contact every server, and those of the demo data do not answer.
            before = {name: paths_by_name.pop(name) for name in FIRST_PAGES if name in paths_by_name}
            for some in (before, paths_by_name):
                take_screenshot(browser, f"http://127.0.0.1:{port}", some, folder, ("light", "dark"))
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/screenshots", sys.argv[2:])
