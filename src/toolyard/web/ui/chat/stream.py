"""``/ui/chat/{id}/stream``: server-sent events with changed fragments, for open pages of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

import orjson
from fastapi import Header
from starlette.datastructures import State

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import NoSuchChat
from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.core.interface_links import StopSignal
from toolyard.types.account import RequestUser
from toolyard.types.chat import TRANSIENT_KINDS, Chat, Kind
from toolyard.web import service_dependencies as deps
from toolyard.web.api.chat_stream import stream_event_batches
from toolyard.web.api.event_stream import EventStreamResponse, while_authorized
from toolyard.web.rendering.renderer import DeferredMarkdown
from toolyard.web.routes import Routes
from toolyard.web.ui.chat.fragments import FragmentContext
from toolyard.web.ui.chat.page_context import ChatPages, ChatPagesDep
from toolyard.web.ui.chat.page_updates import ChatPageUpdater, PageChange
from toolyard.web.ui.components import responses

__all__ = ["router"]

router = Routes()

_MIN_PIECE_INTERVAL_SECONDS = 0.04
"""Minimum interval between two events that only append text. Readers do not notice shorter ones."""
_LISTED_KINDS = (Kind.TITLE, Kind.QUESTION, Kind.QUESTION_ANSWER)
"""Kinds of events that change the entry in the list of chats."""
_POLL_INTERVAL_MILLISECONDS = 2500
"""Interval at which pages ask that have no stream, because the browser limits its connections."""
_OPEN_PAGES_PER_INTERVAL = 25
"""The interval grows by its base value for each such number of open pages, because one process renders for
all of them."""


@router.get("/ui/chat/{chat_id}/stream")
async def stream_page(
    me: deps.CurrentUser,
    chat_id: str,
    pages: ChatPagesDep,
    stream_limits: deps.StreamLimitsDep,
    stop_signal: deps.StopSignalDep,
    after: int = 0,
    wait: bool = True,
    last_event_id: Annotated[int | None, Header()] = None,
) -> EventStreamResponse:
    """Stream the changes after the last event that the page shows; without ``wait``, only those so far."""
    seen, chats = max(after, last_event_id or 0), pages.chats
    # Rebuild the turn that the page shows, to compute changes relative to it.
    last_turn = await chats.find_branch_end(me.user.id, chat_id, seen + 1)
    shown = ChatSnapshot.from_events(
        await chats.list_latest_events(me.user.id, chat_id, last_turn=last_turn, before=seen + 1, limit=1)
    )
    deferred = DeferredMarkdown(pages.markdown)
    frame = FragmentContext(chat_id, me.csrf, to_html=deferred, find_icon_path=pages.find_icon_path)
    updater = ChatPageUpdater(frame, ChatSnapshot(shown.turns, max(shown.last, seen)))
    changes = _stream_changes(
        pages, stop_signal, chat_id, updater, deferred, stream_limits.heartbeat_seconds, wait=wait
    )
    return EventStreamResponse(stream_limits, me, changes)


@dataclass(slots=True)
class _ListedChat:
    """The chat of a page, as the list of chats shows it."""

    pages: ChatPages
    chat_id: str
    chat: Chat | None = None
    """None before the first ``refresh``. Its state and time are those of the last one."""
    _revision: object | None = None
    """Revision of all chats before it was read."""

    async def refresh(self) -> bool:
        """Read the chat if more than its events may have changed, as by a new title, and return True if so.

        Raises NoSuchChat.
        """
        revision = self.pages.chat_store.get_revision()
        if self.chat is not None and revision is not None and revision == self._revision:
            return False
        self.chat = await self.pages.chats.get(self.pages.me.user.id, self.chat_id)
        self._revision = revision
        return True


async def _stream_changes(
    pages: ChatPages,
    stop_signal: StopSignal,
    chat_id: str,
    updater: ChatPageUpdater,
    deferred: DeferredMarkdown,
    heartbeat_seconds: float,
    *,
    wait: bool,
) -> AsyncGenerator[bytes]:
    request, me, chats = pages.request, pages.me, pages.chats
    listed = _ListedChat(pages, chat_id)
    state: State = request.app.state
    state.open_chats = getattr(state, "open_chats", 0) + 1
    batches = stream_event_batches(
        pages.chat_store,
        chats,
        stop_signal,
        me.user.id,
        chat_id,
        updater.last,
        heartbeat_seconds if wait else 0,
    )
    try:
        yield b"retry: %d\n\n" % (1000 if wait else _POLL_INTERVAL_MILLISECONDS)
        async for events in while_authorized(request, batches, heartbeat_seconds):
            if not events:
                # A comment keeps proxies from closing an idle connection.
                yield b": still here\n\n"
                if not wait:
                    return
                continue
            has_only_pieces = all(event.kind in TRANSIENT_KINDS for event in events)
            if (last_turn := updater.find_other_branch(events)) is not None:
                changes = await _switch_branch(chats, me, chat_id, updater, last_turn, events[-1].seq)
            # A long answer takes seconds to split into blocks and to render.
            elif updater.is_long(events):
                changes = await asyncio.to_thread(updater.changes, events)
            else:
                changes = updater.changes(events)
            filled = await deferred.fill([change.get("html", "") for change in changes])
            for change, html in zip(changes, filled, strict=True):
                if html:
                    change["html"] = html
            # Title and entry in the list can change when a turn waits or ends, or when the title is written.
            states = [change["state"] for change in changes if "state" in change]
            is_listed_change = any(event.kind in _LISTED_KINDS for event in events)
            if states == ["running"] and not is_listed_change and not updater.is_waiting:
                changes.append(_build_state_change(chat_id, "running"))
            elif states or is_listed_change:
                if await listed.refresh() and listed.chat is not None:
                    changes += _build_chat_changes(listed.chat, is_waiting=updater.is_waiting)
                else:
                    shown_state = "waiting" if updater.is_waiting else updater.state
                    changes.append(_build_state_change(chat_id, shown_state, events[-1].at))
                # A sign-in may be lost during a turn.
                if states and states[-1] != "running":
                    changes.append({"id": "reconnect", "html": await pages.banner.render(me, listed.chat)})
            yield b"id: %d\nevent: changes\ndata: %s\n\n" % (updater.last, orjson.dumps(changes))
            if not wait:
                return
            if has_only_pieces:
                intervals = 1 + state.open_chats / _OPEN_PAGES_PER_INTERVAL
                await asyncio.sleep(_MIN_PIECE_INTERVAL_SECONDS * intervals)
    except NoSuchChat:
        yield b"event: gone\ndata: {}\n\n"
    finally:
        state.open_chats -= 1


async def _switch_branch(
    chats: ChatService, me: RequestUser, chat_id: str, updater: ChatPageUpdater, last_turn: int, seq: int
) -> list[PageChange]:
    """Return the changes after which the page shows the branch to a turn, as of an event."""
    tree = await chats.get_turn_tree(me.user.id, chat_id)
    branch, old_branch = tree.branch(last_turn), tree.branch(updater.last_turn)
    kept = [turn for turn in branch if turn in old_branch]
    events = await chats.list_latest_events(me.user.id, chat_id, last_turn=last_turn, before=seq + 1)
    view = ChatSnapshot.from_events(events)
    shown = [turn for turn in view.turns if turn.seq not in kept]
    # Too many turns to send: the page is loaded again.
    is_complete = len(shown) == len(branch) - len(kept)
    after = (f"t{kept[-1]}" if kept else "") if is_complete else "missing"
    return await asyncio.to_thread(updater.switch_branch, ChatSnapshot(view.turns, seq), shown, after, tree)


def _build_state_change(chat_id: str, state: str, updated_at: float | None = None) -> PageChange:
    """Return the change of the state in the chat's entry in the list, or of the time where it is idle."""
    html = responses.get_macros("chat_list.html").chat_state(chat_id, state, updated_at)
    return {"id": f"e-{chat_id}-state", "html": html}


def _build_chat_changes(chat: Chat, *, is_waiting: bool) -> list[PageChange]:
    """Return changes of the chat's entry in the list and of its title."""
    entry = responses.get_macros("chat_list.html").chat_entry(chat, True, is_waiting)
    return [
        {"id": f"e-{chat.id}", "html": entry},
        {"id": "chat-title", "html": responses.get_macros("chat_list.html").chat_title(chat)},
    ]
