"""Which chat is meant: a new one, the last one, or one by its id."""

from __future__ import annotations

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.cli.chat.chat_app import OWNER, Room
from toolyard.types.chat import Chat

__all__ = ["find_chat", "last_chat"]

_SEARCHED = 1_000


async def find_chat(room: Room, wanted: str) -> Chat:
    """The chat of this id, or the only one whose id begins so. Raises NoSuchChat."""
    found = [chat for chat in await room.chats.list(OWNER, limit=_SEARCHED) if chat.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    there = "there is no such chat" if not found else f"{len(found)} chats begin with {wanted}"
    raise NoSuchChat(f"{wanted}: {there}", hint="`toolyard chat --list` shows their ids")


async def last_chat(room: Room) -> Chat:
    """The one that changed last. Raises NoSuchChat."""
    for chat in await room.chats.list(OWNER, limit=1):
        return chat
    raise NoSuchChat("there is no chat to come back to", hint="`toolyard chat` begins one")
