"""Chats over the real store, with a model that follows a script and real servers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.agents.chat.chat_harness import ChatProcess, Model, open_chat_process

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram


@pytest.fixture(scope="session", autouse=True)
def libraries() -> None:
    """Load the provider's library once; its source raises a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("pydantic_ai.models.openai")


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None) -> None:
    """Fail a test of this folder that leaks tasks, descriptors or processes."""


@pytest.fixture
def model(model_program: ListeningProgram) -> Model:
    return Model(model_program.url)


Opening = Callable[..., Awaitable[ChatProcess]]


@pytest.fixture
async def open_chats(tmp_path: Path, model: Model) -> AsyncIterator[Opening]:
    """``await open_chats(agents=…, servers=…, **settings)``: open chats, each time on the same data."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(**options: Any) -> ChatProcess:
            process = await open_chat_process(tmp_path / "data", tmp_path / "journal", model.url, **options)
            stack.push_async_callback(process.close)
            return process

        yield start


@pytest.fixture
async def process(open_chats: Opening) -> ChatProcess:
    return await open_chats()
