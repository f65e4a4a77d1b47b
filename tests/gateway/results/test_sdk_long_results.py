"""Long results through the gateway, read by their links with clients that others wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import LEGACY
from tests.gateway.conftest import HERE, LARGE
from tests.gateway.large_results_server import data, words
from tests.web.conftest import write_config

CLIENTS = {
    "sdk 2, modern": (sys.executable, "auto"),
    "sdk 2, legacy": (sys.executable, "legacy"),
    "sdk 1": (str(LEGACY / "python"), ""),
}


async def run(client: str, *where: str) -> Any:
    program, mode = CLIENTS[client]
    process = await asyncio.create_subprocess_exec(
        program, "-W", "ignore", str(HERE / "sdk_client.py"), *where,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "SDK_MODE": mode},
    )  # fmt: skip
    try:
        stdout, errors = await asyncio.wait_for(process.communicate(), 240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert process.returncode == 0, errors.decode()
    return json.loads(stdout)


def check(seen: Any) -> None:
    whole = {"text": words(300_000), "promised": words(300_000), "file": data(300_000)}
    for tool, finding in seen.items():
        assert finding["kind"] == ("blob" if tool == "file" else "text")
        assert finding["size"] == 300_000
        assert finding["sha256"] == sha256(whole.pop(tool).encode()).hexdigest()
        assert finding["sent"] < 150_000
    assert not whole


@pytest.mark.parametrize("client", CLIENTS)
async def test_over_http(serve: Any, client: str) -> None:
    site = await serve({"large": LARGE})
    check(await run(client, "http", f"{site.url}/mcp"))


@pytest.mark.parametrize("client", CLIENTS)
async def test_over_standard_streams(tmp_path: Path, client: str) -> None:
    write_config(tmp_path, {"large": LARGE})
    check(await run(client, "stdio", sys.executable, "-m", "toolyard", "stdio", "--data-dir", str(tmp_path)))
