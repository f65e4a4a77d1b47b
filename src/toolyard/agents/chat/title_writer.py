"""Titles of chats, written by their model after the first turn."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace

from toolyard.agents.chat.storable_values import sanitize_text
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.chat.turn import MODEL_MODULES, TurnServices, resolve_model_id
from toolyard.agents.chat.turn_log import read_turn
from toolyard.agents.models.local_model import LOCAL_MODEL_ID
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.errors import ToolyardError
from toolyard.types.chat import Chat, ChatTitle, NewChatEvent, TurnOutcome

__all__ = ["MAX_DERIVED_TITLE_CHARACTERS", "TITLE_AGENT", "TitleWriter", "clean_title", "make_title"]

log = logging.getLogger("toolyard.chat")

TITLE_AGENT = "@titles"
"""Agent under which the usage of titles is recorded."""
MAX_DERIVED_TITLE_CHARACTERS = 60
_MAX_SENT_CHARACTERS = 2_000
"""Characters of the message, and of the answer, that the model gets."""
_REQUEST_TIMEOUT_SECONDS = 60.0


class TitleWriter:
    """Replaces titles that were made from the first message. If that fails, the chat keeps its title."""

    def __init__(self, context: TurnServices) -> None:
        self._context = context
        self._tasks = BackgroundTasks()

    def begin(self, chat: Chat, turn: int, tool_set: ToolSet) -> None:
        """Write the title in the background, after the turn ``turn``."""
        self._tasks.spawn(self._write(chat, turn, tool_set))

    async def close(self) -> None:
        """Abandon titles that are being written."""
        await self._tasks.close()

    async def _write(self, chat: Chat, turn: int, tool_set: ToolSet) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_SECONDS):
                await self._replace_title(chat, turn, tool_set)
        except TimeoutError:
            log.warning("chat %s: the model did not write a title in time", chat.id)
        except ToolyardError as error:
            log.warning("chat %s: the model did not write a title: %s", chat.id, error.cause)

    async def _replace_title(self, chat: Chat, turn: int, tool_set: ToolSet) -> None:
        context = self._context
        snapshot = await read_turn(context.store, chat.id, turn)
        if snapshot.text is None or snapshot.end is None or snapshot.end.why != TurnOutcome.DONE:
            return
        derived = make_title(snapshot.text, MAX_DERIVED_TITLE_CHARACTERS)
        current = await context.store.get(chat.owner, chat.id)
        if current is None or current.title != derived:
            return
        picked_model = context.models.pick(resolve_model_id(chat, tool_set), tool_set.caller.principal)
        # The local model would keep the processor busy for seconds.
        if picked_model.choice.id == LOCAL_MODEL_ID:
            return
        await context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.model_conversation import request_title  # see MODEL_MODULES

        answer = " ".join(each.text for each in snapshot.answers)
        written, usage = await request_title(
            picked_model, snapshot.text[:_MAX_SENT_CHARACTERS], answer[:_MAX_SENT_CHARACTERS]
        )
        if context.on_model_usage is not None:
            tool_set.attribute_to_owner()
            context.on_model_usage(chat.owner, TITLE_AGENT, picked_model.choice.id, usage)
        title = clean_title(written)
        # The person may have renamed or deleted the chat meanwhile.
        current = await context.store.get(chat.owner, chat.id)
        if not title or current is None or current.title != derived:
            return
        await context.store.change(replace(current, title=title))
        event = ChatTitle(title, usage.input, usage.output, usage.cached, usage.cost)
        await context.store.append_without_claim(chat.id, [NewChatEvent.from_data(event)])


def make_title(text: str, max_characters: int) -> str:
    """Return the first line that is not blank, truncated."""
    lines = (" ".join(line.split()) for line in sanitize_text(text).splitlines())
    first = next((line for line in lines if line), "")
    return first if len(first) <= max_characters else f"{first[: max_characters - 1].rstrip()}…"


def clean_title(text: str) -> str:
    """Return a title that a model wrote, without quotation marks, Markdown and a full stop."""
    title = make_title(text, 1_000)
    title = re.sub(r"^(?:title:\s*|[#>*\-\s]+)+", "", title, flags=re.IGNORECASE)
    return make_title(title.strip("\"'`*_“”„«» ").rstrip("."), MAX_DERIVED_TITLE_CHARACTERS)
