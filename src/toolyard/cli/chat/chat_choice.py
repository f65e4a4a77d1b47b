"""Which chat is meant: a new one, the last one, or one by its id."""

from __future__ import annotations

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.cli.chat.chat_app import LOCAL_OWNER_ID, ChatApp
from toolyard.types.chat import Chat

__all__ = ["find_chat", "find_last_chat"]

_MAX_SEARCHED_CHATS = 1_000


async def find_chat(chat_app: ChatApp, id_prefix: str) -> Chat:
    """The chat of this id, or the only one whose id begins so. Raises NoSuchChat."""
    found = [
        chat
        for chat in await chat_app.chats.list(LOCAL_OWNER_ID, limit=_MAX_SEARCHED_CHATS)
        if chat.id.startswith(id_prefix)
    ]
    if len(found) == 1:
        return found[0]
    there = "there is no such chat" if not found else f"{len(found)} chats begin with {id_prefix}"
    raise NoSuchChat(f"{id_prefix}: {there}", hint="`toolyard chat --list` shows their ids")


async def find_last_chat(chat_app: ChatApp) -> Chat:
    """The one that changed last. Raises NoSuchChat."""
    for chat in await chat_app.chats.list(LOCAL_OWNER_ID, limit=1):
        return chat
    raise NoSuchChat("there is no chat to come back to", hint="`toolyard chat` begins one")
