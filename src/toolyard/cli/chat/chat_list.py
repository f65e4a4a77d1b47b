"""``toolyard chat --list``: the chats that there are."""

from __future__ import annotations

import time
from collections.abc import Sequence

from toolyard.cli.chat.chat_app import OWNER, open_store
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import note
from toolyard.cli.output.safe_text import ago, one_line, print_json
from toolyard.cli.output.tables import Column, show_table
from toolyard.types.chat import Chat

__all__ = ["list_chats"]

_MOST = 100
_COLUMNS = (
    Column("chat", style="cyan", whole=True),
    Column("title", wraps=True),
    Column("agent"),
    Column("model"),
    Column("state"),
    Column("changed", style="dim"),
)


async def list_chats(options: Options) -> int:
    """Show them, the one that changed last first. Nothing is connected."""
    async with open_store(options) as database:
        chats = () if database is None else await database.chats.chats(OWNER, limit=_MOST)
    if options.json:
        from toolyard.web.api.chat_models import chat_shown  # as the API shows them

        print_json([chat_shown(chat).model_dump(mode="json") for chat in chats])
        return 0
    _show(chats)
    return 0


def _show(chats: Sequence[Chat]) -> None:
    now = time.time()
    rows = [
        (
            chat.id,
            one_line(chat.title, 60),
            chat.agent or "",
            chat.model or "",
            chat.state.value,
            ago(max(0.0, now - chat.updated_at)),
        )
        for chat in chats
    ]
    if rows:
        show_table(_COLUMNS, rows)
    else:
        note("there are no chats yet", "`toolyard chat` begins one")
