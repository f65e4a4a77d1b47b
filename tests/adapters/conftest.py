"""A yard with real servers, and models on loopback ports that use it."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard import Toolyard
from toolyard.cli.commands.demo import demo_config

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

SERVERS = Path(__file__).parents[1] / "servers"
AGENTS = """\
## Narrow

---
tools: [demo_weekday]
---

You know the days.
"""


@pytest.fixture(scope="session", autouse=True)
def libraries() -> None:
    """Load the libraries once, before the resources of a test are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("pydantic_ai.models.openai", "openai.types.responses", "anthropic"):
            import_module(name)


@pytest.fixture
async def yard(leaks: None, tmp_path: Path, everything_server: str) -> AsyncIterator[Toolyard]:
    """A yard with the demo server and a server with images; the agent ``narrow`` has one tool."""
    config = json.loads(demo_config())
    config["mcpServers"]["every"] = {"command": everything_server, "args": ["stdio"]}
    (tmp_path / "AGENTS.md").write_text(AGENTS)
    async with Toolyard.open(config, agents=tmp_path / "AGENTS.md", data_dir=tmp_path) as yard:
        yield yard


@pytest.fixture
def chat_model(model_program: ListeningProgram) -> str:
    """The address of a Chat Completions model that follows the script in its prompt."""
    return model_program.url


@pytest.fixture
def other_models(start_program: Callable[..., Any]) -> str:
    """The address of models with Anthropic's Messages API and OpenAI's Responses API."""
    return start_program(sys.executable, "-I", SERVERS / "providers_server.py", "{port}").url
