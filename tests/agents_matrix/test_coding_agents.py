"""Coding agents that others wrote call a tool through the shared background process.

`make test` installs the two quickest, `make agents` runs all of them through more situations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.agents_matrix.coding_agents import CODEX, GEMINI, CodingAgent
from tests.agents_matrix.scripted_model import Call, ScriptedModel
from tests.background.conftest import make_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.background.conftest import Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    with make_machine() as machine:
        yield machine


@pytest.mark.parametrize("agent", [CODEX, GEMINI], ids=lambda agent: agent.client)
def test_an_agent_gets_a_tool_result_through_the_background_process(
    machine: Machine, agent: CodingAgent
) -> None:
    agent.connect(machine)
    machine.start().initialize()
    owner = machine.owner
    clients: list[object] = []
    script = [
        Call("demo_weekday", {"date": "2026-07-28"}),
        Call("demo_weekday", {"date": "2026-07-29"}, lambda: clients.extend(machine.status()["clients"])),
    ]
    with ScriptedModel(script) as model:
        output = agent.run(machine, model.url)
    days = [day for result in model.results for day in ("Tuesday", "Wednesday") if f"is a {day}." in result]
    assert days == ["Tuesday", "Wednesday"], output
    assert machine.backgrounds == [owner]
    assert len(clients) == 2
