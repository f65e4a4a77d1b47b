"""Agents that were created in the pages, in commands on the same data directory."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.test_completion import complete

from toolyard.store import Database
from toolyard.types.agent import Agent, StoredAgent

if TYPE_CHECKING:
    from tests.cli.conftest import CliWithChat

AGENTS = "## Filed\n---\ntools: [chat_put]\n---\nPut.\n"


async def _store(data: Path) -> None:
    database = await Database.open(data, url=None, secret_key=None)
    for owner, agent in (
        ("local", Agent("looker", "Looker", "looks", "You look.", tools=("chat_look",))),
        ("local", Agent("filed", "Filed", tools=("chat_look",))),
        (None, Agent("shared-one", "Shared one", tools=("chat_look",))),
        ("ada", Agent("secret", "Secret", tools=("chat_look",))),
    ):
        await database.agents.add(StoredAgent(f"ag_{agent.id}", owner, agent, 1, 1.0))
    await database.close()


@pytest.fixture
def storing(cli_with_chat: CliWithChat) -> CliWithChat:
    cli_with_chat.agents(AGENTS)
    asyncio.run(_store(cli_with_chat.data))
    return cli_with_chat


def list_tools(cli_with_chat: CliWithChat, *words: str) -> list[str]:
    return [line.split("\t")[0] for line in cli_with_chat("tools", *words).lines]


@pytest.mark.parametrize("agent", ["looker", "Looker", "shared-one", "Shared one"])
def test_a_chat_has_the_instructions_and_tools_of_a_stored_agent(storing: CliWithChat, agent: str) -> None:
    result = storing("chat", "--agent", agent, "-p", 'call chat_look {"text": "a"}')
    assert result.code == 0, result.err
    [tool] = [each["function"]["name"] for each in storing.asked[0]["tools"]]
    assert tool == "chat_look"
    assert ("You look." in json.dumps(storing.asked[0])) == (agent.lower() == "looker")


def test_commands_have_the_tools_of_a_stored_agent(storing: CliWithChat) -> None:
    assert list_tools(storing, "--agent", "looker") == ["chat_look"]
    assert storing("call", "--agent", "looker", "chat_look", "text=a").code == 0
    assert "no pattern of agent 'looker'" in storing("why", "--agent", "looker", "chat_put").out
    storing("tools")
    assert [line.split("\t")[0] for line in storing("search", "--agent", "looker", "look").lines] == [
        "chat_look"
    ]


def test_the_file_wins_by_name(storing: CliWithChat) -> None:
    assert "pattern" in storing("why", "--agent", "filed", "chat_look").out
    assert list_tools(storing, "--agent", "filed") == []
    assert storing("chat", "--agent", "filed", "-p", "say done").code == 0
    assert "Put." in json.dumps(storing.asked[0])


def test_check_budget_and_completion_know_stored_agents(storing: CliWithChat) -> None:
    asyncio.run(_store_broken(storing.data))
    storing("tools")
    result = storing("check")
    assert result.code == 1
    assert "AGENTS.md: 1 agent; 3 agents created in the pages" in result.out
    assert "error: Broken.bundles: unknown bundle 'none'" in result.out
    assert "error: Broken.tools: unknown tool 'chat_lok'" in result.out
    assert "ecret" not in result.out
    assert json.loads(storing("check", "--json").out)["agents"] == ["filed", "broken", "looker", "shared-one"]
    budget = storing("budget", "--json").out
    assert "agent looker" in budget
    assert "agent shared-one" in budget
    assert complete(storing, "toolyard tools --agent ") == ["filed", "broken", "looker", "shared-one"]
    (storing.data / "AGENTS.md").write_text("## A\n---\ntools: x\n---\n")
    assert complete(storing, "toolyard tools --agent l") == []


async def _store_broken(data: Path) -> None:
    database = await Database.open(data, url=None, secret_key=None)
    broken = Agent("broken", "Broken", tools=("chat_lok", "chat_look"), bundles=("none",))
    await database.agents.add(StoredAgent("ag_broken", "local", broken, 1, 1.0))
    await database.close()


def test_another_persons_agent_is_unknown(storing: CliWithChat) -> None:
    for words in (("chat", "--agent", "secret", "-p", "x"), ("tools", "--agent", "secret")):
        result = storing(*words)
        assert result.code != 0
        assert "unknown agent 'secret'" in result.err
        assert "shared-one" in result.err


def test_a_local_client_has_the_tools_of_a_stored_agent(storing: CliWithChat) -> None:
    process = storing.start("stdio", "--agent", "looker")
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        print(json.dumps(request), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
        assert [each["name"] for each in answer["result"]["tools"]] == ["chat_look"]
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("words", [(), ("--agent", "filed")])
def test_the_database_is_not_loaded_for_other_agents(storing: CliWithChat, words: tuple[str, ...]) -> None:
    result = storing.run([sys.executable, "-X", "importtime", *storing.words("tools", *words)[1:]])
    loaded_modules = {line.split()[-1] for line in result.err.splitlines() if line.startswith("import time:")}
    assert "toolyard.library" in loaded_modules
    assert "sqlalchemy" not in loaded_modules
