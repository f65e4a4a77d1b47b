"""Opens the chats of the local user for a terminal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

from toolyard.agents.definitions.agents_md import load_agents
from toolyard.agents.models.available_models import Models
from toolyard.cli.invocation import Options, Usage
from toolyard.core.chat_services import LocalChats
from toolyard.policy import select_bundles
from toolyard.store import Database
from toolyard.store.sql.key_file import DATABASE_FILE_NAME
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent

__all__ = ["no_model_error", "open_chat_app"]


@asynccontextmanager
async def open_chat_app(
    options: Options, bundles: tuple[str, ...] = (), *, model: str | None = None
) -> AsyncGenerator[LocalChats]:
    """Open all services. Raises ConfigError, AgentsError, StoreError, and Usage if no model is configured.

    At the end, running turns end as interrupted, every connection is closed and every child process has
    ended. ``model`` names a model that need not be in the settings.
    """
    settings, folder = options.load_settings(), options.resolved_data_dir
    configuration = options.load_config()
    select_bundles(bundles, configuration.bundles)
    agents = load_agents(settings.agents_path, folder)
    # Models can be stored in the database, which is created only where it can be of use.
    may_be_stored = settings.database_url or (folder / DATABASE_FILE_NAME).exists()
    if not may_be_stored and not _has_model(model, Models.from_settings(settings), agents):
        raise no_model_error(options)
    database = await Database.open_from_settings(settings, folder)
    chat_app = LocalChats(configuration, settings, folder, agents, bundles, database)
    try:
        await chat_app.load()
        if not _has_model(model, chat_app.models, chat_app.agents.values()):
            raise no_model_error(options)
        await chat_app.chats.open()
        yield chat_app
    finally:
        await chat_app.close()


def _has_model(model: str | None, models: Models, agents: Iterable[Agent]) -> bool:
    return any((model, models.default_for(LOCAL_PRINCIPAL), *(each.model for each in agents)))


def no_model_error(options: Options) -> Usage:
    """Return the error for a missing model, with a hint."""
    file = options.resolved_data_dir / "toolyard.toml"
    return Usage(
        "no model is configured",
        hint=f'add one on the Models page of the web app; or write model = "openai:gpt-5-mini" into {file} '
        "and set OPENAI_API_KEY; any OpenAI-compatible "
        "address works with model_base_url; `pip install toolyard[local]` brings a small model that needs "
        "neither key nor network",
    )
