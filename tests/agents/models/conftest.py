"""Fake models with the protocols of providers on loopback ports, and helpers to call them."""

from __future__ import annotations

import json
import sys
import urllib.request
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.tools import ToolDefinition
from tests.conftest import ProgramStarter

from toolyard.agents.models.available_models import Models
from toolyard.config import load_settings
from toolyard.types.account import LOCAL_PRINCIPAL

SERVERS = Path(__file__).parents[2] / "servers"
KEY = "sk-a-very-secret-key-0123456789"


@dataclass
class FakeProvider:
    """A running fake: its address, and the requests that it received during the test."""

    url: str
    before: int = 0

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    @property
    def journal(self) -> list[dict[str, Any]]:
        return self.get("/journal")[self.before :]


def _run_provider(program: str) -> Iterator[str]:
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", SERVERS / program, "{port}").url
    programs.stop()


@pytest.fixture(scope="module")
def openai_url() -> Iterator[str]:
    yield from _run_provider("openai_server.py")


@pytest.fixture(scope="module")
def provider_url() -> Iterator[str]:
    yield from _run_provider("providers_server.py")


@pytest.fixture
def openai_fake(openai_url: str) -> FakeProvider:
    return FakeProvider(openai_url, len(FakeProvider(openai_url).journal))


@pytest.fixture
def provider_fake(provider_url: str) -> FakeProvider:
    """A fake of Anthropic, Google and OpenAI's Responses, in one program."""
    return FakeProvider(provider_url, len(FakeProvider(provider_url).journal))


@dataclass
class ModelReply:
    """The collected reply of a model."""

    text: str = ""
    reasoning: str = ""
    pieces: int = 0
    stream: Any = None
    error: Any = field(default=None)


async def ask(
    models: Models,
    words: str | Sequence[ModelMessage],
    *,
    model_name: str | None = None,
    tools: Sequence[ToolDefinition] = (),
    instructions: str | None = None,
    temperature: float | None = None,
) -> ModelReply:
    """Request a reply and read it to its end. An error is in ``error``, beside the parts that arrived."""
    messages = [ModelRequest.user_text_prompt(words)] if isinstance(words, str) else words
    model_reply = ModelReply()
    model_stream = models.pick(model_name, LOCAL_PRINCIPAL).stream(
        messages, tools, instructions=instructions, temperature=temperature
    )
    try:
        async with model_stream as model_reply.stream:
            async for piece in model_reply.stream:
                model_reply.pieces += 1
                if piece.kind == "text":
                    model_reply.text += piece.delta
                else:
                    model_reply.reasoning += piece.delta
    except Exception as error:
        model_reply.error = error
    return model_reply


Make = Callable[..., Models]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """``make(**settings)``: models of these settings, without the environment; closed at the end."""
    opened_models: list[Models] = []

    def one(**settings: object) -> Models:
        opened_models.append(Models.from_settings(load_settings(tmp_path, env={}, overrides=settings)))
        return opened_models[-1]

    yield one
    for models in opened_models:
        await models.close()


@pytest.fixture(scope="session", autouse=True)
def libraries() -> None:
    """Load the libraries of the providers once; the source of one raises a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("anthropic", "google", "openai"):
            import_module(f"pydantic_ai.models.{name}")
