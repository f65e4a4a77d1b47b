"""Database interface that chats require; implemented by the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import Chat, ChatEvent, NewChatEvent, TurnState
from toolyard.types.tool import JsonObject

__all__ = ["ApprovalStore", "ChatStore"]


class ChatStore(Protocol):
    """Stores chats and their events. Methods that take an owner ignore the chats of other users."""

    # Chats.

    async def create(self, chat: Chat) -> None: ...

    async def get(self, owner: str, chat_id: str) -> Chat | None: ...

    async def list_chats(
        self,
        owner: str,
        *,
        search_text: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """Return the owner's chats, most recently changed first.

        ``search_text`` is searched in titles and messages. ``before`` is ``(updated_at, id)`` of the last
        chat of the previous page.
        """
        ...

    async def change(self, chat: Chat) -> bool:
        """Store title, agent, model and choice of the owner's chat, nothing else.

        Return False if there is no such chat.
        """
        ...

    async def delete(self, owner: str, chat_id: str) -> bool: ...

    # Events.

    async def list_events(self, chat_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[ChatEvent]:
        """Return events in order. The caller has checked that the user owns the chat."""
        ...

    async def list_latest_events(
        self, chat_id: str, *, before: int | None = None, limit: int = 200
    ) -> Sequence[ChatEvent]:
        """Return the last ``limit`` events before a sequence number, in order, for a page that opens at the
        end.

        The result starts with the first event of a turn, so it may contain more events than ``limit``, or
        slightly fewer.
        """
        ...

    async def wait_for_events(self, chat_id: str, after: int, seconds: float) -> Sequence[ChatEvent]:
        """Return events after a sequence number, in order, as soon as there are any; none after ``seconds``.

        Events appended by this process are returned at once, those of other processes after a short delay.
        Raises NoSuchChat as soon as the chat does not exist.
        """
        ...

    async def get_kept_data(self, chat_id: str, seq: int) -> bytes | None:
        """Return the data stored beside an event."""
        ...

    async def get_kept_data_by_seq(self, chat_id: str, seqs: Sequence[int]) -> Mapping[int, bytes]:
        """Return the data stored beside events, by sequence number; events without data are omitted."""
        ...

    # Turns. At most one turn runs in a chat, and exactly one runner holds it.

    async def claim(
        self,
        chat_id: str,
        runner: str,
        expected_state: TurnState,
        events: Sequence[NewChatEvent],
        *,
        new_turn: bool,
    ) -> Sequence[ChatEvent] | None:
        """Take a chat that is in ``expected_state`` and append events to it; with ``new_turn``, the first one
        starts a turn.

        Return None if the chat is in another state or does not exist.
        """
        ...

    async def append(
        self,
        chat_id: str,
        runner: str,
        events: Sequence[NewChatEvent],
        *,
        next_state: TurnState = TurnState.RUNNING,
    ) -> Sequence[ChatEvent]:
        """Append events durably to a chat that the runner holds. Raises NotHeld.

        A ``next_state`` other than RUNNING releases the chat in the same write. Concurrent appends share one
        write.
        """
        ...

    async def append_without_claim(self, chat_id: str, events: Sequence[NewChatEvent]) -> Sequence[ChatEvent]:
        """Append events to the last turn of a chat, whichever runner holds it: used for a user's answers."""
        ...

    async def record_heartbeat(self, runner: str) -> None:
        """Record that the runner is alive, for all chats that it holds."""
        ...

    async def find_abandoned(self, is_gone: Callable[[str, float], bool]) -> Sequence[Chat]:
        """Return running chats for which ``is_gone(runner, seconds since its last heartbeat)`` is true."""
        ...

    async def find_resumable(self) -> Sequence[Chat]:
        """Return waiting chats that have no unanswered approval."""
        ...

    async def take_over(self, chat_id: str, runner: str, previous_runner: str) -> bool:
        """Hold a running chat in place of a dead runner. Return False if another process took it first."""
        ...

    async def get_runner(self, chat_id: str) -> str | None:
        """Return the id of the runner that holds the chat."""
        ...

    async def request_stop(self, chat_id: str) -> None:
        """Notify the runner that holds the chat, in any process."""
        ...

    def listen_for_stop_requests(self) -> AsyncIterator[str]:
        """Yield ids of chats to stop, requested by any process, as requests arrive. Never ends by itself."""
        ...


class ApprovalStore(Protocol):
    """Stores approvals of calls, and the grants that follow from them."""

    async def add(self, approval: Approval) -> None: ...

    async def find(self, owner: str, approval_id: str) -> Approval | None: ...

    async def list_pending(self, owner: str) -> Sequence[Approval]:
        """Return unanswered approvals, oldest first."""
        ...

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, at: float, grant: Grant | None
    ) -> bool:
        """Answer a pending approval and store its grant.

        Return False if it was answered already or does not exist.
        """
        ...

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        """Return the grants that have not expired."""
        ...

    async def revoke(self, owner: str, grant_id: str) -> bool: ...

    async def use_grant(
        self,
        owner: str,
        tool: str,
        definition_hash: str,
        fits: Callable[[JsonObject], bool],
        chat_id: str | None,
        now: float,
    ) -> Grant | None:
        """Return a grant that covers a call, or None; ``fits`` tests its predicate against the call's
        arguments.

        A grant limited to a number of uses loses one use, atomically.
        """
        ...
