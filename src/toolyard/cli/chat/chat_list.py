"""``toolyard chat --list``: list the chats."""

from __future__ import annotations

import time
from collections.abc import Sequence

from toolyard.cli.chat.chat_app import LOCAL_OWNER_ID, open_existing_database
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import show_note
from toolyard.cli.output.safe_text import format_age, one_line, print_json
from toolyard.cli.output.tables import Column, show_table
from toolyard.types.chat import Chat

__all__ = ["list_chats"]

_MAX_LISTED_CHATS = 100
_COLUMNS = (
    Column("chat", style="cyan", whole=True),
    Column("title", wraps=True),
    Column("agent"),
    Column("model"),
    Column("state"),
    Column("changed", style="dim"),
)


async def list_chats(options: Options) -> int:
    """Print the chats, the last changed first. No server is connected."""
    async with open_existing_database(options) as database:
        chats = (
            () if database is None else await database.chats.chats(LOCAL_OWNER_ID, limit=_MAX_LISTED_CHATS)
        )
    if options.json:
        from toolyard.web.api.chat_models import build_chat_model  # as the API shows them

        print_json([build_chat_model(chat).model_dump(mode="json") for chat in chats])
        return 0
    _show_chats(chats)
    return 0


def _show_chats(chats: Sequence[Chat]) -> None:
    now = time.time()
    rows = [
        (
            chat.id,
            one_line(chat.title, 60),
            chat.agent or "",
            chat.model or "",
            chat.state.value,
            format_age(max(0.0, now - chat.updated_at)),
        )
        for chat in chats
    ]
    if rows:
        show_table(_COLUMNS, rows)
    else:
        show_note("there are no chats yet", "`toolyard chat` begins one")
