"""The official conformance suite against the gateway, with the origin spoken to in the legacy era: the harder
way, since every modern client then meets a server that knows nothing of its era. `make conformance` runs the
rest, and each scenario alone."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from tests.conftest import ROOT

MODULES = ROOT / ".envs/conformance/node_modules"


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_every_scenario_passes_through_the_gateway() -> None:
    words = ["--modules", str(MODULES), "--backend", "legacy", "--suite", "0.2.0-alpha.12", "--together"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "tests/conformance/server_scenarios.py"),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, errors = await asyncio.wait_for(process.communicate(), 380)
    assert process.returncode == 0, stdout.decode() + errors.decode()[-5000:]
    assert json.loads(stdout.splitlines()[-1]) == {"runs": 73, "failed": 0}
